//! Snapshot: the objects at one resource version. It answers a LIST, a GET or the
//! initial part of a watch.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::api::{Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::objects::store::Store;

/// All objects of a cache at one resource version. A snapshot never changes, and a clone is cheap.
///
/// If it was proven for a later version than the cache had applied, only the selected objects are
/// proven to be those of this version: see [`Snapshot::is_whole`].
///
/// A snapshot holds its objects in memory, so drop it as soon as the request is answered.
#[derive(Clone)]
pub struct Snapshot {
    pub(in crate::cache) store: Arc<Store>,
    pub(in crate::cache) resource_version: ResourceVersion,
    pub(in crate::cache) changed: ResourceVersion,
    pub(in crate::cache) epoch: u64,
    /// The cache's counter of replaced bytes when this snapshot was taken. The increase since then
    /// is an upper bound of the bytes that only this snapshot holds in memory.
    pub(in crate::cache) replaced_bytes: u64,
    pub(in crate::cache) list_began: Instant,
    /// The selection of the objects that are proven for `resource_version`; `None` for all objects.
    pub(in crate::cache) proven: Option<Arc<Selection>>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns the resource version of the snapshot. At this version, the API server's state equals
    /// the snapshot, or the snapshot's proven part.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// Returns the version of the newest change that the snapshot contains. Bookmarks and proofs raise
    /// the resource version, but not this one. The first list of a cache, and a relist, count as
    /// changes.
    pub fn newest_change(&self) -> ResourceVersion {
        self.changed
    }

    /// Returns the number of the epoch. Resource versions of two epochs must not be compared.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns a moment before the list that the snapshot continues was requested. The snapshot
    /// contains all writes that the API server had acknowledged by this moment, because that list
    /// showed the most recent state.
    pub fn list_began(&self) -> Instant {
        self.list_began
    }

    /// Returns true if all objects are proven for the resource version. Returns false if
    /// [`Reader::proven_at`](crate::cache::Reader::proven_at) assigned the version, and only the
    /// objects of a selection were proven.
    pub fn is_whole(&self) -> bool {
        self.proven.is_none()
    }

    /// Returns true if the cache surely had the objects of `earlier` at all versions up to that of
    /// this snapshot: both continue from the same list, and no change was applied in between.
    pub fn has_no_change_since(&self, earlier: &Self) -> bool {
        Arc::ptr_eq(&self.store, &earlier.store) && self.list_began == earlier.list_began
    }

    /// Returns the object at `key`, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.store.get(key.as_str()).cloned()
    }

    /// Returns the objects that `selection` selects, in key order, with keys above
    /// `after` if it is given.
    pub fn list<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = Arc<Object>> + Send + Sync + 'a> {
        Box::new(self.store.select(selection, after))
    }

    /// Returns the objects that a list of `selection` has to check, in key order and with keys
    /// above `after`. There may be many, so a caller that wants to yield in between uses this
    /// instead of [`Snapshot::list`] and checks each object itself.
    pub fn candidates<'a>(
        &'a self,
        selection: &Selection,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + Send + Sync + 'a> {
        self.store.candidates(selection, after)
    }

    /// Returns the number of objects of `namespace`, or of all namespaces, with keys above `after`.
    /// Takes some microseconds even if there are many.
    pub fn count_after(&self, namespace: Option<&str>, after: &str) -> usize {
        self.store.count(namespace, Some(after)).keys
    }

    /// Returns the value of [`Reader::replaced_bytes`](crate::cache::Reader::replaced_bytes) when
    /// this snapshot was taken.
    pub fn replaced_bytes(&self) -> u64 {
        self.replaced_bytes
    }

    /// Returns the number of all objects.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns true if the snapshot has no objects.
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
