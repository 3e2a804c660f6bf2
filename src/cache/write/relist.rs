//! Relist: a new full list on its way in, and how it differs from what is stored.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::cache::objects::Store;
use crate::cache::stats::EpochCause;
use crate::cache::write::difference::Difference;

/// A list being received, page by page or as the initial events of a watch-list.
///
/// It holds a key and a handle for each object that is stored already, and the bytes of others.
pub struct Relist {
    base: Arc<Store>,
    items: HashMap<ObjectKey, Arc<Object>>,
}

// === impl Relist ===

impl Relist {
    pub(super) fn new(base: Arc<Store>) -> Self {
        let items = HashMap::with_capacity(base.len());
        Self { base, items }
    }

    /// Adds an object of the list, or its newer state; the order doesn't matter.
    pub fn add(&mut self, object: Object) {
        self.insert(object, None);
    }

    /// As [`Relist::add`], of an object whose body is a slice of `frame`, which is not kept where
    /// that would take more memory than a copy of the body.
    pub fn add_from_frame(&mut self, object: Object, frame: &[u8]) {
        self.insert(object, Some(frame.len()));
    }

    fn insert(&mut self, mut object: Object, allocated: Option<usize>) {
        let stored = self.base.get(object.key.as_str());
        if let Some(stored) = stored.filter(|stored| ***stored == object) {
            self.items.insert(stored.key.clone(), stored.clone());
            return;
        }
        let detached = allocated.and_then(|allocated| object.with_own_body(allocated));
        object = detached.unwrap_or(object);
        if let Some(stored) = stored {
            object.key = stored.key.clone();
        }
        self.items.insert(object.key.clone(), Arc::new(object));
    }

    /// Takes an object out again that was deleted before the list was complete.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.items.remove(key);
    }

    /// How many objects were added.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The store that holds exactly the list; `empty` says what is indexed.
    pub(super) fn to_store(&self, mut empty: Store) -> Store {
        for object in self.items.values() {
            empty.insert(object.clone());
        }
        empty
    }

    /// How the list, complete at `list`, differs from `before`, the state at `applied`.
    pub(super) fn difference(
        &self,
        before: &Store,
        applied: ResourceVersion,
        list: ResourceVersion,
    ) -> Result<Difference, EpochCause> {
        if list < applied {
            return Err(EpochCause::WentBack);
        }
        let mut store = before.clone();
        let mut deleted = Vec::new();
        for stored in before.objects() {
            let listed = self.items.get(&stored.key);
            if listed.is_none_or(|listed| listed.uid() != stored.uid()) {
                store.remove(&stored.key);
                deleted.push(stored.clone());
            }
        }
        // Two states of one resource version.
        if list == applied && !deleted.is_empty() {
            return Err(EpochCause::WentBack);
        }
        let mut changed = Vec::new();
        for listed in self.items.values() {
            let stored = store.get(listed.key.as_str());
            if is_change(stored, listed, applied, list)? {
                changed.push(listed.clone());
            }
        }
        changed.sort_unstable_by_key(|object| object.resource_version);
        let mut put = |object: Arc<Object>| {
            let previous = store.insert(object.clone());
            (object, previous)
        };
        let changed = changed.into_iter().map(&mut put).collect();
        Ok(Difference {
            store,
            deleted,
            changed,
        })
    }
}

/// True when `listed` must be told to those who know `stored`.
fn is_change(
    stored: Option<&Arc<Object>>,
    listed: &Arc<Object>,
    applied: ResourceVersion,
    list: ResourceVersion,
) -> Result<bool, EpochCause> {
    if let Some(stored) = stored {
        if Arc::ptr_eq(stored, listed) || stored == listed {
            return Ok(false);
        }
        if stored.resource_version == listed.resource_version {
            return Err(EpochCause::BytesDiffer);
        }
    }
    // Everything up to `applied` is stored, and nothing beyond `list` can be in it.
    if listed.resource_version <= applied || listed.resource_version > list {
        return Err(EpochCause::WentBack);
    }
    Ok(true)
}
