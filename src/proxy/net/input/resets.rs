//! Counts how fast an HTTP/2 peer makes work that is no answer: it resets streams before it takes a
//! part of their answers' bodies, or sends control frames.
//!
//! Such a stream does not count in the limit of concurrent streams any more, but its request was
//! parsed and started. So a peer that opens and resets streams in turn ("rapid reset",
//! CVE-2023-44487) could cause any amount of work. `h2` limits only resets of streams that the
//! server has not accepted yet, and hyper accepts streams at once.
//!
//! A PING or SETTINGS frame needs an answer, and counts like a reset. A WINDOW_UPDATE needs none, and
//! a peer that receives much sends many: it counts a tenth, and not at all for each KiB that was
//! sent to the peer.
//!
//! The socket of a peer that is too fast is read later. The peer is not sent away, because it could
//! connect again and would get a new budget at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::received_frames::ControlFrames;

/// What a WINDOW_UPDATE counts.
const UPDATE_COST: f64 = 0.1;
/// Bytes sent to the peer for each of which it may send a WINDOW_UPDATE.
const BYTES_PER_UPDATE: usize = 1024;

/// The resets of a connection's unanswered streams, and its control frames.
#[derive(Debug)]
pub(in crate::net) struct PeerLimit {
    budget: Mutex<Budget>,
    /// False if there is no need to look at the budget.
    is_exceeded: AtomicBool,
    /// Bytes that were sent since the last control frame.
    sent: AtomicUsize,
}

/// How many resets are allowed now: a token bucket. Its level is negative when there were too many.
#[derive(Debug)]
struct Budget {
    capacity: f64,
    per_second: f64,
    left: f64,
    updated: Instant,
}

/// A request without an answer. If it is dropped, its peer has reset the stream.
#[derive(Debug)]
pub(in crate::net) struct Unanswered(Option<Arc<PeerLimit>>);

// === impl PeerLimit ===

impl PeerLimit {
    /// Allows `burst` resets at once, and `per_second` resets over time.
    pub(in crate::net) fn new(burst: NonZeroU32, per_second: NonZeroU32) -> PeerLimit {
        let budget = Budget {
            capacity: f64::from(burst.get()),
            per_second: f64::from(per_second.get()),
            left: f64::from(burst.get()),
            updated: Instant::now(),
        };
        PeerLimit {
            budget: Mutex::new(budget),
            is_exceeded: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
        }
    }

    /// How long the socket must not be read; `None` if it may be read now.
    pub(in crate::net) fn pause(&self) -> Option<Duration> {
        if !self.is_exceeded.load(Ordering::Relaxed) {
            return None;
        }
        let mut budget = self.budget.lock();
        let pause = budget.pause(Instant::now());
        self.is_exceeded.store(pause.is_some(), Ordering::Relaxed);
        pause
    }

    fn record(&self) {
        self.spend(1.0);
    }

    /// The peer has sent control frames.
    pub(super) fn record_control(&self, control: ControlFrames) {
        let due = control.updates as usize * BYTES_PER_UPDATE;
        let before = self
            .sent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sent| {
                Some(sent.saturating_sub(due))
            });
        // What is left counts for later updates.
        let unpaid = due.saturating_sub(before.unwrap_or_default()) / BYTES_PER_UPDATE;
        self.spend(f64::from(control.others) + unpaid as f64 * UPDATE_COST);
    }

    /// `bytes` were sent to the peer.
    pub(in crate::net) fn record_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    fn spend(&self, cost: f64) {
        let mut budget = self.budget.lock();
        if budget.take(Instant::now(), cost) {
            self.is_exceeded.store(true, Ordering::Relaxed);
        }
    }
}

// === impl Budget ===

impl Budget {
    fn is_overdrawn(&self) -> bool {
        // The sum of many parts of a reset is not exact.
        self.left < -1e-6
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.updated);
        let refilled = self.left + elapsed.as_secs_f64() * self.per_second;
        self.left = refilled.min(self.capacity);
        self.updated = now;
    }

    /// Takes the cost of a reset, or several, at the time `now`. Returns true if it was too much.
    fn take(&mut self, now: Instant, cost: f64) -> bool {
        self.refill(now);
        self.left -= cost;
        self.is_overdrawn()
    }

    /// The time from `now` on until the budget is no longer overdrawn; `None` if it is not.
    fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        self.is_overdrawn()
            .then(|| Duration::from_secs_f64(-self.left / self.per_second))
    }
}

// === impl Unanswered ===

impl Unanswered {
    /// A new request; without a limit its reset is not counted.
    pub(in crate::net) fn new(limit: Option<Arc<PeerLimit>>) -> Unanswered {
        Unanswered(limit)
    }

    /// The request has an answer, of which the peer takes a part.
    pub(in crate::net) fn answer(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(limit) = self.0.take() {
            limit.record();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).expect("not zero")
    }

    #[test]
    fn resets_beyond_a_burst_and_a_rate_cause_a_pause() {
        let start = Instant::now();
        // (milliseconds since the start, resets, pause in milliseconds after them), with a burst of
        // 4 and 2 a second.
        for rows in [
            vec![
                (0, 4, None),
                (0, 1, Some(500)),
                (499, 0, Some(1)),
                (500, 0, None),
            ],
            vec![
                (0, 8, Some(2_000)),
                (1_000, 2, Some(2_000)),
                (3_000, 0, None),
            ],
            // The budget does not grow above the burst.
            vec![(60_000, 5, Some(500))],
        ] {
            let limit = PeerLimit::new(count(4), count(2));
            let mut budget = limit.budget.lock();
            for (milliseconds, resets, expected) in &rows {
                let now = start + Duration::from_millis(*milliseconds);
                for _ in 0..*resets {
                    budget.take(now, 1.0);
                }
                let pause = budget.pause(now).map(|pause| pause.as_secs_f64() * 1e3);
                let pause = pause.map(|pause| pause.round() as u64);
                assert_eq!(pause, *expected, "{rows:?} at {milliseconds}");
            }
        }
    }
}
