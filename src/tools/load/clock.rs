//! The run's clock, and when which write was acknowledged: what threads share.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

/// Acknowledgements that are remembered; far more than can be under way.
const CAPACITY: usize = 1 << 20;
/// Bits of a time in nanoseconds: three days.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Nanoseconds from the run's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

/// When which write was acknowledged, by the low bits of its number; above the time stand the next bits, so
/// that a write is not taken for one before it.
pub(super) struct Acknowledgements(Box<[AtomicU64]>);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds until now.
    pub(super) fn now(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }

    /// The moment so many nanoseconds after the start.
    pub(super) fn at(self, nanoseconds: u64) -> Instant {
        self.0 + Duration::from_nanos(nanoseconds)
    }
}

/// Five hundred years fit.
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

    /// `None` when it was not until now.
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
    // Twelve bits: never all ones with the time's, which stand for none.
    ((number as usize / CAPACITY) as u64) << TIME_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_not_mixed_up() {
        let table = Acknowledgements::default();
        let lap = u32::try_from(CAPACITY).expect("it is small");
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
