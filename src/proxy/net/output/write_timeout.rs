//! Ends connections with a peer that reads nothing for a long time.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::net::Transport;

/// A socket with a limit for writes: a write fails if the peer takes no byte for `limit`.
pub(in crate::net) struct WriteTimeout<I> {
    io: I,
    limit: Duration,
    is_upgraded: Arc<AtomicBool>,
    /// True if the kernel does not limit stalls any more.
    allows_stalls: bool,
    /// Runs while a write waits; `None` otherwise.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Limits the writes of a connection, upgraded or not: a write fails if the peer takes no byte for
/// `limit`.
pub fn limit_stalls<I: Transport + Send>(
    io: I,
    limit: Duration,
) -> impl AsyncRead + AsyncWrite + Send + Unpin {
    WriteTimeout::new(io, limit).0
}

/// Turns off the timeout of a [`WriteTimeout`] when its connection has been upgraded. The peer of
/// an upgraded connection may pause for any time, for example while a person reads the output of
/// exec in a pager.
pub(in crate::net) struct UpgradeFlag(Arc<AtomicBool>);

impl UpgradeFlag {
    pub(in crate::net) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<I> WriteTimeout<I> {
    pub(in crate::net) fn new(io: I, limit: Duration) -> (WriteTimeout<I>, UpgradeFlag) {
        let is_upgraded = Arc::new(AtomicBool::new(false));
        let upgraded = UpgradeFlag(Arc::clone(&is_upgraded));
        let io_with_timeout = WriteTimeout {
            io,
            limit,
            is_upgraded,
            allows_stalls: false,
            timer: None,
        };
        (io_with_timeout, upgraded)
    }
}

impl<I: Transport> WriteTimeout<I> {
    /// Removes the kernel's limit once the connection is upgraded. This must not wait for a pending
    /// write: output that fits into the socket's buffer is never pending, but the kernel would end
    /// the connection if the peer does not read the output.
    fn lift_after_upgrade(&mut self) -> io::Result<()> {
        if !self.allows_stalls && self.is_upgraded.load(Ordering::Relaxed) {
            self.io.allow_stalls()?;
            self.allows_stalls = true;
        }
        Ok(())
    }

    fn check_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.lift_after_upgrade()?;
        if written.is_ready() || self.allows_stalls {
            self.timer = None;
            return written;
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        timer.as_mut().poll(cx).map(|()| {
            let message = format!("the peer read nothing for {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

impl<I: Transport> AsyncWrite for WriteTimeout<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.check_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.check_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.check_timeout(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.check_timeout(cx, shut)
    }
}

impl<I: Transport> AsyncRead for WriteTimeout<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.lift_after_upgrade()?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: Transport> Transport for WriteTimeout<I> {
    const GATHER_SIZE: usize = I::GATHER_SIZE;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        self.io.buffer(data)
    }

    fn waiting(&mut self) -> usize {
        self.io.waiting()
    }

    fn allow_stalls(&self) -> io::Result<()> {
        self.io.allow_stalls()
    }
}

#[cfg(test)]
mod tests;
