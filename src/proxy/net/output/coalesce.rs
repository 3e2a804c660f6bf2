//! Gathers the output of an HTTP/2 connection and sends it in one write.
//!
//! The `h2` crate flushes after every DATA frame, so an event for many streams would cost one
//! system call per stream. This module gathers frames while the connection is polled, and writes
//! them once afterwards. It is only for HTTP/2: after an upgrade of HTTP/1.1 nothing would flush
//! the frames.
//!
//! Some DATA frames are not the crate's: see [`DataFrames`](super::data_frames::DataFrames).

use std::cell::Cell;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::filtered_reads::FilteredReads;
use super::flow_control::{FlowControl, StreamReset};
use crate::ledger::{Buffer, Buffers};
use crate::net::Transport;

/// From this many bytes on, a write does not wait for more output, because that would take more
/// memory.
const FLUSH_THRESHOLD: usize = 64 << 10;
/// Data is not cut into frames that are shorter than this many bytes because the output is full.
pub(super) const SHORTEST_PART: usize = 256;

thread_local! {
    /// A buffer that connections of this thread take in turn, each for the duration of a write.
    static SPARE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The end that the HTTP/2 connection reads from and writes to.
pub(in crate::net) struct CoalescedIo<I>(Arc<Mutex<Inner<I>>>);

/// Writes to the socket what a [`CoalescedIo`] has gathered.
pub(in crate::net) struct Flusher<I>(Arc<Mutex<Inner<I>>>);

/// The socket, its gathered output, and the flow control of the connection.
pub(super) struct Inner<I> {
    /// `None` after the end of the connection: streams may keep this value for some time.
    io: Option<I>,
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
    /// True if the last write waits for the peer.
    is_blocked: bool,
    /// The error of a write that had no caller to return it to.
    failure: Option<io::Error>,
    reads: FilteredReads,
    /// When something was last received.
    received_at: Instant,
    flow: FlowControl,
}

/// Returns both ends of `io`. `io` must not be used in any other way. The bytes that wait to be
/// written are published in `buffers`.
pub(in crate::net) fn coalesce<I>(io: I, buffers: Arc<Buffers>) -> (CoalescedIo<I>, Flusher<I>) {
    let inner = Arc::new(Mutex::new(Inner {
        io: Some(io),
        buffers,
        published: 0,
        gathered: Vec::new(),
        written: 0,
        taken: 0,
        is_put_off: false,
        is_flushed: true,
        is_blocked: false,
        failure: None,
        reads: FilteredReads::default(),
        received_at: Instant::now(),
        flow: FlowControl::default(),
    }));
    (CoalescedIo(Arc::clone(&inner)), Flusher(inner))
}

/// Calls `change`, and then wakes the streams that can go on. The lock is free by then, because a
/// waker may drop streams.
fn update<I, T>(shared: &Mutex<Inner<I>>, change: impl FnOnce(&mut Inner<I>) -> T) -> T {
    let mut inner = shared.lock();
    let result = change(&mut inner);
    let woken = inner.flow.take_woken();
    drop(inner);
    woken.into_iter().for_each(Waker::wake);
    result
}

/// Returns the socket of a connection that has not ended.
fn open<I>(io: &mut Option<I>) -> io::Result<&mut I> {
    io.as_mut()
        .ok_or_else(|| io::ErrorKind::NotConnected.into())
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
        update(&self.0, |inner| inner.poll_flush(cx, more_follows))
    }
}

// === impl Inner ===

impl<I> Inner<I> {
    pub(super) fn flow(&mut self) -> &mut FlowControl {
        &mut self.flow
    }

    pub(super) fn received_at(&self) -> Instant {
        self.received_at
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
}

impl<I: Transport> Inner<I> {
    /// Gathers what the HTTP library writes.
    fn gather(&mut self, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let was_due = self.flow.is_refill_due();
        let gathered = self.poll_gather(cx, data);
        if !was_due && self.flow.is_refill_due() {
            // The library must read the frame that refills what it may send. Its task runs now, so
            // this only makes it run again.
            cx.waker().wake_by_ref();
        }
        gathered
    }

    fn poll_gather(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_full() && !self.pass_to_io()? {
            ready!(self.poll_make_room(cx))?;
        }
        self.take_buffer();
        let mut taken = 0;
        for part in data {
            let mut rest = &part[..];
            while !rest.is_empty() {
                if self.is_full() && !self.pass_to_io()? {
                    return Poll::Ready(Ok(taken));
                }
                let (fitting, later) = rest.split_at(rest.len().min(self.room()));
                self.gathered.extend_from_slice(fitting);
                self.flow.write(fitting);
                taken += fitting.len();
                rest = later;
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Gathers DATA frames of `stream` with as much of `data` as fits, and leaves the rest. Pending
    /// while there is a rest. `place` is as for [`FlowControl::room`].
    pub(super) fn write_data(
        &mut self,
        place: &mut usize,
        stream: u32,
        data: &mut Bytes,
    ) -> Poll<Result<(), StreamReset>> {
        while data.has_remaining() {
            let length = ready!(self.poll_fitting(place, stream, data.len()))?;
            let head = self.flow.begin_frame(place, stream, length);
            self.take_buffer();
            self.gathered.extend_from_slice(&head);
            self.gathered.extend_from_slice(&data[..length]);
            data.advance(length);
        }
        Poll::Ready(Ok(()))
    }

    /// Pending while the output has no room for a DATA frame of `stream`, whatever its window has.
    pub(super) fn poll_room(
        &mut self,
        place: &mut usize,
        stream: u32,
    ) -> Poll<Result<(), StreamReset>> {
        self.flow.check_open(place, stream)?;
        if self.fitting(SHORTEST_PART) == 0 {
            self.flow.wait(place, stream);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns how many of `wanted` bytes fit into a DATA frame of `stream` now, at least one.
    fn poll_fitting(
        &mut self,
        place: &mut usize,
        stream: u32,
        wanted: usize,
    ) -> Poll<Result<usize, StreamReset>> {
        let allowed = self.flow.room(place, stream)?.min(wanted);
        if allowed == 0 {
            return Poll::Pending;
        }
        let fitting = self.fitting(allowed);
        if fitting == 0 {
            self.flow.wait(place, stream);
            return Poll::Pending;
        }
        Poll::Ready(Ok(fitting))
    }

    /// Returns how many of `wanted` bytes fit into a frame; 0 if the output is full, or the socket
    /// took nothing.
    fn fitting(&mut self, wanted: usize) -> usize {
        if self.is_blocked {
            return 0;
        }
        if self.room() < FlowControl::HEAD_BYTES + wanted
            && !self.gathered.is_empty()
            && let Err(error) = self.pass_to_io()
        {
            // The next flush returns the error.
            self.failure = Some(error);
        }
        let fitting = self.room().saturating_sub(FlowControl::HEAD_BYTES);
        let is_short = fitting < SHORTEST_PART.min(wanted);
        if is_short && !self.gathered.is_empty() {
            return 0;
        }
        fitting.min(wanted)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, more_follows: bool) -> Poll<io::Result<()>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Err(failure));
        }
        let waiting = self.gathered.len() + self.taken;
        if more_follows && waiting > 0 && waiting < FLUSH_THRESHOLD && !self.is_put_off {
            self.is_put_off = true;
            return Poll::Pending;
        }
        let drained = self.poll_drain(cx);
        self.is_blocked = drained.is_pending();
        if !self.is_blocked {
            self.flow.wake_waiting();
        }
        self.publish();
        drained
    }

    /// Takes the buffer of the thread if nothing is gathered.
    fn take_buffer(&mut self) {
        if self.gathered.capacity() == 0 {
            self.gathered = SPARE_BUFFER.take();
            self.gathered.reserve_exact(I::GATHER_SIZE);
        }
    }

    fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Returns how many bytes can be gathered.
    fn room(&self) -> usize {
        I::GATHER_SIZE - self.gathered.len()
    }

    /// Passes gathered bytes to the buffer of `io`. Returns true if `io` has taken some.
    fn pass_to_io(&mut self) -> io::Result<bool> {
        let taken = open(&mut self.io)?.buffer(&self.gathered[self.written..])?;
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
            let io = Pin::new(open(&mut self.io)?);
            let written = ready!(io.poll_write(cx, rest))?;
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
            ready!(Pin::new(open(&mut self.io)?).poll_flush(cx))?;
            self.is_flushed = true;
        }
        self.taken = 0;
        self.is_put_off = false;
        Poll::Ready(Ok(()))
    }
}

// === impl CoalescedIo ===

impl<I> CoalescedIo<I> {
    /// Returns what the DATA frames of kubefan are written to.
    pub(super) fn inner(&self) -> &Arc<Mutex<Inner<I>>> {
        &self.0
    }
}

impl<I> Drop for CoalescedIo<I> {
    /// Ends the streams, because nothing would end them later, and closes the socket.
    fn drop(&mut self) {
        let held = update(&self.0, |inner| {
            inner.flow.end();
            let gathered = std::mem::take(&mut inner.gathered);
            inner.publish();
            (inner.io.take(), gathered)
        });
        // Without the lock, because this may take time.
        drop(held);
    }
}

impl<I: Transport> AsyncWrite for CoalescedIo<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        update(&self.0, |inner| inner.gather(cx, &[IoSlice::new(data)]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        update(&self.0, |inner| inner.gather(cx, data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: [`Flusher`] flushes when the connection has been polled.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        update(&self.0, |inner| {
            inner.flow.end();
            ready!(inner.poll_drain(cx))?;
            Pin::new(open(&mut inner.io)?).poll_shutdown(cx)
        })
    }
}

impl<I: Transport> AsyncRead for CoalescedIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        update(&self.0, |inner| {
            let (io, flow) = (open(&mut inner.io)?, &mut inner.flow);
            ready!(inner.reads.poll_read(cx, io, flow, buffer))?;
            inner.received_at = Instant::now();
            Poll::Ready(Ok(()))
        })
    }
}

#[cfg(test)]
mod tests;
