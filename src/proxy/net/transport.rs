//! The transport under a connection, and how much output it can buffer before a write.

use std::io;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Upper limit of gathered bytes: a hundred events of 2 KiB. Further output waits for the socket.
pub(in crate::net) const MAX_BUFFERED: usize = 256 << 10;

/// The byte stream under a connection: TCP or TLS.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// The number of bytes that are gathered before they are passed to [`Transport::buffer`].
    /// Default is 256 KiB.
    const GATHER_SIZE: usize = MAX_BUFFERED;

    /// Buffers as many of the bytes as there is room for. The next write or flush sends them to the
    /// socket. Returns the number of bytes taken. The default takes none.
    ///
    /// # Errors
    /// If the connection is no longer usable.
    fn buffer(&mut self, _: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    /// Returns the bytes of output that the transport has buffered and the socket has not taken.
    /// The default is 0.
    fn waiting(&mut self) -> usize {
        0
    }

    /// Removes any limit on how long the peer may accept no bytes. The default does nothing,
    /// because there is no limit.
    ///
    /// # Errors
    /// If the system does not accept the option.
    fn allow_stalls(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for TcpStream {
    fn allow_stalls(&self) -> io::Result<()> {
        SockRef::from(self).set_tcp_user_timeout(None)
    }
}

impl Transport for TokioIo<Upgraded> {}

#[cfg(any(test, feature = "test-support"))]
impl Transport for tokio::io::DuplexStream {}
