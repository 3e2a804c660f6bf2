//! Decides how long answers count that the API server gave a short time after a change: it may have
//! answered as before the change.

use std::time::Duration;

use tokio::time::Instant;

/// How long after a change the API server may still answer as before it.
pub(in crate::identity) const SETTLED: Duration = Duration::from_secs(30);
/// How long an answer counts until the change is settled.
pub(in crate::identity) const COUNTS_FOR: Duration = Duration::from_secs(1);

/// Returns the moment before which an answer must not have been asked for, for a request of
/// `since`, after a change at `last`. Answers from before the change do not count. An answer that
/// was asked for after the change, but before the change is settled, counts for `counts_for`; only
/// a request that waits for such an answer may use it later. An answer that was asked for when the
/// change is settled counts as usual.
pub(in crate::identity) fn earliest(
    last: Instant,
    since: Instant,
    counts_for: Duration,
) -> Instant {
    let counts_from = since.checked_sub(counts_for);
    let earliest = counts_from.map_or(last, |from| from.max(last));
    earliest.min(last + SETTLED)
}
