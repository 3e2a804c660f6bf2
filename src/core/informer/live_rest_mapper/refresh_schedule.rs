//! When discovery is fetched.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between the starts of two fetches.
const SPACING: Duration = Duration::from_millis(300);
/// When discovery is fetched after a change of a definition: at once, and some times later, because
/// the API server publishes new discovery documents with a delay.
const AFTER_CHANGE: [Duration; 4] = [
    Duration::ZERO,
    SPACING,
    Duration::from_millis(2_300),
    Duration::from_millis(7_300),
];

/// The times when fetches of discovery are due.
#[derive(Default)]
pub(super) struct RefreshSchedule {
    due: BTreeSet<Instant>,
    /// When the last fetch started.
    last: Option<Instant>,
}

impl RefreshSchedule {
    /// Schedules one fetch at `now`.
    pub(super) fn once(&mut self, now: Instant) {
        self.due.insert(now);
    }

    /// Schedules the fetches after a change of a definition. The fetches after the newest change
    /// serve earlier changes too. Therefore, a series of changes costs few fetches.
    pub(super) fn changed(&mut self, now: Instant) {
        let first = self.due.first().copied();
        self.due = AFTER_CHANGE.iter().map(|after| now + *after).collect();
        self.due.extend(first);
    }

    /// Returns the time when the next fetch may start, or `None` if none is scheduled.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = *self.due.first()?;
        Some(self.last.map_or(first, |last| first.max(last + SPACING)))
    }

    /// Records that a fetch starts at `now`. It serves all fetches that are due by then.
    pub(super) fn begin(&mut self, now: Instant) {
        self.due.retain(|due| *due > now);
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the start times of fetches in milliseconds, if definitions change at `changes`.
    fn fetches(changes: &[u64]) -> Vec<u64> {
        let start = Instant::now();
        let mut schedule = RefreshSchedule::default();
        let mut changes = changes.iter().copied().peekable();
        let mut fetches = Vec::new();
        for at in (0..20_000).step_by(100) {
            let now = start + Duration::from_millis(at);
            while changes.next_if(|change| *change <= at).is_some() {
                schedule.changed(now);
            }
            if schedule.next().is_some_and(|next| next <= now) {
                schedule.begin(now);
                fetches.push(at);
            }
        }
        fetches
    }

    #[test]
    fn a_change_is_followed_by_four_fetches() {
        assert_eq!(fetches(&[1_000]), [1_000, 1_300, 3_300, 8_300]);
    }

    #[test]
    fn many_changes_cost_few_fetches() {
        let changes: Vec<_> = (0..100).map(|number| 1_000 + number / 10 * 100).collect();
        assert_eq!(
            fetches(&changes),
            [1_000, 1_300, 1_600, 1_900, 2_200, 4_200, 9_200]
        );
    }

    #[test]
    fn changes_that_do_not_end_do_not_delay_fetches() {
        let changes: Vec<_> = (0..200).map(|number| number * 100).collect();
        let fetches = fetches(&changes);
        assert_eq!(fetches.len(), 67);
        assert!(fetches.windows(2).all(|pair| pair[1] - pair[0] == 300));
    }

    #[test]
    fn a_request_is_served_by_a_fetch_that_is_due() {
        let now = Instant::now();
        let mut schedule = RefreshSchedule::default();
        schedule.once(now);
        schedule.once(now + SPACING / 2);
        assert_eq!(schedule.next(), Some(now));
        schedule.begin(now + SPACING);
        assert_eq!(schedule.next(), None);
        schedule.once(now + SPACING);
        assert_eq!(schedule.next(), Some(now + 2 * SPACING));
    }
}
