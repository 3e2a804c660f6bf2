//! The DATA frames of long answers, which kubefan writes beside the HTTP library.
//!
//! An event for a watch then touches no state of the library: its frame is added to the gathered
//! output of the connection. The library writes the head of the answer before, and its end after.
//! [`FlowControl`](super::flow_control::FlowControl) keeps the frames within what the peer has
//! granted.

use std::fmt;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::coalesce::{CoalescedIo, Inner};
pub(in crate::net) use super::flow_control::StreamReset;
use crate::net::Transport;

/// Writes DATA frames of an HTTP/2 connection beside the HTTP library. Clones are cheap.
pub(in crate::net) struct DataFrames<I>(Arc<Mutex<Inner<I>>>);

/// The DATA frames of one stream. Dropping it gives the stream up: no more frames follow, but the
/// library's END_STREAM or RST_STREAM.
pub(in crate::net) struct StreamData<I> {
    inner: Arc<Mutex<Inner<I>>>,
    stream: u32,
    /// Where the stream was found the last time.
    place: usize,
}

// === impl DataFrames ===

impl<I: Transport> DataFrames<I> {
    /// Returns the DATA frames of the connection that reads from and writes to `io`.
    pub(in crate::net) fn new(io: &CoalescedIo<I>) -> Self {
        Self(Arc::clone(io.inner()))
    }

    /// Returns when the connection has last received something.
    pub(in crate::net) fn received_at(&self) -> Instant {
        self.0.lock().received_at()
    }

    /// Takes over the DATA frames of `stream`, before the library is given the head of its answer.
    /// `waker` is woken when a write that was pending may continue, and when the stream has ended.
    /// `None` if the stream has ended, if the library has sent a GOAWAY frame, or if the peer's
    /// window for the connection was never large enough to be shared (262,140 bytes): then the
    /// library must write the answer.
    ///
    /// No informational answer may be sent after this.
    pub(in crate::net) fn take_over(&self, stream: u32, waker: Waker) -> Option<StreamData<I>> {
        let is_taken = self.0.lock().flow().take_over(stream, waker);
        is_taken.then(|| StreamData {
            inner: Arc::clone(&self.0),
            stream,
            place: 0,
        })
    }
}

impl<I> Clone for DataFrames<I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I> fmt::Debug for DataFrames<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataFrames").finish_non_exhaustive()
    }
}

// === impl StreamData ===

impl<I: Transport> StreamData<I> {
    /// Pending while the connection's output has no room: the body should not be polled then. The
    /// stream's waker is woken when this has changed. A write may still wait for the windows.
    ///
    /// # Errors
    /// If the stream or the connection has ended. Nothing more can be written.
    pub(in crate::net) fn poll_ready(&mut self) -> Poll<Result<(), StreamReset>> {
        let mut inner = self.inner.lock();
        inner.poll_room(&mut self.place, self.stream)
    }

    /// Writes as much of `data` as fits, in frames of the peer's size, and leaves the rest in it.
    /// Pending while there is a rest. The stream's waker is woken when more of it fits.
    ///
    /// # Errors
    /// As for [`poll_ready`](Self::poll_ready). The rest of `data` is lost.
    pub(in crate::net) fn write(&mut self, data: &mut Bytes) -> Poll<Result<(), StreamReset>> {
        let mut inner = self.inner.lock();
        inner.write_data(&mut self.place, self.stream, data)
    }
}

impl<I> Drop for StreamData<I> {
    fn drop(&mut self) {
        let waker = self.inner.lock().flow().give_up(self.stream);
        // Without the lock, as for any waker.
        drop(waker);
    }
}

impl<I> fmt::Debug for StreamData<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("StreamData");
        fields.field("stream", &self.stream).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
