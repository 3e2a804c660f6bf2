//! The clock of a run and the times of the writes' acknowledgements. All threads share both.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The number of acknowledgements that are remembered; far more than the writes in flight.
const CAPACITY: usize = 1 << 20;
/// The number of bits of a time in nanoseconds; enough for three days.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// A clock that counts nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

/// The times when recent writes were acknowledged. The low bits of a write's number are the index
/// of its entry. The entry holds the time in its low bits and the next bits of the number above
/// them, so that an old entry is not taken for a newer write at that index.
pub(super) struct Acknowledgements(Box<[AtomicU64]>);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the nanoseconds from the start of the run until now.
    pub(super) fn now(self) -> u64 {
        self.since_start(Instant::now())
    }

    /// Returns the nanoseconds from the start of the run until `at`.
    pub(super) fn since_start(self, at: Instant) -> u64 {
        nanoseconds(at.duration_since(self.0))
    }

    /// Converts nanoseconds since the start of the run to an instant.
    pub(super) fn at(self, nanoseconds: u64) -> Instant {
        self.0 + Duration::from_nanos(nanoseconds)
    }
}

/// Converts a duration to nanoseconds; a `u64` holds more than five hundred years.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Acknowledgements {
    fn default() -> Self {
        Self((0..CAPACITY).map(|_| AtomicU64::new(u64::MAX)).collect())
    }
}

impl Acknowledgements {
    pub(super) fn set(&self, number: u32, at: u64) {
        self.0[slot(number)].store(tag(number) | at & TIME_MASK, Ordering::Relaxed);
    }

    /// Returns the time when write `number` was acknowledged, in nanoseconds of the run's clock.
    /// `None` if the write has not been acknowledged or its entry was overwritten.
    pub(super) fn get(&self, number: u32) -> Option<u64> {
        let entry = self.0[slot(number)].load(Ordering::Relaxed);
        let is_match = entry != u64::MAX && entry & !TIME_MASK == tag(number);
        is_match.then_some(entry & TIME_MASK)
    }
}

fn slot(number: u32) -> usize {
    number as usize % CAPACITY
}

fn tag(number: u32) -> u64 {
    // A `u32` number leaves at most twelve bits here, so an entry never equals `u64::MAX`, the
    // value of an empty entry.
    ((number as usize / CAPACITY) as u64) << TIME_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_not_mixed_up() {
        let table = Acknowledgements::default();
        let lap = u32::try_from(CAPACITY).expect("the capacity fits into 32 bits");
        assert_eq!(table.get(0), None);
        table.set(0, 7);
        assert_eq!(
            (table.get(0), table.get(lap), table.get(1)),
            (Some(7), None, None)
        );
        table.set(lap, 9);
        assert_eq!((table.get(0), table.get(lap)), (None, Some(9)));
        table.set(u32::MAX, TIME_MASK);
        assert_eq!(table.get(u32::MAX), Some(TIME_MASK));
    }
}
