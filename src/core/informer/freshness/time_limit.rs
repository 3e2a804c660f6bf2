//! The time limit of a proof. After it, a LIST is forwarded, which costs its own time in addition.
//! So the limit is at least as long as the forwarded list would take.

use std::time::Duration;

use crate::api::Selection;
use crate::cache::Snapshot;
use crate::concurrency::CoopBudget;

/// The limit for small lists: as long as the API server waits for its own cache.
pub(super) const SHORTEST: Duration = Duration::from_secs(3);
/// The limit for the largest lists. The API server ends a response after 60 s.
const LONGEST: Duration = Duration::from_secs(30);
/// Bytes that an API server lists per second. It is half of what was measured for large lists on an
/// idle machine, because a loaded one is slower.
const BYTES_PER_SECOND: usize = 20_000_000;
/// Budget units of an object that is examined.
const EXAMINED_UNITS: usize = CoopBudget::UNITS / 8192;

/// Returns the limit for a proof of the objects of `snapshot` that `selection` selects.
pub(super) async fn of(snapshot: &Snapshot, selection: &Selection) -> Duration {
    let mut budget = CoopBudget::new();
    let mut bytes = 0;
    for object in snapshot.candidates(selection, None) {
        if selection.matches(object) {
            bytes += object.body.len();
        }
        budget.charge(EXAMINED_UNITS);
        budget.proceed().await;
    }
    for_bytes(bytes)
}

/// Returns the limit for a proof of objects with `bytes` in total.
fn for_bytes(bytes: usize) -> Duration {
    let direct = Duration::from_millis((bytes / (BYTES_PER_SECOND / 1000)) as u64);
    direct.clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_long_as_a_direct_list_would_take() {
        for (bytes, seconds) in [
            (0, 3),
            (60_000_000, 3),
            (80_000_000, 4),
            // 50,000 pods of 6.8 KiB. A direct list of them was measured to take 5 to 8 s.
            (50_000 * 6_800, 17),
            (600_000_000, 30),
            (usize::MAX, 30),
        ] {
            let expected = Duration::from_secs(seconds);
            assert_eq!(for_bytes(bytes), expected, "{bytes} bytes");
        }
    }
}
