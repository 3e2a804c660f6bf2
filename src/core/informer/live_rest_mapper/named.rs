//! Resources that a program names. It needs only the rights for these resources.

use std::time::Duration;

use super::LiveRestMapper;
use crate::api::{GroupVersionResource, WireFormat};
use crate::informer::{InformerSet, InformerSpec};
use crate::upstream::{Discovery, NotCacheable};

/// The first pause between two requests whether a resource exists; each further
/// pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl LiveRestMapper {
    /// Does what [`LiveRestMapper::spec_or_reason`] does, for a resource that the program names.
    /// If kubefan may not read APIServices, the resource counts as not aggregated, because the
    /// program is responsible for its choice. The proxy must not use this, because its clients
    /// choose the resources.
    ///
    /// # Errors
    ///
    /// The reason why the resource may not be cached.
    #[doc(hidden)]
    pub fn named_informer_spec(
        &self,
        gvr: &GroupVersionResource,
        format: WireFormat,
    ) -> Result<InformerSpec, NotCacheable> {
        let discovered = self.current.load();
        if gvr.is_events() {
            return Err(NotCacheable::Events);
        }
        match self.cacheable_by(&discovered, gvr) {
            Ok(()) => self.spec_of(&discovered, gvr, format),
            Err(NotCacheable::PerhapsAggregated) => {
                if self.details_of(&discovered, gvr).is_forbidden {
                    return Err(NotCacheable::Never);
                }
                let spec = self.spec_of(&discovered, gvr, format);
                // As a custom resource, it is listed again when a watch ends early, because its
                // definition may have changed.
                spec.map(|spec| InformerSpec {
                    custom: true,
                    ..spec
                })
            }
            Err(reason) => return Err(reason),
        }
        .ok_or(NotCacheable::Unknown)
    }

    /// Waits until discovery has the resource `gvr`. Requests the resources of its group and
    /// version at once, again after a second, and then less often, but at least every ten seconds.
    /// Errors are logged. Cancel safe.
    #[doc(hidden)]
    pub async fn wait_for(&self, gvr: &GroupVersionResource, informers: &InformerSet) {
        let is_known = || self.with(|mapper| mapper.resource(gvr).is_some());
        let mut pause = FIRST_PAUSE;
        while !is_known() {
            match Discovery::has(&self.client, gvr).await {
                Ok(true) => {
                    self.refresh(informers).await;
                    if is_known() {
                        return;
                    }
                }
                Ok(false) if pause == FIRST_PAUSE => {
                    tracing::info!(resource = %gvr, "waiting for the resource, which the API server does not have");
                }
                Ok(false) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(resource = %gvr, error, "discovery failed");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
