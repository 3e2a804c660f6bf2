//! DecodedObjects: the objects of a view and their decoded forms, by key and in key order.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey};
use slab::Slab;

/// The number of [`DecodedObjects::places`].
const MAPS: usize = 32;

/// An object and its decoded form; `None` if it cannot be decoded.
pub(super) type Entry<K> = (Arc<Object>, Option<Arc<K>>);

/// Entries by key. A changed object stays at its place, so that only its key is searched for.
pub(super) struct DecodedObjects<K> {
    entries: Slab<Entry<K>>,
    /// Chooses the map of a key.
    hasher: RandomState,
    /// The places by key. A map that has become too small moves all of its entries at once, while
    /// readers wait. So there are several maps, which do so at different times.
    places: Vec<HashMap<ObjectKey, usize>>,
    /// The places in key order. A search here takes half as long again as in `places`.
    in_order: BTreeMap<ObjectKey, usize>,
}

// === impl DecodedObjects ===

impl<K> DecodedObjects<K> {
    pub(super) fn new() -> Self {
        Self {
            entries: Slab::new(),
            hasher: RandomState::new(),
            places: (0..MAPS).map(|_| HashMap::new()).collect(),
            in_order: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Entry<K>> {
        let place = self.places[self.map_of(key)].get(key)?;
        Some(&self.entries[*place])
    }

    /// Returns all entries in key order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.after(None)
    }

    /// Returns the entries of the keys above `after`, or all, in key order.
    pub(super) fn after(&self, after: Option<&ObjectKey>) -> impl Iterator<Item = &Entry<K>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let places = self
            .in_order
            .range::<ObjectKey, _>((from, Bound::Unbounded));
        places.map(|(_, place)| &self.entries[*place])
    }

    /// Adds the entry of an object, or replaces the entry of its last state and returns it.
    pub(super) fn insert(&mut self, entry: Entry<K>) -> Option<Entry<K>> {
        let key = &entry.0.key;
        let map = self.map_of(key);
        if let Some(place) = self.places[map].get(key) {
            return Some(std::mem::replace(&mut self.entries[*place], entry));
        }
        let key = key.clone();
        let place = self.entries.insert(entry);
        self.places[map].insert(key.clone(), place);
        self.in_order.insert(key, place);
        None
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Entry<K>> {
        let map = self.map_of(key);
        let place = self.places[map].remove(key)?;
        self.in_order.remove(key);
        Some(self.entries.remove(place))
    }

    /// Returns the number of the map that has `key`, if one has it.
    fn map_of(&self, key: &ObjectKey) -> usize {
        (self.hasher.hash_one(key) % MAPS as u64) as usize
    }
}
