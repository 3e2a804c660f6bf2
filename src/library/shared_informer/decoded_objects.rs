//! DecodedObjects: the objects of a view and their decoded forms, by key and in key order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey};
use slab::Slab;

/// An object and its decoded form; `None` if it cannot be decoded.
pub(super) type Entry<K> = (Arc<Object>, Option<Arc<K>>);

/// Entries by key. A changed object stays at its place, so that only its key is searched for.
pub(super) struct DecodedObjects<K> {
    entries: Slab<Entry<K>>,
    places: HashMap<ObjectKey, usize>,
    /// The places in key order. A search here takes half as long again as in `places`.
    in_order: BTreeMap<ObjectKey, usize>,
}

// === impl DecodedObjects ===

impl<K> DecodedObjects<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: Slab::new(),
            places: HashMap::new(),
            in_order: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Entry<K>> {
        Some(&self.entries[*self.places.get(key)?])
    }

    /// Returns all entries in key order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.in_order.values().map(|place| &self.entries[*place])
    }

    /// Adds the entry of an object, or replaces the entry of its last state and returns it.
    pub(super) fn insert(&mut self, entry: Entry<K>) -> Option<Entry<K>> {
        let key = &entry.0.key;
        if let Some(place) = self.places.get(key) {
            return Some(std::mem::replace(&mut self.entries[*place], entry));
        }
        let key = key.clone();
        let place = self.entries.insert(entry);
        self.places.insert(key.clone(), place);
        self.in_order.insert(key, place);
        None
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Entry<K>> {
        self.in_order.remove(key);
        let place = self.places.remove(key)?;
        Some(self.entries.remove(place))
    }

    /// Makes lists faster after many objects were added: map nodes that are built together are full
    /// and adjacent in memory.
    pub(super) fn rebuild_order(&mut self) {
        self.in_order = std::mem::take(&mut self.in_order).into_iter().collect();
    }
}
