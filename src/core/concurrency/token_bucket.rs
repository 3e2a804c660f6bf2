//! A limit for how often something is done.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of tokens. It gets one more in each interval until it is full. If more tokens are taken
/// than it has, it has a debt until it has got the missing ones.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    interval: Duration,
    /// The time in which an empty bucket gets full.
    capacity: Duration,
    /// When the bucket will be full again. `None` if no token was taken yet.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens that gets one more in each `interval`.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            capacity: interval.saturating_mul(burst),
            full_at: None,
        }
    }

    /// Takes a token.
    pub fn take(&mut self, now: Instant) {
        self.take_time(self.interval, now);
    }

    /// Takes several tokens, or a part of one.
    ///
    /// # Panics
    /// If `tokens` is negative.
    pub fn take_many(&mut self, tokens: f64, now: Instant) {
        self.take_time(self.interval.mul_f64(tokens), now);
    }

    /// Returns true if the bucket has a token.
    pub fn has_token(&self, now: Instant) -> bool {
        self.filling(now).saturating_add(self.interval) <= self.capacity
    }

    /// Returns how long the bucket will have a debt; zero if it has none.
    pub fn debt(&self, now: Instant) -> Duration {
        self.filling(now).saturating_sub(self.capacity)
    }

    /// Remits the part of the debt that would last for longer than `most`.
    pub fn limit_debt(&mut self, most: Duration, now: Instant) {
        let latest = now.checked_add(self.capacity.saturating_add(most));
        self.full_at = self.full_at.min(latest.or(self.full_at));
    }

    /// Takes the tokens that the bucket gets in `time`.
    fn take_time(&mut self, time: Duration, now: Instant) {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now));
        self.full_at = Some(full_at.checked_add(time).unwrap_or(full_at));
    }

    /// Returns how long it takes until the bucket is full.
    fn filling(&self, now: Instant) -> Duration {
        let full_at = self.full_at.unwrap_or(now);
        full_at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn tokens_beyond_a_burst_and_a_rate_are_a_debt() {
        let start = Instant::now();
        // (milliseconds since the start, tokens that are taken, debt after that in milliseconds,
        // whether there is a token then), with a burst of 4 and 2 a second.
        for rows in [
            &[
                (0, 3.0, 0, true),
                (0, 1.0, 0, false),
                (0, 1.0, 500, false),
                (499, 0.0, 1, false),
                (500, 0.0, 0, false),
                (999, 0.0, 0, false),
                (1_000, 0.0, 0, true),
            ][..],
            &[
                (0, 8.0, 2_000, false),
                (1_000, 2.0, 2_000, false),
                (3_000, 0.0, 0, false),
            ],
            &[(0, 4.1, 50, false), (50, 0.2, 100, false)],
            // The bucket never has more than the burst.
            &[(0, 1.0, 0, true), (60_000, 5.0, 500, false)],
        ] {
            let mut bucket = TokenBucket::new(millis(500), 4);
            for (at, tokens, debt, has_token) in rows {
                let now = start + millis(*at);
                bucket.take_many(*tokens, now);
                let found = (bucket.debt(now), bucket.has_token(now));
                assert_eq!(found, (millis(*debt), *has_token), "{rows:?} at {at}");
            }
        }
    }

    #[test]
    fn a_debt_can_be_limited() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(millis(500), 4);
        bucket.limit_debt(millis(1_000), now);
        assert!(bucket.has_token(now));
        for (taken, debt) in [(5, 500), (1, 1_000), (10, 1_000)] {
            (0..taken).for_each(|_| bucket.take(now));
            bucket.limit_debt(millis(1_000), now);
            assert_eq!(bucket.debt(now), millis(debt));
        }
    }

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(millis(20), 100);
        let mut now = start;
        let mut done = 0;
        while now < start + Duration::from_secs(10) {
            bucket.take(now);
            done += 1;
            now += bucket.debt(now);
        }
        assert_eq!(done, 50 * 12);
    }

    #[test]
    fn times_that_cannot_be_represented_are_no_error() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(Duration::MAX, 1);
        bucket.take(now);
        bucket.limit_debt(Duration::MAX, now);
        assert_eq!(bucket.debt(now), Duration::ZERO);
    }
}
