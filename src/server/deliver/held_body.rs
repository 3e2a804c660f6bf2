//! HeldBody: a body that waits for its reader, and that the ledger may drop without polling it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body::Frame;
use http_body::SizeHint;
use tokio::time::Instant;

use crate::body::Body;
use crate::body::BoxError;
use crate::concurrency::Revocable;
use crate::ledger::Account;
use crate::ledger::Charge;
use crate::ledger::Held;
use crate::ledger::Hold;
use crate::ledger::MinimumRate;
use crate::ledger::Pace;
use crate::ledger::SnapshotAge;

use super::chunk_size;
use super::chunk_size::ChunkSize;

/// Number of chunks that the HTTP library may hold: one that it took before it had room, and those
/// in the stream's send buffer, which holds at most a chunk more than its limit.
const CHUNKS_TAKEN: u64 = 2;

/// How long a reader takes nothing until the API server is assumed to have sent all that it may.
const STALL: Duration = Duration::from_secs(1);

/// A body whose chunks start small and grow, and are charged to the connection of its reader.
///
/// If the ledger drops the rest of the body, the reader gets an error: over HTTP/2 its stream is
/// reset, over HTTP/1.1 the connection ends before the end of the body.
pub(crate) struct HeldBody {
    waiting: Revocable<Waiting>,
    charge: Charge,
    has_failed: bool,
    _hold: Hold,
}

/// What waits for the reader.
struct Waiting {
    body: Body,
    /// The rest of a frame that was longer than a chunk.
    rest: Bytes,
    size: ChunkSize,
    /// Size of the chunks that are charged.
    granted: usize,
    pace: Pace,
    /// The reader's task, if it waits for the body.
    task: Option<Waker>,
    /// Bytes that the producer may have sent while the reader takes nothing.
    window: u64,
}

/// The error of a body that the ledger has dropped.
#[derive(Debug, thiserror::Error)]
#[error("the client reads too slowly, or memory is short")]
struct Dropped;

impl HeldBody {
    /// The bytes that must be charged before the body is made.
    pub(crate) const FIRST_CHARGE: u64 = CHUNKS_TAKEN * chunk_size::FIRST as u64;
    /// Length of the longest body that need not be held: the HTTP library takes it at once.
    pub(crate) const MAX_TAKEN_AT_ONCE: u64 = chunk_size::FIRST as u64;

    /// Holds `body` for a reader on the connection of `account`. `charge` has at least
    /// [`HeldBody::FIRST_CHARGE`] bytes; `snapshot` is the one that the body keeps alive. `window`
    /// is the number of bytes that the API server may have sent while the reader takes nothing; 0
    /// if the answer is from a cache.
    pub(crate) fn new(
        body: Body,
        account: &Arc<Account>,
        charge: Charge,
        snapshot: Option<SnapshotAge>,
        window: u64,
    ) -> Self {
        let waiting = Revocable::new(Waiting {
            body,
            rest: Bytes::new(),
            size: ChunkSize::default(),
            granted: chunk_size::FIRST,
            pace: Pace::default(),
            task: None,
            window,
        });
        Self {
            _hold: account.hold(waiting.clone(), snapshot),
            waiting,
            charge,
            has_failed: false,
        }
    }
}

impl Waiting {
    fn poll_chunk(
        &mut self,
        charge: &mut Charge,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.pace.take(Instant::now());
        let frame = if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Pending => {
                    self.task = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                end => return end,
            }
        } else {
            Frame::data(std::mem::take(&mut self.rest))
        };
        let frame = frame.map_data(|data| self.chunk_of(data, charge));
        let length = frame.data_ref().map_or(0, Bytes::len);
        self.pace.offer(length as u64, Instant::now());
        Poll::Ready(Some(Ok(frame)))
    }

    /// The first chunk of `data`; the rest waits.
    fn chunk_of(&mut self, mut data: Bytes, charge: &mut Charge) -> Bytes {
        let wanted = self.size.next().min(data.len());
        if wanted > self.granted {
            let more = CHUNKS_TAKEN * (wanted - self.granted) as u64;
            if charge.resize(charge.bytes() + more).is_ok() {
                self.granted = wanted;
            }
        }
        if data.len() > self.granted {
            // A slice would keep the whole allocation, which the ledger could not drop.
            self.rest = data.split_off(self.granted);
            data = Bytes::copy_from_slice(&data);
        }
        self.size.record(data.len());
        data
    }
}

impl Held for Revocable<Waiting> {
    fn revoke(&self) {
        let task = self.with(|waiting| waiting.task.take()).flatten();
        Revocable::revoke(self);
        // A body that was pending can no longer wake its reader.
        if let Some(task) = task {
            task.wake();
        }
    }

    fn is_too_slow(&self, now: Instant, rate: MinimumRate) -> bool {
        // If the body is in use, the reader is just taking from it.
        self.try_with(|waiting| waiting.pace.is_below(rate, now))
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

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.has_failed {
            return Poll::Ready(None);
        }
        let charge = &mut this.charge;
        let polled = this.waiting.with(|waiting| waiting.poll_chunk(charge, cx));
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
