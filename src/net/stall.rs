//! Ends connections whose peer takes nothing for long.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::time::Sleep;
use tokio::time::sleep;

use crate::net::Transport;

/// A socket on which a write fails that waits longer than `limit` for the peer to take a byte.
pub(super) struct Impatient<I> {
    io: I,
    limit: Duration,
    is_upgraded: Arc<AtomicBool>,
    /// While a write waits.
    patience: Option<Pin<Box<Sleep>>>,
}

/// Tells an [`Impatient`] that its connection is one of HTTP no more: whoever pages through the output
/// of an exec may take all the time in the world.
pub(super) struct Upgraded(Arc<AtomicBool>);

impl Upgraded {
    pub(super) fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<I> Impatient<I> {
    pub(super) fn new(io: I, limit: Duration) -> (Impatient<I>, Upgraded) {
        let is_upgraded = Arc::new(AtomicBool::new(false));
        let upgraded = Upgraded(Arc::clone(&is_upgraded));
        let impatient = Impatient {
            io,
            limit,
            is_upgraded,
            patience: None,
        };
        (impatient, upgraded)
    }

    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() || self.is_upgraded.load(Ordering::Relaxed) {
            self.patience = None;
            return written;
        }
        let limit = self.limit;
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(limit)));
        patience.as_mut().poll(cx).map(|()| {
            let told = format!("the peer took nothing for {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, told))
        })
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Impatient<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.judge(cx, shut)
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Impatient<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: Transport> Transport for Impatient<I> {
    const GATHERED: usize = I::GATHERED;

    fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
        self.io.buffer(data)
    }
}

#[cfg(test)]
mod tests;
