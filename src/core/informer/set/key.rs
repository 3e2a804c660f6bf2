//! What distinguishes the informers of the set.

use crate::api::{GroupVersionResource, Selection, WireFormat};
use crate::informer::{InformerSpec, ObjectContent, TransformId};
use crate::upstream::Scope;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) gvr: GroupVersionResource,
    pub(super) format: WireFormat,
    pub(super) scope: Scope,
    pub(super) content: ObjectContent,
    /// The informer's own transform, if it has one.
    pub(super) transform: Option<TransformId>,
}

// === impl Key ===

impl Key {
    /// Returns the key of an informer of the objects of `scope`, of all shards.
    pub(super) fn of(
        spec: &InformerSpec,
        scope: &Selection,
        content: ObjectContent,
        transform: Option<TransformId>,
    ) -> Self {
        Self {
            gvr: spec.resource.gvr.clone(),
            format: spec.format,
            content,
            transform,
            scope: spec.upstream_scope(scope),
        }
    }
}
