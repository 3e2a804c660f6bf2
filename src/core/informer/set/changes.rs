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
    /// a list has the new representation. Returns false if this was recorded already.
    pub(in crate::informer) fn definition_changed(
        &self,
        gvr: &GroupVersionResource,
        definition: &CustomResource,
    ) -> bool {
        let now = Instant::now();
        let changes = &self.inner.definition_changes;
        let is_new = changes.record(gvr, definition, now);
        if is_new {
            self.of(gvr)
                .for_each(|informer| informer.definition_changed(now));
        }
        is_new
    }

    /// Records that the informers of `gvr` may have an old representation and prove nothing until
    /// they are listed again. [`InformerSet::relist`], or a stop, must follow.
    pub(in crate::informer) fn distrust(&self, gvr: &GroupVersionResource) {
        let now = Instant::now();
        self.of(gvr).for_each(|informer| informer.distrust(now));
    }

    /// Returns when the definition of `gvr` was last seen to have changed, if an API server may
    /// have ended a watch at `time` because of that change.
    pub(in crate::informer) fn definition_changed_before(
        &self,
        gvr: &GroupVersionResource,
        time: Instant,
    ) -> Option<Instant> {
        self.inner.definition_changes.before(gvr, time)
    }

    /// Waits until the API server has ended a watch of a custom resource early. Cancel safe.
    pub(in crate::informer) async fn early_end(&self) {
        self.inner.early_end.notified().await;
    }

    /// Makes reflectors try watch-lists again, because the API server may support them now.
    pub(in crate::informer) fn forget_watch_lists(&self) {
        self.inner.watch_lists.forget();
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
