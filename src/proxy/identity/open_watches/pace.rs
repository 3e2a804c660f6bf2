//! How many questions about open watches are asked per second.

use std::time::Duration;

use tokio::time::Instant;

/// Limits how often something is done per second.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// How far ahead of the regular times actions may be.
    burst: Duration,
    next: Option<Instant>,
}

impl Pace {
    /// Creates a pace of `rate` actions per second. As many actions as `burst` permits may be done
    /// at once.
    pub(super) fn new(rate: u32, burst: Duration) -> Self {
        Self {
            interval: Duration::from_secs(1) / rate.max(1),
            burst,
            next: None,
        }
    }

    /// Returns when the next action may be done. The time may be in the past.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let ahead = self.next.unwrap_or(now).saturating_duration_since(now);
        now + ahead.saturating_sub(self.burst)
    }

    /// Counts an action at `now`.
    pub(super) fn count(&mut self, now: Instant) {
        let next = self.next.map_or(now, |next| next.max(now));
        self.next = Some(next + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(50, Duration::from_secs(2));
        let mut now = start;
        let mut done = 0;
        while now < start + Duration::from_secs(10) {
            pace.count(now);
            done += 1;
            now = pace.next(now);
        }
        assert_eq!(done, 50 * 12);
        assert_eq!(
            pace.next(start + Duration::from_secs(60)),
            start + Duration::from_secs(60)
        );
    }
}
