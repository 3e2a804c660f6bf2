//! Limits how many requests an HTTP/2 connection starts before the thread's other tasks run.
//!
//! One read from the socket can bring hundreds of requests, and one poll of the connection reads
//! until the socket is empty. A client that resets its streams at once can send any number of them
//! (RFC 9113 §5.1.2 does not count closed streams), and each is a task that the other connections'
//! tasks wait for.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;

use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;

/// Number of requests after which one poll of a connection reads no more. A read may bring more.
const MAX_STARTS: usize = 32;

/// The number of requests that a connection has started in the current poll.
#[derive(Debug, Default)]
pub(super) struct Starts(AtomicUsize);

/// A transport that is not read while too many requests were started.
pub(super) struct LimitedStarts<I> {
    io: I,
    starts: Arc<Starts>,
}

// === impl Starts ===

impl Starts {
    /// A request was started.
    pub(super) fn record(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A poll of the connection has ended.
    pub(super) fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn are_too_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MAX_STARTS
    }
}

// === impl LimitedStarts ===

impl<I> LimitedStarts<I> {
    pub(super) fn new(io: I, starts: Arc<Starts>) -> Self {
        Self { io, starts }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for LimitedStarts<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.starts.are_too_many() {
            // The next poll goes on, after the tasks that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for LimitedStarts<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_connection_that_has_started_many_requests_reads_in_its_next_poll() {
        let starts = Arc::new(Starts::default());
        let mut io = LimitedStarts::new(&b"abc"[..], Arc::clone(&starts));
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = || {
            let mut byte = [0];
            let mut buffer = ReadBuf::new(&mut byte);
            let polled = Pin::new(&mut io).poll_read(&mut cx, &mut buffer);
            polled.map(|read| read.map(|()| buffer.filled().len()).ok())
        };
        (1..MAX_STARTS).for_each(|_| starts.record());
        assert_eq!(read(), Poll::Ready(Some(1)));
        starts.record();
        assert_eq!(read(), Poll::Pending);
        starts.renew();
        assert_eq!(read(), Poll::Ready(Some(1)));
    }
}
