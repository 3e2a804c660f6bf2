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
    /// Records that the definition of `gvr` was seen at `now` to have changed to `definition`.
    /// Returns false if this change is known already.
    pub(super) fn record(
        &self,
        gvr: &GroupVersionResource,
        definition: &CustomResource,
        now: Instant,
    ) -> bool {
        let mut changes = self.0.lock();
        changes.retain(|_, change| now.duration_since(change.noticed_at) < EARLY_END_GRACE);
        let known = changes.get(gvr);
        if known.is_some_and(|change| change.definition == *definition) {
            return false;
        }
        let change = Change {
            definition: definition.clone(),
            noticed_at: now,
        };
        changes.insert(gvr.clone(), change);
        true
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
    fn a_change_is_recorded_once_and_forgotten() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let changes = DefinitionChanges::default();
        let things = GroupVersionResource::new("test.kubefan.io", "v1", "things");
        let (second, third) = ([2, 3])
            .map(|generation| CustomResource::for_tests("a", generation))
            .into();
        assert!(changes.record(&things, &second, at(0)));
        assert!(!changes.record(&things, &second, at(1)));
        assert_eq!(changes.before(&things, at(1)), Some(at(0)));
        assert!(changes.record(&things, &third, at(2)));
        // The watch ended before the change was noticed.
        assert_eq!(changes.before(&things, at(1)), Some(at(2)));
        assert_eq!(changes.before(&things, at(181)), Some(at(2)));
        assert_eq!(changes.before(&things, at(182)), None);
        // It was forgotten.
        assert!(changes.record(&things, &third, at(182)));
    }
}
