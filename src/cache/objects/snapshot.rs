//! Snapshot: what a LIST, a GET or the first part of a watch is answered from.

use std::fmt;
use std::sync::Arc;

use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::cache::objects::store::Store;

/// All objects at one resource version; never changes, and a clone is cheap.
///
/// It keeps its objects in memory while it lives, so it should live no longer than its answer.
#[derive(Clone)]
pub struct Snapshot {
    pub(in crate::cache) store: Arc<Store>,
    pub(in crate::cache) resource_version: ResourceVersion,
    pub(in crate::cache) epoch: u64,
    /// Bytes replaced in the cache before it: what was since, a pin of it may hold alone.
    pub(in crate::cache) replaced_bytes: u64,
}

// === impl Snapshot ===

impl Snapshot {
    /// The resource version whose state this is.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Tells histories apart: versions of two epochs can't be compared.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The object at `key`.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.store.get(key.as_str()).cloned()
    }

    /// The selected objects in key order; with `after` only those with greater keys.
    pub fn list<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = Arc<Object>> + Send + 'a> {
        Box::new(self.store.select(selection, after))
    }

    /// The objects that have to be looked at for it, in key order: whether they are selected is left
    /// to a caller who pauses in between, for there may be many.
    pub fn candidates<'a>(
        &'a self,
        selection: &Selection,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + Send + 'a> {
        self.store.candidates(selection, after)
    }

    /// How many objects there are in all.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("resource_version", &self.resource_version)
            .field("objects", &self.len())
            .finish_non_exhaustive()
    }
}
