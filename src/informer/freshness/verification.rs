//! Comparing the cache with what the API server lists.

use std::collections::HashMap;
use std::collections::HashSet;

use crate::api::ListPage;
use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::Selection;
use crate::cache::Snapshot;
use crate::mutation;
use crate::mutation::Mutation;

/// So many keys that differ are logged.
const LOGGED_KEYS: usize = 5;

/// Who must be there, at which version each.
pub(super) struct ExpectedObjects(HashMap<ObjectKey, Object>);

impl ExpectedObjects {
    pub(super) fn new(list: ListPage) -> Self {
        let items = list.items.into_iter();
        Self(items.map(|item| (item.key.clone(), item)).collect())
    }

    /// Some keys that only one of the two has, or each at another version.
    pub(super) fn differing_keys(&self, snapshot: &Snapshot, selection: &Selection) -> Vec<String> {
        let cached: HashMap<_, _> = snapshot
            .list(selection, None)
            .map(|object| (object.key.clone(), object))
            .collect();
        let missing = self.0.keys().filter(|key| !cached.contains_key(*key));
        let others = cached.values().filter(|object| !self.has_same(object));
        let others = others.map(|object| object.key.to_string());
        let missing = missing.map(ObjectKey::to_string);
        missing.chain(others).take(LOGGED_KEYS).collect()
    }

    fn has_same(&self, object: &Object) -> bool {
        let expected = self.0.get(&object.key);
        expected.is_some_and(|expected| {
            expected.uid() == object.uid() && expected.resource_version == object.resource_version
        })
    }

    /// The whole set at once: of a single key one can't say whether it is there no more or not yet.
    pub(super) fn matches(&self, snapshot: &Snapshot, selection: &Selection) -> bool {
        let mut found = 0;
        let mut cached = snapshot.list(selection, None);
        if mutation::is_active(Mutation::MissingKeysIgnored) {
            let keys: HashSet<_> = cached.map(|object| object.key.clone()).collect();
            return self.0.keys().all(|key| keys.contains(key));
        }
        let all_same = cached.all(|object| {
            found += 1;
            self.has_same(&object)
        });
        all_same && found == self.0.len()
    }
}
