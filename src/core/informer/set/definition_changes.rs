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
pub(super) struct DefinitionChanges(Mutex<HashMap<GroupVersionResource, Change>>);

struct Change {
    definition: CustomResource,
    noticed_at: Instant,
}

// === impl DefinitionChanges ===

impl DefinitionChanges {
    /// Returns true if `definition`, or a later one, is the newest of `gvr` that was recorded.
    pub(super) fn has(&self, gvr: &GroupVersionResource, definition: &CustomResource) -> bool {
        let changes = self.0.lock();
        let newest = changes.get(gvr).map(|change| &change.definition);
        newest.is_some_and(|newest| newest == definition || definition.is_older_than(newest))
    }

    /// Returns true if no other definition of `gvr` than `definition` is recorded as the newest, or
    /// if `definition` is `None`, because definitions can't be read any more.
    pub(super) fn is_newest(
        &self,
        gvr: &GroupVersionResource,
        definition: Option<&CustomResource>,
    ) -> bool {
        let changes = self.0.lock();
        let newest = changes.get(gvr);
        newest.is_none_or(|newest| {
            definition.is_none_or(|definition| newest.definition == *definition)
        })
    }

    /// Records that the definition of `gvr` was seen at `now` to have changed to `definition`.
    pub(super) fn record(
        &self,
        gvr: &GroupVersionResource,
        definition: &CustomResource,
        now: Instant,
    ) {
        let mut changes = self.0.lock();
        changes.retain(|_, change| now.duration_since(change.noticed_at) < EARLY_END_GRACE);
        let change = Change {
            definition: definition.clone(),
            noticed_at: now,
        };
        changes.insert(gvr.clone(), change);
    }

    /// Returns when the definition of `gvr` was last seen to have changed, if an API server may
    /// have ended a watch at `time` because of that change.
    pub(super) fn before(&self, gvr: &GroupVersionResource, time: Instant) -> Option<Instant> {
        let changes = self.0.lock();
        let noticed_at = changes.get(gvr)?.noticed_at;
        let is_recent = time.saturating_duration_since(noticed_at) < EARLY_END_GRACE;
        is_recent.then_some(noticed_at)
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
        assert!(!changes.has(&things, &second) && changes.is_newest(&things, None));
        changes.record(&things, &second, at(0));
        assert!(changes.has(&things, &second) && changes.is_newest(&things, Some(&second)));
        assert!(!changes.is_newest(&things, Some(&third)) && changes.is_newest(&things, None));
        assert_eq!(changes.before(&things, at(1)), Some(at(0)));
        changes.record(&things, &third, at(2));
        // The second generation is older.
        assert!(changes.has(&things, &second));
        assert!(!changes.has(&things, &CustomResource::for_tests("b", 1)));
        // The watch ended before the change was noticed.
        assert_eq!(changes.before(&things, at(1)), Some(at(2)));
        assert_eq!(changes.before(&things, at(181)), Some(at(2)));
        assert_eq!(changes.before(&things, at(182)), None);
        let others = GroupVersionResource::new("test.kubefan.io", "v1", "others");
        changes.record(&others, &second, at(182));
        assert!(!changes.has(&things, &third) && changes.is_newest(&things, None));
    }
}
