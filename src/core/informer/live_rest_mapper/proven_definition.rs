//! Proves that the caches of a custom resource follow its current definition.
//!
//! A proof of a custom resource compares versions, and a change of the definition gives objects
//! another representation without a new version. kubefan notices the change by its watch of the
//! definitions, but a client may have seen the change at the API server earlier.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::LiveRestMapper;
use crate::api::{GroupVersionResource, ObjectKey, Selection, WireFormat};
use crate::informer::{InformerSet, ProofError, ProofRequest};

impl LiveRestMapper {
    /// Proves that the cached definition of the custom resource `gvr` contains all writes
    /// acknowledged before `asked_at`. If the definition has changed, the caches of `gvr` prove
    /// nothing until they have the new representation. `min_interval` is that of
    /// [`Informer::prove`](crate::informer::Informer::prove). The freshness policy of
    /// CustomResourceDefinitions applies. Returns at once if there is no cache of definitions, for
    /// example because kubefan may not read them. Cancel safe.
    ///
    /// # Errors
    ///
    /// If the cache of the definitions can't be proven. It is no error if kubefan has just lost the
    /// right to read them.
    pub async fn prove_definition(
        &self,
        informers: &InformerSet,
        gvr: &GroupVersionResource,
        asked_at: Instant,
        min_interval: Duration,
    ) -> Result<(), ProofError> {
        let spec = self.known_informer_spec(&Self::definitions(), WireFormat::Json);
        let cache = spec.and_then(|spec| Some((informers.get_ready(&spec, None)?, spec)));
        let Some((cache, spec)) = cache else {
            return Ok(());
        };
        let name = gvr.group_resource();
        let selection = Selection::of_object(None, &name);
        let request = ProofRequest {
            scope: spec.upstream_scope(&selection),
            selection: Arc::new(selection),
        };
        let proof = match cache.prove(request, asked_at, min_interval).await {
            Err(ProofError::Upstream(error)) if error.is_forbidden() || error.is_not_found() => {
                return Ok(());
            }
            // Isolation concerns the definitions, not the resource that is read.
            Err(ProofError::Isolated) => return Err(ProofError::CacheDiffers),
            proof => proof?,
        };
        let definition = proof.snapshot.get(&ObjectKey::new(None, &name));
        if definition.is_some_and(|object| self.doubt_redefined(informers, &object)) {
            self.definition_changed.notify_one();
        }
        Ok(())
    }
}
