//! Doubt about a cache after a change of its resource's definition.
//!
//! The API server gives the objects the new representation at about the time of the definition's
//! event, sometimes a little later than kubefan gets it. At least a second after that, the API
//! server ends the watches that have the old representation. So a list has the new representation
//! if it began after such an end, or long after the event.

use std::time::Duration;

use tokio::time::Instant;

/// How long after a change was noticed the API server may still use the old definition. A list that
/// begins later has the new representation, whether or not the API server has ended the watch.
pub(in crate::informer) const SETTLED_AFTER: Duration = Duration::from_secs(2);
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
    /// When the last relist was requested.
    relist_requested_at: Option<Instant>,
    /// True if the relist that ends the doubt waits for its turn.
    is_relist_queued: bool,
}

// === impl Doubt ===

impl Doubt {
    /// Records that a change of the definition was noticed at `time`. A relist is necessary when
    /// [`Doubt::watch_ended`] or [`Doubt::relist_due`] says so.
    pub(in crate::informer) fn definition_changed(&mut self, time: Instant) {
        self.changed_at = self.changed_at.max(Some(time));
        self.trusted_after = self.trusted_after.max(Some(time + SETTLED_AFTER));
        self.is_relist_queued = false;
    }

    /// Records that lists that began until `time` may have an old representation. Returns true if
    /// the caller has to queue a relist.
    pub(in crate::informer) fn distrust(&mut self, time: Instant) -> bool {
        if self.trusted_after >= Some(time) {
            return false;
        }
        self.trusted_after = Some(time);
        self.is_relist_queued = true;
        true
    }

    /// Takes the queued relist. Returns true if there was one and it is still necessary: the last
    /// list began at `list_began`.
    pub(in crate::informer) fn take_queued(&mut self, list_began: Option<Instant>) -> bool {
        let is_necessary = list_began.is_none_or(|list_began| self.affects(list_began));
        std::mem::take(&mut self.is_relist_queued) && is_necessary
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

    /// Records that a relist was requested at `time`.
    pub(in crate::informer) fn relist_requested(&mut self, time: Instant) {
        self.relist_requested_at = Some(time);
        self.is_relist_queued = false;
    }

    /// Returns true if the last relist was requested after `time`.
    pub(in crate::informer) fn was_relist_requested_after(&self, time: Instant) -> bool {
        self.relist_requested_at > Some(time)
    }

    /// Returns true if a list that began at `list_began` may have an old representation.
    pub(in crate::informer) fn affects(&self, list_began: Instant) -> bool {
        self.trusted_after >= Some(list_began)
    }

    /// Returns the time from which on a relist ends the doubt. Returns `None` if there is no doubt,
    /// or if such a relist was requested or queued. `list_began` is when the last list began.
    pub(in crate::informer) fn relist_due(&self, list_began: Option<Instant>) -> Option<Instant> {
        let after = self.trusted_after?;
        let has_list = list_began > Some(after) || self.was_relist_requested_after(after);
        // A list that begins at the same instant is not trusted.
        (!has_list && !self.is_relist_queued).then(|| after + Duration::from_millis(1))
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
        assert!(!doubt.affects(now));
        assert_eq!(doubt.relist_due(None), None);
        // A relist is queued already.
        assert!(doubt.distrust(now + MS));
        assert!(!doubt.watch_ended(now));
        assert!(doubt.affects(now + MS) && !doubt.affects(now + 2 * MS));
    }

    #[test]
    fn a_queued_relist_is_taken_once_if_it_is_necessary() {
        let start = Instant::now();
        let mut doubt = Doubt::default();
        assert!(!doubt.take_queued(None));
        assert!(doubt.distrust(start + MS));
        assert!(!doubt.distrust(start + MS));
        assert_eq!(doubt.relist_due(Some(start)), None);
        assert!(doubt.take_queued(Some(start)));
        assert!(!doubt.take_queued(Some(start)));
        // The cache was listed again in the meantime.
        assert!(doubt.distrust(start + 2 * MS));
        assert!(!doubt.take_queued(Some(start + 3 * MS)));
        // Another task requested a relist.
        assert!(doubt.distrust(start + 4 * MS));
        doubt.relist_requested(start + 5 * MS);
        assert!(!doubt.take_queued(Some(start)));
        // A change of the definition needs a later list.
        assert!(doubt.distrust(start + 6 * MS));
        doubt.definition_changed(start + 6 * MS);
        assert!(!doubt.take_queued(Some(start)));
        assert!(!doubt.distrust(start + 7 * MS));
        assert!(doubt.relist_due(Some(start + 7 * MS)).is_some());
    }

    #[test]
    fn one_relist_after_the_end_of_the_wait_is_enough() {
        let start = Instant::now();
        let due = Some(start + SETTLED_AFTER + MS);
        let mut doubt = Doubt::default();
        doubt.definition_changed(start);
        doubt.relist_requested(start + 100 * MS);
        let listed = Some(start + 100 * MS);
        assert_eq!(doubt.relist_due(None), due);
        assert_eq!(doubt.relist_due(listed), due);
        assert_eq!(doubt.relist_due(due), None);
        doubt.relist_requested(start + SETTLED_AFTER + MS);
        assert_eq!(doubt.relist_due(listed), None);
        assert!(doubt.affects(start + 100 * MS));
        doubt.definition_changed(start + SETTLED_AFTER);
        let due = Some(start + 2 * SETTLED_AFTER + MS);
        assert_eq!(doubt.relist_due(listed), due);
    }
}
