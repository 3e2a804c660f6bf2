//! What happens to running informers when the API server has changed.

use std::sync::Arc;

use super::InformerSet;
use crate::api::GroupVersionResource;
use crate::informer::Informer;

// === impl InformerSet ===

impl InformerSet {
    /// Makes all informers of `gvr` relist.
    pub fn relist(&self, gvr: &GroupVersionResource) {
        self.of(gvr).for_each(|informer| informer.relist());
    }

    /// Records that the definition of `gvr` has changed: its informers prove nothing until they
    /// were listed again. [`InformerSet::relist`], or a stop, must follow.
    pub(in crate::informer) fn doubt(&self, gvr: &GroupVersionResource) {
        self.of(gvr).for_each(|informer| informer.doubt());
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
