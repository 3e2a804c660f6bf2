//! Transport: what a connection runs over, and what it can hold before it is written.

use std::io;

use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::net::coalesce;

/// What a connection runs over.
pub trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Bytes that are gathered before [`Transport::buffer`] is offered them. Default is 256 KiB.
    const GATHER_SIZE: usize = coalesce::MAX_BUFFERED;

    /// Takes what it has room for, to be written to the socket by the next write or flush, and gives
    /// how many bytes these are. Default is none.
    ///
    /// # Errors
    /// When the connection is of no use any more.
    fn buffer(&mut self, _: &[u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Transport for TcpStream {}

#[cfg(test)]
impl Transport for tokio::io::DuplexStream {}
