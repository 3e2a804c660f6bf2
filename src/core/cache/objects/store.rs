//! Store: the objects of a cache in the API server's list order, with indexes.
//!
//! The store is a persistent data structure: a clone shares all data with the original, and costs
//! only a few reference counts.

use std::sync::Arc;

use imbl::OrdMap;

use crate::api::{Object, ObjectKey, Selection};
use crate::cache::config::Config;
use crate::cache::objects::index::{Candidates, IndexScan, Indexer};
use crate::cache::objects::key_range::{KeyRange, Objects};
use crate::cache::objects::ranks::{Count, Ranks};

/// The objects by key, with their indexes and total size.
#[derive(Clone, Debug)]
pub(in crate::cache) struct Store {
    objects: Objects,
    ranks: Ranks,
    indexer: Indexer,
    bytes: usize,
}

/// The counts of candidates are compared only up to this limit. Larger sets count as equal.
const ESTIMATE_LIMIT: usize = 256;

type InKeyOrder<'a> = Box<dyn Iterator<Item = &'a Arc<Object>> + Send + Sync + 'a>;

// === impl Store ===

impl Store {
    pub(in crate::cache) fn new(config: &Config) -> Self {
        Self {
            objects: OrdMap::new(),
            ranks: Ranks::new(),
            indexer: Indexer::new(config),
            bytes: 0,
        }
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the number of bytes of all objects, including their keys and parsed values.
    pub(in crate::cache) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::cache) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    pub(in crate::cache) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    pub(in crate::cache) fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let previous = self.objects.insert(object.key.clone(), object.clone());
        let objects = &self.objects;
        if previous.is_none() {
            self.ranks.insert(&object.key, objects);
        }
        self.indexer
            .update(previous.as_deref(), Some(&object), objects);
        self.bytes += object.size();
        self.bytes -= previous.as_deref().map_or(0, Object::size);
        previous
    }

    /// Returns true if `previous` and `object` have equal values in all indexes.
    pub(in crate::cache) fn indexes_alike(&self, previous: &Object, object: &Object) -> bool {
        self.indexer.indexes_alike(previous, object)
    }

    /// Replaces the object with the key of `object` by `object`. Both must have equal values in all
    /// indexes. Takes some microseconds.
    pub(in crate::cache) fn replace(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let stored = self.objects.get_mut(&object.key)?;
        self.bytes += object.size();
        self.bytes -= stored.size();
        Some(std::mem::replace(stored, object))
    }

    pub(in crate::cache) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let removed = self.objects.remove(key)?;
        self.ranks.remove(key);
        self.indexer.update(Some(&removed), None, &self.objects);
        self.bytes -= removed.size();
        Some(removed)
    }

    /// Defers the part of the indexes' work that may take many milliseconds, from now
    /// on, to [`Store::settle_indexes`]. Until that has finished, the store must not
    /// be read by selections.
    pub(in crate::cache) fn defer_indexes(&mut self) {
        self.indexer.defer();
    }

    /// Does some of the deferred work, for up to `max` objects. Returns false if nothing is left to
    /// do. Call it again with the same `scan`, which is `None` at first.
    pub(in crate::cache) fn settle_indexes(
        &mut self,
        scan: &mut Option<IndexScan>,
        max: usize,
    ) -> bool {
        self.indexer.settle(&self.objects, scan, max)
    }

    /// Returns the number of objects of `namespace`, or of all, with keys above `after`. It is
    /// found without a walk over them.
    pub(super) fn count(&self, namespace: Option<&str>, after: Option<&str>) -> Count {
        let range = KeyRange::new(namespace, after);
        self.ranks.count(&range, &self.objects)
    }

    /// Returns the objects that `selection` selects, with keys above `after`, in key order.
    pub(in crate::cache) fn select<'a>(
        &'a self,
        selection: &'a Selection,
        after: Option<&str>,
    ) -> impl Iterator<Item = Arc<Object>> + Send + use<'a> {
        let candidates = self.candidates(selection, after);
        let selected = candidates.filter(|object| selection.matches(object));
        selected.cloned()
    }

    /// Returns the objects that a list of `selection` must check, with keys above `after`, in key
    /// order. They are found by key, index or key range, whichever gives the fewest.
    pub(super) fn candidates<'a>(
        &'a self,
        selection: &Selection,
        after: Option<&str>,
    ) -> InKeyOrder<'a> {
        let namespace = selection.single_namespace();
        if let Some(key) = self.only_key(selection, namespace) {
            let object = self.get(&key);
            let is_after = after.is_none_or(|after| key.as_str() > after);
            return Box::new(object.filter(|_| is_after).into_iter());
        }
        let range = KeyRange::new(namespace, after);
        match self.narrowest(selection, &range) {
            Some(index) => Box::new(index.keys(&range).filter_map(|key| self.objects.get(key))),
            None => Box::new(self.range(&range).map(|(_, object)| object)),
        }
    }

    /// See [`Reader::examines_all`](crate::cache::Reader::examines_all).
    pub(in crate::cache) fn examines_all(&self, selection: &Selection) -> bool {
        let has_conditions =
            !selection.labels.requirements.is_empty() || !selection.fields.terms.is_empty();
        has_conditions
            && selection.name().is_none()
            && selection.single_namespace().is_none()
            && !self.indexer.finds(selection)
    }

    /// Returns the index that leaves the fewest objects to check. `None` if `range`
    /// alone leaves as few.
    fn narrowest(&self, selection: &Selection, range: &KeyRange) -> Option<Candidates<'_>> {
        let candidates = self.indexer.candidates(selection);
        if candidates.is_empty() {
            return None;
        }
        let sized = candidates.into_iter().map(|candidates| {
            let size = candidates.keys(range).take(ESTIMATE_LIMIT).count();
            (size, candidates)
        });
        let (size, narrowest) = sized.min_by_key(|(size, _)| *size)?;
        let in_range = self.range(range).take(ESTIMATE_LIMIT).count();
        (size < in_range).then_some(narrowest)
    }

    /// Returns the only key that `selection` can select, or `None` if it can select several keys.
    fn only_key(&self, selection: &Selection, namespace: Option<&str>) -> Option<String> {
        let name = selection.name()?;
        match namespace {
            Some("") => Some(name.to_owned()),
            Some(namespace) => Some(format!("{namespace}/{name}")),
            // A resource is either namespaced or not, so the first object shows which.
            None => {
                let (first, _) = self.objects.get_min()?;
                first.namespace().is_empty().then(|| name.to_owned())
            }
        }
    }

    fn range<'a>(
        &'a self,
        range: &KeyRange,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Object>)> + Send + use<'a> {
        let entries = || self.objects.range::<_, str>(range.bounds());
        (!range.is_empty()).then(entries).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
