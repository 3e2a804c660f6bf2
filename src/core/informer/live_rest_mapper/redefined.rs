//! Doubts the caches of resources that were defined anew, and relists them at the right time.

use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::{Instant, sleep_until};

use super::LiveRestMapper;
use crate::api::{GroupVersionResource, Object};
use crate::informer::{Informer, InformerSet};
use crate::upstream::RestMapper;

/// How long a relist waits for discovery. It may fail, or its documents may have been fetched before
/// the event that it is compared with.
const DISCOVERY_WAIT: Duration = Duration::from_secs(1);

impl LiveRestMapper {
    /// Suspends proofs by the caches of the resources that `object`, a CustomResourceDefinition,
    /// defines in another way than is known, until a list has the new representation. Returns true
    /// if the change is new. A refresh of discovery must follow.
    pub(super) fn doubt_redefined(&self, informers: &InformerSet, object: &Object) -> bool {
        // If the definition can't be decoded, the refresh reports that.
        let Ok(definition) = self.definitions.lock().decode(object) else {
            return false;
        };
        let discovered = self.current.load();
        let redefined = discovered.mapper.redefined_by(&definition);
        let is_new = redefined.map(|(gvr, custom)| informers.definition_changed(gvr, custom));
        is_new.fold(false, |any, is_new| any | is_new)
    }

    /// Suspends proofs by the caches of the resources `changed` between two discoveries. It is
    /// called before the mapper `after` is used: reads that see it must not be answered by the old
    /// caches.
    pub(super) fn doubt_changed(
        &self,
        before: &RestMapper,
        after: &RestMapper,
        changed: &[GroupVersionResource],
        informers: &InformerSet,
    ) {
        for gvr in changed {
            let (known, custom) = (before.custom_resource(gvr), after.custom_resource(gvr));
            match custom {
                None => informers.distrust(gvr),
                Some(custom) if known != Some(custom) => {
                    if known.is_some_and(|known| custom.is_older_than(known)) {
                        informers.inner.definition_changes.forget(gvr);
                    }
                    informers.definition_changed(gvr, custom);
                }
                Some(_) => {}
            }
        }
    }

    /// Relists the informers in doubt that the API server has not ended the watch of. Waits a moment
    /// until discovery has the new definition too, because it may stop the informers instead.
    pub(super) async fn relist_doubted(&self, informers: &InformerSet) {
        loop {
            let all = informers.all().into_iter();
            let next = all
                .filter_map(|informer| self.relist_due(informers, &informer))
                .min();
            let due = OptionFuture::from(next.map(sleep_until));
            tokio::select! {
                () = informers.inner.doubted.notified() => continue,
                Some(()) = due => {}
            }
            for informer in informers.all() {
                let due = self.relist_due(informers, &informer);
                if due.is_some_and(|due| due <= Instant::now()) {
                    let resource = &informer.resource().gvr;
                    tracing::info!(%resource, "the definition changed, listing again");
                    informer.relist();
                }
            }
        }
    }

    fn relist_due(&self, informers: &InformerSet, informer: &Informer) -> Option<Instant> {
        let gvr = &informer.resource().gvr;
        let due = informer.relist_due()?;
        let discovered = self.current.load();
        let custom = discovered.mapper.custom_resource(gvr);
        let changes = &informers.inner.definition_changes;
        if changes.is_newest(gvr, custom, Instant::now()) {
            Some(due)
        } else {
            Some(due + DISCOVERY_WAIT)
        }
    }
}
