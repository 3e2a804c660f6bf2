//! The connection that the HTTP library reads from and writes to: without the DATA frames that go
//! to sinks, and with the flow control for them.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::frames::SentFrames;
use super::received_frames::ReceivedFrames;
use super::streams::Streams;

/// The bytes that one read takes at most.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    /// The buffer that the connections of a thread use in turn, each for the duration of a read.
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A connection whose DATA frames for sinks the library does not see.
pub(super) struct FilteredIo<I> {
    io: I,
    streams: Arc<Mutex<Streams>>,
    received: ReceivedFrames,
    sent: SentFrames,
    /// What is left to send of the WINDOW_UPDATE frames that the library did not make.
    updates: BytesMut,
    /// How reading has ended, until the library knows it.
    end: Option<io::Result<()>>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> FilteredIo<I> {
    /// Filters what is received over `io`, over which nothing was sent or received yet.
    pub(super) fn new(io: I, streams: Arc<Mutex<Streams>>) -> Self {
        Self {
            io,
            streams,
            received: ReceivedFrames::default(),
            sent: SentFrames::new(),
            updates: BytesMut::new(),
            end: None,
        }
    }

    /// Reads once, and gives each frame to its receiver. Returns the number of bytes; 0 at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
            let bytes = buffer.filled();
            let mut streams = self.streams.lock();
            self.received.receive(bytes, &mut streams, Instant::now());
            Poll::Ready(Ok(bytes.len()))
        })
    }

    /// Sends the frames that were not made by the library, unless the library has sent only a part
    /// of a frame.
    fn poll_send_updates(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.sent.is_between_frames() {
            return Poll::Ready(Ok(()));
        }
        while !self.updates.is_empty() {
            let sent = ready!(Pin::new(&mut self.io).poll_write(cx, &self.updates))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.updates.advance(sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for FilteredIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            {
                let mut streams = this.streams.lock();
                // The library flushes before it waits for more input. That sends them.
                streams.take_updates(&mut this.updates);
                if streams.read_passed(buffer, cx.waker()) {
                    return Poll::Ready(Ok(()));
                }
            }
            if let Some(end) = this.end.take() {
                return Poll::Ready(end);
            }
            let received = ready!(this.poll_receive(cx));
            if !matches!(received, Ok(1..)) {
                this.streams.lock().end_all();
                // The library first reads the frames that were received before the end.
                this.end = Some(received.map(drop));
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FilteredIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send_updates(cx))?;
        let sent = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.sent.advance(&bytes[..sent]);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_updates(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
