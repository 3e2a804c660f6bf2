//! Pace: decides whether a reader takes a body fast enough.

use std::time::Duration;

use tokio::time::Instant;

/// How fast a client must take a body, or several bodies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumRate {
    /// Bytes per second, averaged over `period`.
    pub bytes_per_second: u64,
    /// The time over which the rate is averaged. Only the time in which bytes wait for the client
    /// counts.
    pub period: Duration,
}

/// How fast a reader has taken a body since the rate was last judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Bytes that the reader has taken.
    taken: u64,
    /// How long bytes waited for the reader, without the time after `since` in `waiting`.
    waited: Duration,
    /// Bytes that wait for the reader, and since when.
    waiting: Option<(u64, Instant)>,
}

// === impl Pace ===

impl Pace {
    /// Notes that `bytes` are ready for the reader from `now` on.
    pub fn offer(&mut self, bytes: u64, now: Instant) {
        self.waiting = Some((bytes, now));
    }

    /// Returns true if bytes wait for the reader.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns how long bytes have waited for the reader without a break.
    pub fn waiting(&self, now: Instant) -> Option<Duration> {
        let (_, since) = self.waiting?;
        Some(now.saturating_duration_since(since))
    }

    /// Notes that the reader has taken the bytes that were ready.
    pub fn take(&mut self, now: Instant) {
        if let Some((bytes, since)) = self.waiting.take() {
            self.taken = self.taken.saturating_add(bytes);
            self.waited += now.saturating_duration_since(since);
        }
    }

    /// Returns true if the reader was slower than `rate`. Judges only when bytes have waited for
    /// the rate's period since the last judgement. The bytes that wait count as taken, because the
    /// reader may have taken a part of them. After a reader has taken bytes and was fast enough, a
    /// new period begins.
    pub fn is_below(&mut self, rate: MinimumRate, now: Instant) -> bool {
        let waited = self.waited + self.waiting(now).unwrap_or_default();
        if waited < rate.period {
            return false;
        }
        let waiting = self.waiting.map_or(0, |(bytes, _)| bytes);
        let taken = self.taken.saturating_add(waiting);
        if (taken as f64) < rate.bytes_per_second as f64 * waited.as_secs_f64() {
            return true;
        }
        if self.taken == 0 {
            return false;
        }
        *self = Self {
            waiting: self.waiting.map(|(bytes, _)| (bytes, now)),
            ..Self::default()
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinimumRate = MinimumRate {
        bytes_per_second: 64 << 10,
        period: Duration::from_secs(30),
    };

    /// Returns the second at which a reader is found to be too slow. The reader takes `chunk` bytes
    /// every `every` milliseconds, from a body with a producer that needs `produce` milliseconds
    /// for a chunk.
    fn cut_at(chunk: u64, every: u64, produce: u64, seconds: u64) -> Option<u64> {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut pace = Pace::default();
        let mut next_offer = Some(0);
        let mut next_take = None;
        for now in 0..seconds * 1000 {
            if next_take == Some(now) {
                pace.take(at(now));
                (next_take, next_offer) = (None, Some(now + produce));
            }
            if next_offer == Some(now) {
                pace.offer(chunk, at(now));
                (next_offer, next_take) = (None, Some(now + every));
            }
            if now % 1000 == 0 && pace.is_below(RATE, at(now)) {
                return Some(now / 1000);
            }
        }
        None
    }

    #[test]
    fn only_time_in_which_bytes_wait_for_the_reader_counts() {
        // chunk, milliseconds a chunk waits, milliseconds to produce it, the second of the cut
        let rows = [
            (64 << 10, 900, 0, None),
            (64 << 10, 1_100, 0, Some(30)),
            (4 << 10, 60, 0, None),
            (4 << 10, 65, 0, Some(30)),
            (1, u64::MAX / 2, 0, Some(30)),
            // The producer is slow, not the reader.
            (1 << 10, 1, 5_000, None),
            (64 << 10, 900, 5_000, None),
            // Bytes wait for a fifth of the time only.
            (4 << 10, 1_000, 4_000, Some(146)),
        ];
        for (chunk, every, produce, expected) in rows {
            let seconds = 400;
            let cut = cut_at(chunk, every, produce, seconds);
            assert_eq!(cut, expected, "{chunk} bytes in {every} ms, {produce} ms");
        }
    }

    #[test]
    fn a_fast_start_does_not_pay_for_a_stall() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        pace.offer(300 << 20, at(0));
        pace.take(at(1));
        pace.offer(1, at(1));
        let cut = (1..200).find(|second| pace.is_below(RATE, at(*second)));
        assert_eq!(cut, Some(60));
    }
}
