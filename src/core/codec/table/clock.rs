//! The clock that gives the present time for the ages in Tables.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

/// The API server's clock, as far as its answers have shown it, so that ages are those that it
/// prints; at first this machine's. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds that are added to this machine's clock.
    ahead: Arc<AtomicI64>,
}

impl Clock {
    /// Returns the time by this clock.
    pub fn now(&self) -> SystemTime {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let difference = Duration::from_millis(ahead.unsigned_abs());
        let own = SystemTime::now();
        let corrected = if ahead < 0 {
            own.checked_sub(difference)
        } else {
            own.checked_add(difference)
        };
        corrected.unwrap_or(own)
    }

    /// Records between how many milliseconds the API server's clock is ahead of this machine's.
    /// Returns the new difference if the former one is not among them.
    pub fn observe(&self, ahead: &RangeInclusive<i64>) -> Option<i64> {
        let is_known = ahead.contains(&self.ahead.load(Ordering::Relaxed));
        let likely = if ahead.contains(&0) {
            0
        } else {
            ahead.start().midpoint(*ahead.end())
        };
        (!is_known).then(|| {
            self.ahead.store(likely, Ordering::Relaxed);
            likely
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_the_clock_does_not_have_yet_changes_it() {
        let clock = Clock::default();
        for (ahead, expected) in [
            (-600..=500, None),
            (0..=1100, None),
            (89_500..=90_500, Some(90_000)),
            (89_900..=90_900, None),
            (90_100..=91_100, Some(90_600)),
            (-4_100..=-3_000, Some(-3_550)),
            (-400..=700, Some(0)),
        ] {
            assert_eq!(clock.observe(&ahead), expected, "{ahead:?}");
        }
    }

    #[test]
    fn its_time_is_that_of_the_api_server() {
        let clock = Clock::default();
        for hours in [-2, 0, 3] {
            let ahead = hours * 3_600_000;
            clock.observe(&(ahead..=ahead));
            let found = clock.now();
            let own = SystemTime::now();
            let difference = match found.duration_since(own) {
                Ok(ahead) => i64::try_from(ahead.as_millis()).expect("small"),
                Err(error) => -i64::try_from(error.duration().as_millis()).expect("small"),
            };
            assert!((difference - ahead).abs() < 60_000, "{difference}");
        }
    }
}
