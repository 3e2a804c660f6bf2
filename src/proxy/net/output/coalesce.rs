//! Gathers the output of an HTTP/2 connection and sends it in one write.
//!
//! The `h2` crate flushes after every DATA frame, so an event for many streams would cost one
//! system call per stream. This module gathers frames while the connection is polled, and writes
//! them once afterwards. It is only for HTTP/2: after an upgrade of HTTP/1.1 nothing would flush
//! the frames.
//!
//! Some DATA frames are not the crate's: see [`DataFrames`](super::data_frames::DataFrames).

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
use super::gathered::{Gathered, SHORT_REST, socket};
use crate::ledger::Buffers;
use crate::net::Transport;

/// From this many bytes on, a write does not wait for more output. While it waits, the connection
/// would keep the thread's buffer, and that memory costs more than a second write.
const LONG_WRITE: usize = SHORT_REST;
/// Data is not cut into frames that are shorter than this many bytes because the output is full.
pub(super) const SHORTEST_PART: usize = 256;

/// The end that the HTTP/2 connection reads from and writes to.
pub(in crate::net) struct CoalescedIo<I>(Arc<Mutex<Inner<I>>>);

/// Writes to the socket what a [`CoalescedIo`] has gathered.
pub(in crate::net) struct Flusher<I>(Arc<Mutex<Inner<I>>>);

/// The socket, its gathered output, and the flow control of the connection.
pub(super) struct Inner<I> {
    /// `None` after the end of the connection: streams may keep this value for some time.
    io: Option<I>,
    gathered: Gathered,
    /// True if the write of the gathered bytes was put off.
    is_put_off: bool,
    /// True if the last write waits for the peer.
    is_blocked: bool,
    /// The error of a write that had no caller to return it to.
    failure: Option<io::Error>,
    reads: FilteredReads,
    flow: FlowControl,
}

/// Returns both ends of `io`. `io` must not be used in any other way. The bytes that wait to be
/// written are published in `buffers`.
pub(in crate::net) fn coalesce<I>(io: I, buffers: Arc<Buffers>) -> (CoalescedIo<I>, Flusher<I>) {
    let inner = Arc::new(Mutex::new(Inner {
        io: Some(io),
        gathered: Gathered::new(buffers),
        is_put_off: false,
        is_blocked: false,
        failure: None,
        reads: FilteredReads::new(Instant::now()),
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
        self.reads.received_at()
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
        if self.gathered.is_full::<I>() && !self.gathered.pass_to_io(&mut self.io)? {
            ready!(self.gathered.poll_make_room(cx, &mut self.io))?;
        }
        self.gathered.take_buffer::<I>();
        let mut taken = 0;
        for part in data {
            let mut rest = &part[..];
            while !rest.is_empty() {
                if self.gathered.is_full::<I>() && !self.gathered.pass_to_io(&mut self.io)? {
                    return Poll::Ready(Ok(taken));
                }
                let room = self.gathered.room::<I>();
                let (fitting, later) = rest.split_at(rest.len().min(room));
                self.gathered.add(fitting);
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
            self.gathered.take_buffer::<I>();
            self.gathered.add(&head);
            self.gathered.add(&data[..length]);
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
        if self.gathered.room::<I>() < FlowControl::HEAD_BYTES + wanted
            && !self.gathered.is_empty()
            && let Err(error) = self.gathered.pass_to_io(&mut self.io)
        {
            // The next flush returns the error.
            self.failure = Some(error);
        }
        let room = self.gathered.room::<I>();
        let fitting = room.saturating_sub(FlowControl::HEAD_BYTES);
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
        let waiting = self.gathered.waiting();
        if more_follows && waiting > 0 && waiting < LONG_WRITE && !self.is_put_off {
            self.is_put_off = true;
            self.gathered.shrink();
            return Poll::Pending;
        }
        let drained = self.poll_drain(cx);
        self.is_blocked = drained.is_pending();
        if self.is_blocked {
            self.gathered.shrink();
        } else {
            self.flow.wake_waiting();
        }
        self.gathered.publish();
        drained
    }

    /// Writes all gathered bytes, and flushes `io`.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.gathered.poll_drain(cx, &mut self.io))?;
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
            (inner.io.take(), inner.gathered.remove())
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
            Pin::new(socket(&mut inner.io)?).poll_shutdown(cx)
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
            let (io, flow) = (socket(&mut inner.io)?, &mut inner.flow);
            inner.reads.poll_read(cx, io, flow, buffer)
        })
    }
}

#[cfg(test)]
mod tests;
