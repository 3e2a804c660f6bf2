//! RevocableBody: a body that waits for its reader, and that the ledger may drop without polling
//! it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body as _, Frame, SizeHint};
use kubefan_core::body::{Body, BoxError};
use kubefan_core::concurrency::Revocable;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::chunk_size::ChunkSize;
use super::{PolledFrame, chunk_size};
use crate::ledger::{Account, Charge, MinimumRate, Pace, Registration, Revoke, SnapshotAge};
use crate::net::Abort;
use crate::server::answers::ending::Ending;
use crate::server::answers::record::End;

/// After a reader has taken nothing for this time, the API server is assumed to have sent all that
/// it may send.
const STALL: Duration = Duration::from_secs(1);

/// A body in chunks that start small and grow. They are charged to the connection of the reader
/// until the HTTP library has sent or dropped them.
///
/// If the ledger drops the rest of the body, the reader gets an error: over HTTP/2 its stream is
/// reset, over HTTP/1.1 the connection ends before the end of the body.
pub(crate) struct RevocableBody {
    waiting: Revocable<Waiting>,
    charges: Arc<Charges>,
    has_failed: bool,
    _registration: Registration,
}

/// The reader of a [`RevocableBody`], with the charges and limits for it.
pub(crate) struct BodyReader<'a> {
    /// The account of the reader's connection.
    pub account: &'a Arc<Account>,
    /// The charge for the stream, independent of its body.
    pub stream: Charge,
    /// The charge for chunks, of at least [`RevocableBody::FIRST_CHARGE`] bytes.
    pub chunks: Charge,
    /// The snapshot that the body keeps alive.
    pub snapshot: Option<SnapshotAge>,
    /// The number of bytes that the API server may have sent while the reader takes nothing; 0 if
    /// the answer is from a cache.
    pub window: u64,
    /// False if the reader may be arbitrarily slow.
    pub has_minimum_rate: bool,
    /// Ends the answer if the HTTP library does not poll the body; `None` if nothing can.
    pub abort: Option<Abort>,
    /// Notes that the reader was too slow; `None` if nothing wants to know that.
    pub(in crate::server) ending: Option<Arc<Ending>>,
}

/// The rest of a body, and the state of its reader.
struct Waiting {
    body: Body,
    /// The rest of a frame that was longer than a chunk, or had no room.
    rest: Bytes,
    size: ChunkSize,
    pace: Pace,
    has_minimum_rate: bool,
    /// The reader's task, if it waits for the body.
    task: Option<Waker>,
    /// Bytes that the producer may have sent while the reader takes nothing.
    window: u64,
    abort: Option<Abort>,
    ending: Option<Arc<Ending>>,
}

/// The charges of a body and its chunks. The HTTP library may hold chunks after it has dropped the
/// body, so the chunks own the charges too.
struct Charges {
    _stream: Charge,
    /// Not less than the bytes of the chunks that the HTTP library holds.
    chunks: Mutex<Charge>,
    /// Bytes of these chunks.
    taken: AtomicUsize,
    /// The reader's task, if it waits for the HTTP library to send a chunk.
    task: AtomicWaker,
}

/// A chunk that the HTTP library has taken.
struct Taken {
    bytes: Bytes,
    charges: Arc<Charges>,
}

/// The error of a body that the ledger has dropped.
#[derive(Debug, thiserror::Error)]
#[error("the client reads too slowly, or memory is short")]
struct Dropped;

impl RevocableBody {
    /// The bytes that must be charged before the body is made: a chunk that the HTTP library sends,
    /// and one that it has taken already.
    pub(crate) const FIRST_CHARGE: u64 = 2 * chunk_size::FIRST as u64;

    /// Holds `body` for its reader.
    pub(crate) fn new(body: Body, reader: BodyReader<'_>) -> Self {
        let mut pace = Pace::default();
        // A reader that never takes the body is as slow as one that takes nothing of it.
        pace.offer(0, Instant::now());
        let waiting = Revocable::new(Waiting {
            body,
            rest: Bytes::new(),
            size: ChunkSize::default(),
            pace,
            has_minimum_rate: reader.has_minimum_rate,
            task: None,
            window: reader.window,
            abort: reader.abort,
            ending: reader.ending,
        });
        let charges = Charges {
            _stream: reader.stream,
            chunks: Mutex::new(reader.chunks),
            taken: AtomicUsize::new(0),
            task: AtomicWaker::new(),
        };
        Self {
            _registration: reader.account.register(waiting.clone(), reader.snapshot),
            waiting,
            charges: Arc::new(charges),
            has_failed: false,
        }
    }
}

impl Waiting {
    fn poll_chunk(&mut self, charges: &Arc<Charges>, cx: &mut Context<'_>) -> PolledFrame {
        if self.rest.is_empty() {
            self.pace.take(Instant::now());
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Pending => {
                    self.task = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                end => return end,
            }
        }
        let wanted = self.size.next().min(self.rest.len());
        let Poll::Ready(length) = charges.poll_take(wanted, cx) else {
            self.task = Some(cx.waker().clone());
            if self.pace.waiting(Instant::now()).is_none() {
                self.pace.offer(0, Instant::now());
            }
            return Poll::Pending;
        };
        self.pace.take(Instant::now());
        let bytes = match length < self.rest.len() {
            // A slice would hold the complete allocation, and the ledger could not drop that.
            true => Bytes::copy_from_slice(&self.rest.split_to(length)),
            false => std::mem::take(&mut self.rest),
        };
        self.size.record(length);
        self.pace.offer(length as u64, Instant::now());
        let charges = Arc::clone(charges);
        let chunk = Bytes::from_owner(Taken { bytes, charges });
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }
}

impl Charges {
    /// Takes room for a chunk of `wanted` bytes, or for a smaller chunk if memory is short. If
    /// there is not even room for a small one, the poll is pending until the HTTP library has sent
    /// other chunks.
    fn poll_take(&self, wanted: usize, cx: &Context<'_>) -> Poll<usize> {
        let least = wanted.min(chunk_size::FIRST);
        let mut length = self.grow(wanted);
        if length < least {
            self.task.register(cx.waker());
            // A chunk may have been sent before the task was registered.
            length = self.grow(wanted);
        }
        if length < least {
            return Poll::Pending;
        }
        self.taken.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(length)
    }

    /// Returns the room for a chunk of up to `wanted` bytes. Charges more bytes if necessary.
    fn grow(&self, wanted: usize) -> usize {
        let taken = self.taken.load(Ordering::Acquire);
        let mut charge = self.chunks.lock();
        let needed = (taken + wanted) as u64;
        if needed > charge.bytes() && charge.resize(needed).is_ok() {
            return wanted;
        }
        let charged = usize::try_from(charge.bytes()).unwrap_or(usize::MAX);
        charged.saturating_sub(taken).min(wanted)
    }
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let length = self.bytes.len();
        self.charges.taken.fetch_sub(length, Ordering::Release);
        self.charges.task.wake();
    }
}

impl Revoke for Revocable<Waiting> {
    fn revoke(&self) {
        // The task is taken together with the body. A reader that polls between the two steps would
        // wait for a body that is gone.
        let Some(mut waiting) = self.take() else {
            return;
        };
        let (task, abort) = (waiting.task.take(), waiting.abort.take());
        // The body is dropped first, so that the request's seat is free before its reader is woken.
        drop(waiting);
        // The reader waits for the body, or the HTTP library for the client.
        if let Some(task) = task {
            task.wake();
        }
        if let Some(abort) = abort {
            abort.abort();
        }
    }

    fn revoke_slow(&self) {
        let ending = self.with(|waiting| waiting.ending.clone()).flatten();
        if let Some(ending) = ending {
            ending.note(End::TooSlow);
        }
        Revoke::revoke(self);
    }

    fn is_too_slow(&self, now: Instant, rate: MinimumRate) -> bool {
        // If the body is in use, the reader is just taking from it.
        self.try_with(|waiting| waiting.has_minimum_rate && waiting.pace.is_below(rate, now))
            .unwrap_or(false)
    }

    fn is_paced(&self) -> bool {
        self.try_with(|waiting| waiting.has_minimum_rate && waiting.pace.is_waiting())
            .unwrap_or(false)
    }

    fn unread(&self, now: Instant) -> u64 {
        let stalled = self.try_with(|waiting| {
            let stall = waiting.pace.waiting(now)?;
            (stall >= STALL).then_some(waiting.window)
        });
        stalled.flatten().unwrap_or(0)
    }
}

impl Drop for RevocableBody {
    fn drop(&mut self) {
        // A sweep may have found the body before. It must not end an answer that is complete: over
        // HTTP/1.1 that would end the next answer.
        drop(self.waiting.take());
    }
}

impl http_body::Body for RevocableBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        if this.has_failed {
            return Poll::Ready(None);
        }
        let charges = &this.charges;
        let polled = this.waiting.with(|waiting| waiting.poll_chunk(charges, cx));
        polled.unwrap_or_else(|| {
            this.has_failed = true;
            Poll::Ready(Some(Err(Dropped.into())))
        })
    }

    fn is_end_stream(&self) -> bool {
        let is_at_end =
            |waiting: &mut Waiting| waiting.rest.is_empty() && waiting.body.is_end_stream();
        self.has_failed || self.waiting.with(is_at_end).unwrap_or(false)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.waiting.with(|waiting| {
            let rest = waiting.rest.len() as u64;
            let body = waiting.body.size_hint();
            let mut hint = SizeHint::new();
            hint.set_lower(body.lower() + rest);
            if let Some(upper) = body.upper() {
                hint.set_upper(upper + rest);
            }
            hint
        });
        hint.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
