//! The changes of definitions that were noticed a short time ago.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::GroupVersionResource;
use crate::upstream::CustomResource;

/// How long after a change of a definition an API server may still end watches of the old
/// representation: the API server waits up to two minutes for requests that use the old
/// representation, and it may notice the change late.
const EARLY_END_GRACE: Duration = Duration::from_secs(180);

/// The definitions that changed a short time ago.
#[derive(Default)]
pub(in crate::informer) struct DefinitionChanges(Mutex<HashMap<GroupVersionResource, Change>>);

struct Change {
    definition: CustomResource,
    noticed_at: Instant,
}

// === impl DefinitionChanges, Change ===

impl Change {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.noticed_at) < EARLY_END_GRACE
    }

    /// Returns true if this change is to `definition` or to a later one.
    fn covers(&self, definition: &CustomResource) -> bool {
        self.definition == *definition || definition.is_older_than(&self.definition)
    }
}

fn recent<'a>(
    changes: &'a HashMap<GroupVersionResource, Change>,
    gvr: &GroupVersionResource,
    now: Instant,
) -> Option<&'a Change> {
    changes.get(gvr).filter(|change| change.is_recent(now))
}

impl DefinitionChanges {
    /// Returns true if `definition`, or a later one, is the newest of `gvr` that was recorded
    /// lately.
    pub(super) fn has(
        &self,
        gvr: &GroupVersionResource,
        definition: &CustomResource,
        now: Instant,
    ) -> bool {
        let changes = self.0.lock();
        recent(&changes, gvr, now).is_some_and(|newest| newest.covers(definition))
    }

    /// Returns true if no other definition of `gvr` than `definition` is recorded as the newest, or
    /// if `definition` is `None`, because definitions can't be read any more.
    pub(in crate::informer) fn is_newest(
        &self,
        gvr: &GroupVersionResource,
        definition: Option<&CustomResource>,
        now: Instant,
    ) -> bool {
        let changes = self.0.lock();
        let newest = recent(&changes, gvr, now);
        newest.is_none_or(|newest| {
            definition.is_none_or(|definition| newest.definition == *definition)
        })
    }

    /// Records that the definition of `gvr` was seen at `now` to have changed to `definition`,
    /// unless a later definition was recorded.
    pub(super) fn record(
        &self,
        gvr: &GroupVersionResource,
        definition: &CustomResource,
        now: Instant,
    ) {
        let mut changes = self.0.lock();
        changes.retain(|_, change| change.is_recent(now));
        if changes
            .get(gvr)
            .is_some_and(|newest| newest.covers(definition))
        {
            return;
        }
        let change = Change {
            definition: definition.clone(),
            noticed_at: now,
        };
        changes.insert(gvr.clone(), change);
    }

    /// Forgets the definition of `gvr`, because an older one is valid again: etcd was restored.
    pub(in crate::informer) fn forget(&self, gvr: &GroupVersionResource) {
        self.0.lock().remove(gvr);
    }

    /// Returns when the definition of `gvr` was last seen to have changed, if an API server may
    /// have ended a watch at `time` because of that change.
    pub(in crate::informer) fn before(
        &self,
        gvr: &GroupVersionResource,
        time: Instant,
    ) -> Option<Instant> {
        let changes = self.0.lock();
        Some(recent(&changes, gvr, time)?.noticed_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_change_is_known_for_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let changes = DefinitionChanges::default();
        let things = GroupVersionResource::new("test.kubefan.io", "v1", "things");
        let (second, third) = ([2, 3])
            .map(|generation| CustomResource::for_tests("a", generation))
            .into();
        assert!(!changes.has(&things, &second, at(0)) && changes.is_newest(&things, None, at(0)));
        changes.record(&things, &second, at(0));
        assert!(changes.has(&things, &second, at(1)));
        assert!(changes.is_newest(&things, Some(&second), at(1)));
        assert!(!changes.is_newest(&things, Some(&third), at(1)));
        assert!(changes.is_newest(&things, None, at(1)));
        assert_eq!(changes.before(&things, at(1)), Some(at(0)));
        changes.record(&things, &third, at(2));
        // The second generation is older, also if two callers record at the same time.
        changes.record(&things, &second, at(2));
        assert!(changes.has(&things, &second, at(2)));
        assert!(changes.is_newest(&things, Some(&third), at(2)));
        let recreated = CustomResource::for_tests("b", 1);
        assert!(!changes.has(&things, &recreated, at(2)));
        // The watch ended before the change was noticed.
        assert_eq!(changes.before(&things, at(1)), Some(at(2)));
        assert_eq!(changes.before(&things, at(181)), Some(at(2)));
        assert_eq!(changes.before(&things, at(182)), None);
        // It counts no more.
        assert!(!changes.has(&things, &third, at(182)));
        assert!(changes.is_newest(&things, Some(&second), at(182)));
        changes.forget(&things);
        assert!(!changes.has(&things, &second, at(3)));
    }
}
