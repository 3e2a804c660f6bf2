//! How answers count that the API server gave a short time after a change: it may still have answered
//! as before it.

use std::time::Duration;

use tokio::time::Instant;

/// How long after a change the API server may still answer as before it.
pub(in crate::identity) const SETTLED: Duration = Duration::from_secs(30);
/// How long an answer counts meanwhile.
pub(in crate::identity) const COUNTS_FOR: Duration = Duration::from_secs(1);

/// The moment before which an answer for a request of `since` must not have been asked for, after a
/// change at `last`. Until the change is settled, answers count for `counts_for`; those that are
/// asked for later count as usual. The request may wait longer for its own.
pub(in crate::identity) fn earliest(
    last: Instant,
    since: Instant,
    counts_for: Duration,
) -> Instant {
    let counts_from = since.checked_sub(counts_for);
    let earliest = counts_from.map_or(last, |from| from.max(last));
    earliest.min(last + SETTLED)
}
