//! What happens to running informers when the API server has changed.

use std::sync::Arc;

use tokio::time::Instant;

use super::InformerSet;
use crate::api::GroupVersionResource;
use crate::informer::Informer;
use crate::upstream::CustomResource;

// === impl InformerSet ===

impl InformerSet {
    /// Makes all informers of `gvr` relist.
    pub fn relist(&self, gvr: &GroupVersionResource) {
        self.of(gvr).for_each(|informer| informer.relist());
    }

    /// Records that `definition` is a new one of `gvr`: the informers of `gvr` prove nothing until
    /// a list has the new representation. Returns false if this was recorded already, and all
    /// informers know it.
    pub(in crate::informer) fn definition_changed(
        &self,
        gvr: &GroupVersionResource,
        definition: &CustomResource,
    ) -> bool {
        let (changes, now) = (&self.inner.definition_changes, Instant::now());
        if changes.has(gvr, definition, now) {
            return false;
        }
        let mark = || {
            self.of(gvr)
                .for_each(|informer| informer.definition_changed(now));
        };
        // Another caller that finds the change recorded relies on the marks.
        mark();
        changes.record(gvr, definition, now);
        // These informers were registered in the meantime.
        mark();
        self.inner.doubted.notify_one();
        true
    }

    /// Makes the informers of `gvr` relist. They prove nothing before.
    pub(in crate::informer) fn distrust(&self, gvr: &GroupVersionResource) {
        let now = Instant::now();
        for informer in self.of(gvr) {
            informer.distrust(now);
            informer.relist_if_queued();
        }
    }

    fn of(&self, gvr: &GroupVersionResource) -> impl Iterator<Item = Arc<Informer>> {
        let all = self.all().into_iter();
        all.filter(move |informer| informer.resource().gvr == *gvr)
    }

    /// Stops all informers of `gvr` and forgets its refusals, so that the next request starts a new
    /// informer. Clients' watches end cleanly.
    pub fn stop(&self, gvr: &GroupVersionResource) {
        self.of(gvr).for_each(|informer| informer.stop());
        self.inner.refusals.retain(|key, _| key.gvr != *gvr);
    }
}
