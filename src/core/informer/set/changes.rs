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

    /// Returns true unless another definition of `gvr` than `definition` was recorded later.
    pub(in crate::informer) fn is_newest(
        &self,
        gvr: &GroupVersionResource,
        definition: Option<&CustomResource>,
    ) -> bool {
        let changes = &self.inner.definition_changes;
        changes.is_newest(gvr, definition, Instant::now())
    }

    /// Forgets the definition of `gvr` that was recorded, because an older one is valid again.
    pub(in crate::informer) fn forget_definition(&self, gvr: &GroupVersionResource) {
        self.inner.definition_changes.forget(gvr);
    }

    /// Waits until an informer may need a relist because of a doubt. Cancel safe.
    pub(in crate::informer) async fn doubted(&self) {
        self.inner.doubted.notified().await;
    }

    /// Ends a wait of [`InformerSet::doubted`], because discovery was refreshed.
    pub(in crate::informer) fn check_doubts(&self) {
        self.inner.doubted.notify_one();
    }

    /// Makes the informers of `gvr` relist. They prove nothing before.
    pub(in crate::informer) fn distrust(&self, gvr: &GroupVersionResource) {
        let now = Instant::now();
        for informer in self.of(gvr) {
            informer.distrust(now);
            informer.relist_if_queued();
        }
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
