//! Measures the output that a connection's socket has not taken, and passes received bytes to their
//! measure.
//!
//! A socket usually takes all output at once. Nothing is published then.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ledger::{Buffer, Buffers};
use crate::net::Transport;
use crate::net::input::received::Reads;

/// A transport with measured buffers.
#[derive(Debug)]
pub(super) struct Metered<I> {
    io: I,
    buffers: Arc<Buffers>,
    reads: Reads,
    /// The bytes of output that were last published.
    waiting: usize,
}

// === impl Metered ===

impl<I> Metered<I> {
    pub(super) fn new(io: I, buffers: Arc<Buffers>, reads: Reads) -> Self {
        Self {
            io,
            buffers,
            reads,
            waiting: 0,
        }
    }

    fn publish(&mut self, waiting: usize) {
        if waiting != self.waiting {
            self.waiting = waiting;
            self.buffers.set(Buffer::Encrypted, waiting as u64);
        }
    }
}

impl<I: Transport> Metered<I> {
    /// Publishes the output that waits if the write is pending. After any other write, a flush
    /// follows.
    fn after_write<T>(&mut self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            let waiting = self.io.waiting();
            self.publish(waiting);
        }
        written
    }

    fn after_flush(&mut self, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if flushed.is_ready() {
            self.publish(0);
        }
        self.after_write(flushed)
    }
}

impl<I> Drop for Metered<I> {
    fn drop(&mut self) {
        self.publish(0);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Metered<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.reads.receive(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<I: Transport> AsyncWrite for Metered<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.after_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.after_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.after_flush(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(cx);
        self.after_flush(shut)
    }
}

impl<I: Transport> Transport for Metered<I> {
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
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::net::Protocol;
    use crate::net::input::received::Received;

    /// A transport that has buffered some bytes, with a socket that either takes them or does not.
    struct Buffering {
        waiting: usize,
        is_stalled: bool,
    }

    impl AsyncWrite for Buffering {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.waiting >= 1_000 {
                return Poll::Pending;
            }
            self.waiting += data.len();
            Poll::Ready(Ok(data.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.is_stalled {
                return Poll::Pending;
            }
            self.waiting = 0;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(cx)
        }
    }

    impl AsyncRead for Buffering {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Transport for Buffering {
        const GATHER_SIZE: usize = 123;

        fn buffer(&mut self, data: &[u8]) -> io::Result<usize> {
            self.waiting += data.len();
            Ok(data.len())
        }

        fn waiting(&mut self) -> usize {
            self.waiting
        }
    }

    #[test]
    fn what_waits_for_a_socket_that_takes_nothing_is_published() {
        assert_eq!(<Metered<Buffering> as Transport>::GATHER_SIZE, 123);
        let buffers = Arc::<Buffers>::default();
        let received = Received::new(Arc::clone(&buffers), Protocol::Http2);
        let io = Buffering {
            waiting: 0,
            is_stalled: false,
        };
        let mut io = Metered::new(io, Arc::clone(&buffers), received.reads(100));
        let mut cx = Context::from_waker(Waker::noop());
        let published = || buffers.get(Buffer::Encrypted);
        assert!(Pin::new(&mut io).poll_write(&mut cx, &[0; 300]).is_ready());
        assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
        assert_eq!(published(), 0);
        io.io.is_stalled = true;
        assert!(Pin::new(&mut io).poll_write(&mut cx, &[0; 300]).is_ready());
        assert!(Pin::new(&mut io).poll_flush(&mut cx).is_pending());
        assert_eq!(published(), 300);
        assert_eq!(io.buffer(&[0; 700]).ok(), Some(700));
        assert!(
            Pin::new(&mut io)
                .poll_write(&mut cx, &[0; 300])
                .is_pending()
        );
        assert_eq!(published(), 1_000);
        io.io.is_stalled = false;
        assert!(Pin::new(&mut io).poll_flush(&mut cx).is_ready());
        assert_eq!(published(), 0);
        io.io.is_stalled = true;
        assert!(Pin::new(&mut io).poll_write(&mut cx, &[0; 300]).is_ready());
        assert!(Pin::new(&mut io).poll_shutdown(&mut cx).is_pending());
        assert_eq!(published(), 300);
        drop(io);
        assert_eq!(published(), 0);
    }
}
