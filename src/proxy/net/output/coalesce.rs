//! Gathers the output of an HTTP/2 connection and sends it in one write.
//!
//! The `h2` crate flushes after every DATA frame, so an event for many streams would cost one
//! system call per stream. This module gathers frames while the connection is polled, and writes
//! them once afterwards. It is only for HTTP/2: after an upgrade of HTTP/1.1 nothing would flush
//! the frames.

use std::cell::Cell;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::ledger::{Buffer, Buffers};
use crate::net::Transport;

/// From this many bytes on, a write does not wait for more output, because that would take more
/// memory.
const FLUSH_THRESHOLD: usize = 64 << 10;

thread_local! {
    /// A buffer that connections of this thread take in turn, each for the duration of a write.
    static SPARE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The end that the HTTP/2 connection reads from and writes to.
pub(in crate::net) struct CoalescedIo<I>(Arc<Mutex<Inner<I>>>);

/// Writes to the socket what a [`CoalescedIo`] has gathered.
pub(in crate::net) struct Flusher<I>(Arc<Mutex<Inner<I>>>);

struct Inner<I> {
    io: I,
    buffers: Arc<Buffers>,
    /// Bytes of `gathered` that were last published in `buffers`.
    published: usize,
    gathered: Vec<u8>,
    /// The number of bytes of `gathered` that are already written.
    written: usize,
    /// The bytes that `io` has buffered since all output was last written.
    taken: usize,
    /// True if the write of the gathered bytes was put off.
    is_put_off: bool,
    /// False if `io` may hold bytes that it has not flushed.
    is_flushed: bool,
}

/// Returns both ends of `io`. `io` must not be used in any other way. The bytes that wait to be
/// written are published in `buffers`.
pub(in crate::net) fn coalesce<I>(io: I, buffers: Arc<Buffers>) -> (CoalescedIo<I>, Flusher<I>) {
    let inner = Arc::new(Mutex::new(Inner {
        io,
        buffers,
        published: 0,
        gathered: Vec::new(),
        written: 0,
        taken: 0,
        is_put_off: false,
        is_flushed: true,
    }));
    (CoalescedIo(Arc::clone(&inner)), Flusher(inner))
}

// === impl Flusher ===

impl<I: Transport> Flusher<I> {
    /// Writes what the connection has written since the last call. The connection's task must call
    /// this after each poll of the connection that was pending. An error makes the connection
    /// unusable.
    ///
    /// If the task is going to poll the connection again at once, because `more_follows`, a short
    /// write is put off to the next call. It is put off only once: the poll may add nothing.
    pub(in crate::net) fn poll_flush(
        &self,
        cx: &mut Context<'_>,
        more_follows: bool,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        let waiting = inner.gathered.len() + inner.taken;
        if more_follows && waiting > 0 && waiting < FLUSH_THRESHOLD && !inner.is_put_off {
            inner.is_put_off = true;
            return Poll::Pending;
        }
        let drained = inner.poll_drain(cx);
        inner.publish();
        drained
    }
}

// === impl Inner ===

impl<I: Transport> Inner<I> {
    fn gather(&mut self, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.is_full() && !self.pass_to_io()? {
            ready!(self.poll_make_room(cx))?;
        }
        if self.gathered.capacity() == 0 {
            self.gathered = SPARE_BUFFER.take();
            self.gathered.reserve_exact(I::GATHER_SIZE);
        }
        let mut taken = 0;
        for part in data {
            let mut rest = &part[..];
            while !rest.is_empty() {
                if self.is_full() && !self.pass_to_io()? {
                    return Poll::Ready(Ok(taken));
                }
                let room = I::GATHER_SIZE - self.gathered.len();
                let (fitting, later) = rest.split_at(rest.len().min(room));
                self.gathered.extend_from_slice(fitting);
                taken += fitting.len();
                rest = later;
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Publishes the memory of the gathered bytes. The memory is returned when all bytes were
    /// written, so there is usually nothing to publish.
    fn publish(&mut self) {
        let held = self.gathered.capacity();
        if held != self.published {
            self.published = held;
            self.buffers.set(Buffer::Gathered, held as u64);
        }
    }

    fn is_full(&self) -> bool {
        self.gathered.len() >= I::GATHER_SIZE
    }

    /// Passes gathered bytes to the buffer of `io`. Returns true if `io` has taken some.
    fn pass_to_io(&mut self) -> io::Result<bool> {
        let taken = self.io.buffer(&self.gathered[self.written..])?;
        if taken == 0 {
            return Ok(false);
        }
        self.gathered.drain(..self.written + taken);
        self.written = 0;
        self.taken += taken;
        self.is_flushed = false;
        Ok(true)
    }

    /// Writes gathered bytes; ready when at least some were written.
    fn poll_make_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.poll_write_buffer(cx);
        if let Poll::Ready(Err(error)) = written {
            return Poll::Ready(Err(error));
        }
        if self.written == 0 {
            return Poll::Pending;
        }
        self.gathered.drain(..self.written);
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_write_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let rest = &self.gathered[self.written..];
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.is_flushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all gathered bytes, flushes `io`, and returns the buffer to the thread.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_buffer(cx))?;
        if self.gathered.capacity() > 0 {
            self.written = 0;
            self.gathered.clear();
            SPARE_BUFFER.set(std::mem::take(&mut self.gathered));
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_flushed = true;
        }
        self.taken = 0;
        self.is_put_off = false;
        Poll::Ready(Ok(()))
    }
}

impl<I> Drop for Inner<I> {
    fn drop(&mut self) {
        self.buffers.set(Buffer::Gathered, 0);
    }
}

// === impl CoalescedIo ===

impl<I: Transport> AsyncWrite for CoalescedIo<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().gather(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().gather(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: [`Flusher`] flushes when the connection has been polled.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_drain(cx))?;
        Pin::new(&mut inner.io).poll_shutdown(cx)
    }
}

impl<I: Transport> AsyncRead for CoalescedIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests;
