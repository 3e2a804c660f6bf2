//! Doubt about a cache after a change of its resource's definition.
//!
//! The API server gives the objects the new representation at about the time of the definition's
//! event, sometimes a little later than kubefan gets it. At least a second after that, the API
//! server ends the watches that have the old representation. So a list has the new representation
//! if it began after such an end, or long after the event.

use std::time::Duration;

use tokio::time::Instant;

/// A list that begins so long after the event of a changed definition has the new representation,
/// even if the API server has not ended the watch.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// An end of the watch that comes sooner after the event belongs to an earlier change: the API
/// server waits a second.
const EARLIEST_END: Duration = Duration::from_millis(500);

/// Whether the objects of a cache may have another representation than the API server shows.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::informer) struct Doubt {
    /// When the last change of the definition was noticed.
    changed_at: Option<Instant>,
    /// Only a list that began after this time has the newest known representation.
    trusted_after: Option<Instant>,
    /// When the last relist was requested, or was left to a task that requests it later.
    relist_requested_at: Option<Instant>,
}

// === impl Doubt ===

impl Doubt {
    /// Records that a change of the definition was noticed at `time`.
    pub(in crate::informer) fn definition_changed(&mut self, time: Instant) {
        self.changed_at = self.changed_at.max(Some(time));
        self.distrust(time + SETTLED_AFTER);
    }

    /// Records that lists that began until `time` may have an old representation.
    pub(in crate::informer) fn distrust(&mut self, time: Instant) {
        self.trusted_after = self.trusted_after.max(Some(time));
    }

    /// Records that the API server ended a watch at `time`, earlier than it was asked to. Returns
    /// true if this end shows that the API server uses the changed definition. Then the caller has
    /// to request a relist.
    pub(in crate::informer) fn watch_ended(&mut self, time: Instant) -> bool {
        let is_awaited = self.trusted_after.is_some_and(|after| time < after);
        let changed_at = self.changed_at.filter(|_| is_awaited);
        let is_of_change = changed_at.is_some_and(|changed_at| time >= changed_at + EARLIEST_END);
        if is_of_change {
            self.trusted_after = Some(time);
        }
        is_of_change
    }

    /// Records that a relist was requested at `time`, or was left to a task that requests it later.
    pub(in crate::informer) fn relist_requested(&mut self, time: Instant) {
        self.relist_requested_at = Some(time);
    }

    /// Returns true if the last relist was requested after `time`.
    pub(in crate::informer) fn was_relist_requested_after(&self, time: Instant) -> bool {
        self.relist_requested_at > Some(time)
    }

    /// Returns true if a list that began at `list_began` may have an old representation.
    pub(in crate::informer) fn affects(&self, list_began: Instant) -> bool {
        self.trusted_after >= Some(list_began)
    }

    /// Returns true if a relist at `now` would end the doubt, and none was requested that does.
    /// `list_began` is when the last list began, if there was one.
    pub(in crate::informer) fn lacks_relist(
        &self,
        list_began: Option<Instant>,
        now: Instant,
    ) -> bool {
        self.trusted_after.is_some_and(|after| {
            let has_list = list_began > Some(after) || self.was_relist_requested_after(after);
            now > after && !has_list
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns what is doubted at the milliseconds `lists` after a change of the definition and
    /// ends of the watch at `ends`, and whether each end caused a relist.
    fn after_change(ends: &[u32], lists: &[u32]) -> (Vec<bool>, Vec<bool>) {
        let start = Instant::now();
        let mut doubt = Doubt::default();
        doubt.definition_changed(start);
        let ends = ends.iter().map(|end| doubt.watch_ended(start + *end * MS));
        let relists = ends.collect();
        let affected = lists.iter().map(|list| doubt.affects(start + *list * MS));
        (relists, affected.collect())
    }

    #[test]
    fn a_list_is_trusted_after_the_end_of_the_watch_or_two_seconds() {
        let lists = [0, 100, 1_000, 1_001, 2_000, 2_001];
        for (ends, relists, affected) in [
            // No end: the watch had the new representation already.
            (&[][..], &[][..], [true, true, true, true, true, false]),
            (&[1_000], &[true], [true, true, true, false, false, false]),
            // The end belongs to an earlier change.
            (&[100], &[false], [true, true, true, true, true, false]),
            (
                &[100, 1_000],
                &[false, true],
                [true, true, true, false, false, false],
            ),
            // Lists are trusted already.
            (&[2_500], &[false], [true, true, true, true, true, false]),
        ] {
            let result = after_change(ends, &lists);
            assert_eq!(result, (relists.to_vec(), affected.to_vec()), "{ends:?}");
        }
    }

    #[test]
    fn an_end_without_a_change_causes_no_relist() {
        let now = Instant::now();
        let mut doubt = Doubt::default();
        assert!(!doubt.watch_ended(now));
        assert!(!doubt.affects(now) && !doubt.lacks_relist(None, now));
        // Another task relists.
        doubt.distrust(now + MS);
        assert!(!doubt.watch_ended(now));
        assert!(doubt.affects(now) && doubt.affects(now + MS) && !doubt.affects(now + 2 * MS));
    }

    #[test]
    fn one_relist_after_the_end_of_the_wait_is_enough() {
        let start = Instant::now();
        let mut doubt = Doubt::default();
        doubt.definition_changed(start);
        doubt.relist_requested(start + 100 * MS);
        let listed = Some(start + 100 * MS);
        for (now, expected) in [(150, false), (2_000, false), (2_001, true)] {
            assert_eq!(doubt.lacks_relist(listed, start + now * MS), expected);
        }
        let now = start + 2_300 * MS;
        assert!(doubt.lacks_relist(None, now));
        doubt.relist_requested(now);
        assert!(!doubt.lacks_relist(listed, now + MS) && doubt.affects(start + 100 * MS));
        doubt.definition_changed(now + MS);
        assert!(doubt.affects(now) && !doubt.lacks_relist(Some(now), now + 2 * MS));
        assert!(doubt.lacks_relist(Some(now), now + MS + 3 * SETTLED_AFTER));
    }
}
