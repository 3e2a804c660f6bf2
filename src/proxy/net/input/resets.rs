//! Counts how fast an HTTP/2 peer causes work without an answer: it resets streams before the
//! bodies of their answers are first polled, or sends control frames.
//!
//! Such a stream does not count in the limit of concurrent streams any more, but its request was
//! parsed and started. So a peer that repeatedly opens and resets streams ("rapid reset",
//! CVE-2023-44487) could cause any amount of work. `h2` limits only resets of streams that the
//! server has not accepted yet, and a connection accepts streams at once.
//!
//! A PING or SETTINGS frame needs an answer, and counts like a reset. A WINDOW_UPDATE frame needs
//! no answer, and a peer that receives much data sends many of them. So it counts as a tenth of a
//! reset, and for each KiB that was sent to the peer, one WINDOW_UPDATE does not count at all. The
//! frame that resets a stream counts only as a part of a request, so that one poll of the
//! connection does not read too many of them.
//!
//! It also counts the requests that one poll of the connection starts, for `paced_reads`.
//!
//! The socket of a peer that is too fast is read later. The connection is not closed, because the
//! peer could connect again and would at once get a new budget.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kubefan_core::concurrency::TokenBucket;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::received_frames::ControlFrames;

/// The cost of a WINDOW_UPDATE, in resets.
const UPDATE_COST: f64 = 0.1;
/// The number of bytes sent to the peer for which it may send one WINDOW_UPDATE without cost.
const BYTES_PER_UPDATE: usize = 1024;

/// The number of requests after which one poll of a connection does not read any more. One read may
/// bring more requests.
pub(super) const MAX_STARTS: usize = 32;
/// The number of control frames that take about as long as one request.
pub(super) const CONTROLS_PER_START: u32 = 16;

/// Limits the resets of a connection's unanswered streams, its control frames, and the requests
/// that one poll of the connection starts.
#[derive(Debug)]
pub(in crate::net) struct PeerLimit {
    /// The number of requests that the connection has started in the current poll. A control frame
    /// counts as a part of a request.
    starts: AtomicUsize,
    /// How many resets are allowed now. It has a debt after too many resets.
    budget: Mutex<TokenBucket>,
    /// False if the budget need not be checked.
    is_exceeded: AtomicBool,
    /// Bytes that were sent to the peer, minus those that its WINDOW_UPDATE frames have used up.
    sent: AtomicUsize,
}

/// A request without an answer. If this value is dropped, the peer has reset the stream. Without a
/// limit, the reset is not counted.
#[derive(Debug)]
pub(in crate::net) struct Unanswered(pub(in crate::net) Option<Arc<PeerLimit>>);

// === impl PeerLimit ===

impl PeerLimit {
    /// Allows `burst` resets at once, and `per_second` resets on average.
    pub(in crate::net) fn new(burst: NonZeroU32, per_second: NonZeroU32) -> PeerLimit {
        let interval = Duration::from_secs(1) / per_second.get();
        PeerLimit {
            starts: AtomicUsize::new(0),
            budget: Mutex::new(TokenBucket::new(interval, burst.get())),
            is_exceeded: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
        }
    }

    /// Returns how long the socket must not be read; `None` if it may be read now.
    pub(in crate::net) fn pause(&self) -> Option<Duration> {
        if !self.is_exceeded.load(Ordering::Relaxed) {
            return None;
        }
        let budget = self.budget.lock();
        let pause = budget.debt(Instant::now());
        self.is_exceeded.store(!pause.is_zero(), Ordering::Relaxed);
        (!pause.is_zero()).then_some(pause)
    }

    /// Counts a request that was started.
    pub(in crate::net) fn record_start(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets the requests that were started, because a poll of the connection has ended.
    pub(in crate::net) fn end_poll(&self) {
        self.starts.store(0, Ordering::Relaxed);
    }

    /// Returns true if the current poll has started enough requests.
    pub(super) fn has_many_starts(&self) -> bool {
        self.starts.load(Ordering::Relaxed) >= MAX_STARTS
    }

    /// Counts control frames that the peer has sent.
    pub(super) fn record_control(&self, control: ControlFrames) {
        let all = control.updates + control.resets + control.others;
        let starts = all / CONTROLS_PER_START;
        self.starts.fetch_add(starts as usize, Ordering::Relaxed);
        let due = control.updates as usize * BYTES_PER_UPDATE;
        let (sent, rest) = (&self.sent, |sent: usize| Some(sent.saturating_sub(due)));
        let before = sent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        // The rest of the bytes counts for later WINDOW_UPDATE frames.
        let unpaid = due.saturating_sub(before.unwrap_or_default()) / BYTES_PER_UPDATE;
        self.spend(f64::from(control.others) + unpaid as f64 * UPDATE_COST);
    }

    /// Notes that `bytes` were sent to the peer.
    pub(in crate::net) fn record_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    fn spend(&self, cost: f64) {
        let (mut budget, now) = (self.budget.lock(), Instant::now());
        budget.take_many(cost, now);
        if !budget.debt(now).is_zero() {
            self.is_exceeded.store(true, Ordering::Relaxed);
        }
    }
}

// === impl Unanswered ===

impl Unanswered {
    /// Notes that the peer takes a part of the request's answer.
    pub(in crate::net) fn answer(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(limit) = self.0.take() {
            limit.spend(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn count(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).expect("not zero")
    }

    #[tokio::test(start_paused = true)]
    async fn resets_beyond_a_burst_and_a_rate_cause_a_pause() {
        // (milliseconds since the last row, resets, pause in milliseconds after them), with a burst
        // of 4 and 2 a second.
        for rows in [
            vec![
                (0, 4, None),
                (0, 1, Some(500)),
                (499, 0, Some(1)),
                (1, 0, None),
            ],
            vec![
                (0, 8, Some(2_000)),
                (1_000, 2, Some(2_000)),
                (2_000, 0, None),
            ],
            // The budget does not grow above the burst.
            vec![(60_000, 5, Some(500))],
        ] {
            let limit = PeerLimit::new(count(4), count(2));
            for (milliseconds, resets, expected) in &rows {
                advance(Duration::from_millis(*milliseconds)).await;
                (0..*resets).for_each(|_| limit.spend(1.0));
                let pause = limit.pause().map(|pause| pause.as_millis());
                assert_eq!(pause, *expected, "{rows:?} after {milliseconds}");
            }
        }
    }
}
