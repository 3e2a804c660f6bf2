//! Snapshot: the objects at one resource version, from which a LIST, a GET or the initial part of a
//! watch is answered.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::api::{Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::objects::store::Store;

/// All objects of a cache at one resource version. A snapshot never changes, and a clone is cheap.
///
/// If it was proven for a later version than the cache had applied, only the selected objects are
/// known to be those of this version: see [`Snapshot::is_whole`].
///
/// A snapshot keeps its objects in memory, so drop it as soon as the request is answered.
#[derive(Clone)]
pub struct Snapshot {
    pub(in crate::cache) store: Arc<Store>,
    pub(in crate::cache) resource_version: ResourceVersion,
    pub(in crate::cache) epoch: u64,
    /// The cache's counter of replaced bytes when this snapshot was taken. The increase since then
    /// is an upper bound of the bytes that only this snapshot keeps in memory.
    pub(in crate::cache) replaced_bytes: u64,
    pub(in crate::cache) list_began: Instant,
    /// What selects the objects that are proven for `resource_version`; `None` for all of them.
    pub(in crate::cache) proven: Option<Arc<Selection>>,
}

// === impl Snapshot ===

impl Snapshot {
    /// The resource version at which the API server's state equals this snapshot, or its proven part.
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The number of the epoch. Resource versions of two epochs must not be compared.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A moment before the list was sent from which the cache continues. The snapshot contains all
    /// writes that the API server had acknowledged by then, because that list was of the most recent
    /// state.
    pub fn list_began(&self) -> Instant {
        self.list_began
    }

    /// True if all objects are those of the resource version, not only those of the selection for
    /// which [`Reader::proven_at`](crate::cache::Reader::proven_at) has returned the snapshot.
    pub fn is_whole(&self) -> bool {
        self.proven.is_none()
    }

    /// True if the cache surely had the objects of `earlier` at all versions up to that of this
    /// snapshot: it continues from the same list, and no change was applied in between.
    pub fn has_no_change_since(&self, earlier: &Self) -> bool {
        Arc::ptr_eq(&self.store, &earlier.store) && self.list_began == earlier.list_began
    }

    /// The object at `key`, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.store.get(key.as_str()).cloned()
    }

    /// The objects that `selection` selects, in key order, with keys above `after` if it is given.
    pub fn list<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = Arc<Object>> + Send + Sync + 'a> {
        Box::new(self.store.select(selection, after))
    }

    /// The objects that a list of `selection` has to check, in key order and with keys above
    /// `after`. There may be many, so a caller that wants to yield in between uses this instead of
    /// [`Snapshot::list`] and checks each object itself.
    pub fn candidates<'a>(
        &'a self,
        selection: &Selection,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + Send + Sync + 'a> {
        self.store.candidates(selection, after)
    }

    /// The number of objects of `namespace`, or of all namespaces, with keys above `after`. Takes
    /// some microseconds even if there are many.
    pub fn count_after(&self, namespace: Option<&str>, after: &str) -> usize {
        self.store.count(namespace, Some(after)).keys
    }

    /// The value of [`Reader::replaced_bytes`](crate::cache::Reader::replaced_bytes) when this
    /// snapshot was taken.
    pub fn replaced_bytes(&self) -> u64 {
        self.replaced_bytes
    }

    /// The number of all objects.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// True if the snapshot has no objects.
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
