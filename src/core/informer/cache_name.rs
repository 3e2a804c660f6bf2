//! CacheName: what distinguishes a cache from others, as plain values.

use super::{Informer, ObjectContent};
use crate::api::{GroupVersionResource, WireFormat};
use crate::upstream::Scope;

/// The resource, format and scope of a cache, for people and programs that observe kubefan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheName {
    /// The resource of the objects.
    pub resource: GroupVersionResource,
    /// The wire format of the objects.
    pub format: WireFormat,
    /// The part of each object that the cache has.
    pub content: ObjectContent,
    /// Which objects the cache has.
    pub scope: Scope,
}

impl CacheName {
    /// Returns the name of the cache of `informer`.
    pub fn of(informer: &Informer) -> Self {
        Self {
            resource: informer.resource().gvr.clone(),
            format: informer.format(),
            content: informer.content(),
            scope: informer.upstream_scope(),
        }
    }
}
