//! TlsStream: a client's connection after the TLS handshake.

use std::io;
use std::io::{IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server;

use super::tls_socket::TlsSocket;
use crate::net::Transport;
use crate::net::pieces::{PIECE, with_pieces};

/// The most pieces that are passed to rustls at once: as many as the bytes have that it buffers by
/// default, and one more for each slice that hyper writes at once.
const PIECES: usize = (64 << 10) / PIECE + 64;
/// The most pieces of gathered bytes.
const GATHERED_PIECES: usize = TlsStream::GATHER_SIZE.div_ceil(PIECE);

/// A connection after its handshake. rustls copies the plaintext into a record and encrypts it
/// there, so it gets pieces that are copied fast.
pub(in crate::net) struct TlsStream(server::TlsStream<TlsSocket>);

// === impl TlsStream ===

impl TlsStream {
    pub(super) fn new(stream: server::TlsStream<TlsSocket>) -> Self {
        Self(stream)
    }

    fn connection(&mut self) -> &mut ServerConnection {
        self.0.get_mut().1
    }
}

impl Transport for TlsStream {
    /// The length of a TLS record, so that gathered bytes are still in the CPU's cache when they
    /// are encrypted.
    const GATHER_SIZE: usize = 16 << 10;

    /// Encrypts the bytes into the buffer of rustls.
    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut writer = self.connection().writer();
        with_pieces::<GATHERED_PIECES, _>(&[IoSlice::new(data)], |pieces| {
            writer.write_vectored(pieces)
        })
    }

    fn waiting(&mut self) -> usize {
        // All packets were processed when they were read, so this only returns the sizes. After an
        // error, the connection ends.
        let state = self.connection().process_new_packets();
        state.map_or(0, |state| state.tls_bytes_to_write())
    }

    fn allow_stalls(&self) -> io::Result<()> {
        self.0.get_ref().0.tcp().allow_stalls()
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.0);
        with_pieces::<PIECES, _>(data, |pieces| stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
