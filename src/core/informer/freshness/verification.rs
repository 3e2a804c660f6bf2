//! The comparison of a snapshot with a verification list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::evidence::{Difference, MAX_OBJECTS, ObjectState};
use super::plan::ProofRequest;
use crate::api::{ListPage, Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::Snapshot;
use crate::concurrency::CoopBudget;
use crate::mutation;
use crate::mutation::Mutation;

/// Budget units of an object that is added or compared.
const OBJECT_UNITS: usize = CoopBudget::UNITS / 2048;

/// The objects of a verification list, by key. Their uids and resource versions are compared.
pub(super) struct ExpectedObjects(HashMap<ObjectKey, Object>);

/// A received verification list.
pub(super) struct VerificationList {
    pub(super) request: ProofRequest,
    pub(super) expected: ExpectedObjects,
    pub(super) version: ResourceVersion,
    /// The difference from the cache at the list's version or before.
    pub(super) difference: Option<Arc<Difference>>,
}

// === impl ExpectedObjects ===

impl ExpectedObjects {
    /// Returns the objects of `list`. Yields, because a list may have a hundred thousand.
    pub(super) async fn new(list: ListPage) -> Self {
        let mut budget = CoopBudget::new();
        let mut objects = HashMap::with_capacity(list.items.len());
        for item in list.items {
            objects.insert(item.key.clone(), item);
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        Self(objects)
    }

    /// Returns the objects that only one side has, or that differ in uid or resource version, up to
    /// `max`, each with its state in the list. Yields like [`ExpectedObjects::new`].
    pub(super) async fn differing(
        &self,
        snapshot: &Snapshot,
        selection: &Selection,
        max: usize,
    ) -> Vec<(ObjectKey, Option<ObjectState>)> {
        let mut budget = CoopBudget::new();
        let mut differing = Vec::new();
        for object in snapshot.candidates(selection, None) {
            if selection.matches(object) && !self.has_same(object) {
                let listed = self.0.get(&object.key).map(ObjectState::of);
                differing.push((object.key.clone(), listed));
            }
            if differing.len() == max {
                return differing;
            }
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        for (key, listed) in &self.0 {
            let cached = snapshot.get(key);
            if cached.is_none_or(|cached| !selection.matches(&cached)) {
                differing.push((key.clone(), Some(ObjectState::of(listed))));
            }
            if differing.len() == max {
                break;
            }
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        differing
    }

    fn has_same(&self, object: &Object) -> bool {
        let expected = self.0.get(&object.key);
        expected.is_some_and(|expected| {
            expected.uid() == object.uid() && expected.resource_version == object.resource_version
        })
    }

    /// Returns true if `snapshot` holds exactly these objects within `selection`. The comparison is
    /// always of complete sets: an individual key that one side lacks may be deleted already or not
    /// created yet. Guarded by `the_model_notices_each_broken_rule`. Yields like
    /// [`ExpectedObjects::new`].
    pub(super) async fn matches(&self, snapshot: &Snapshot, selection: &Selection) -> bool {
        if mutation::is_active(Mutation::MissingKeysIgnored) {
            let cached = snapshot.list(selection, None);
            let keys: HashSet<_> = cached.map(|object| object.key.clone()).collect();
            return self.0.keys().all(|key| keys.contains(key));
        }
        let mut budget = CoopBudget::new();
        let mut found = 0;
        for object in snapshot.candidates(selection, None) {
            if selection.matches(object) {
                found += 1;
                if !self.has_same(object) {
                    return false;
                }
            }
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        found == self.0.len()
    }
}

// === impl VerificationList ===

impl VerificationList {
    /// Returns the difference between the list and `snapshot`. If there is an earlier difference
    /// from a snapshot that continues the list of `snapshot`, returns that difference.
    pub(super) async fn difference_from(&mut self, snapshot: &Snapshot) -> Arc<Difference> {
        let known = self.difference.take();
        let difference = match known.filter(|known| known.concerns(snapshot)) {
            Some(known) => known,
            None => {
                let request = self.request.clone();
                let selection = &request.selection;
                let objects = self.expected.differing(snapshot, selection, MAX_OBJECTS);
                let objects = objects.await;
                Arc::new(Difference::new(request, self.version, snapshot, objects))
            }
        };
        Arc::clone(self.difference.insert(difference))
    }
}
