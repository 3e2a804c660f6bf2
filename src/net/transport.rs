//! The transport under a connection, and how much output it can buffer before a write.

use std::io;

use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::net::coalesce;

/// The byte stream under a connection: TCP or TLS.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Bytes that are gathered before they are passed to [`Transport::buffer`]. Default is 256 KiB.
    const GATHER_SIZE: usize = coalesce::MAX_BUFFERED;

    /// Buffers as many of the bytes as there is room for; the next write or flush sends them to the
    /// socket. Returns the number of bytes taken. By default it takes none.
    ///
    /// # Errors
    /// If the connection is no longer usable.
    fn buffer(&mut self, _: &[u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Transport for TcpStream {}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {}
