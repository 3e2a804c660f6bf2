//! Index: finds objects by the values that a function returns for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey};

/// Returns the values by which an index finds an object. An object may have any number of them.
pub(super) type IndexFunction<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Why an index cannot be added or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Another index has this name.
    #[error("there is already an index {0:?}")]
    Exists(String),
    /// No index has this name, or another thread is still adding it.
    #[error("there is no index {0:?}; add it with SharedInformer::add_index")]
    Missing(String),
}

/// The objects by one index function's values. There is no hash map: one that has become too small
/// moves all of its entries at once, while readers wait.
#[derive(Default)]
pub(super) struct Index {
    objects: BTreeMap<String, BTreeMap<ObjectKey, Arc<Object>>>,
    /// The values of each object, to remove it without calling the function for its old state.
    values: BTreeMap<ObjectKey, Vec<String>>,
}

// === impl Index ===

impl Index {
    /// Counts the objects that have a value.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds `object`, or replaces its old state, with these values.
    pub(super) fn insert(&mut self, object: &Arc<Object>, mut values: Vec<String>) {
        self.remove(&object.key);
        if values.is_empty() {
            return;
        }
        values.sort_unstable();
        values.dedup();
        for value in &values {
            let found = self.objects.entry(value.clone()).or_default();
            found.insert(object.key.clone(), Arc::clone(object));
        }
        self.values.insert(object.key.clone(), values);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        for value in self.values.remove(key).unwrap_or_default() {
            if let Some(found) = self.objects.get_mut(&value) {
                found.remove(key);
                if found.is_empty() {
                    self.objects.remove(&value);
                }
            }
        }
    }

    /// Returns the objects that have `value`, in key order.
    pub(super) fn find(&self, value: &str) -> impl Iterator<Item = &Arc<Object>> {
        let found = self.objects.get(value).into_iter();
        found.flat_map(BTreeMap::values)
    }

    /// Returns all values that any object has, sorted.
    pub(super) fn values(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }
}
