//! The comparison of a snapshot with a verification list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::evidence::{Difference, MAX_OBJECTS, ObjectState};
use super::plan::ProofRequest;
use crate::api::{ListPage, Object, ObjectKey, ResourceVersion};
use crate::cache::Snapshot;
use crate::concurrency::CoopBudget;
use crate::mutation;
use crate::mutation::Mutation;

/// Budget units of an object that is added or compared.
const OBJECT_UNITS: usize = CoopBudget::UNITS / 2048;

/// A received verification list.
pub(super) struct VerificationList {
    pub(super) request: ProofRequest,
    /// The listed objects, by key. Their uids and resource versions are compared.
    expected: HashMap<ObjectKey, Object>,
    pub(super) version: ResourceVersion,
    /// The difference from the cache at the list's version or before.
    pub(super) difference: Option<Arc<Difference>>,
}

impl VerificationList {
    /// Creates the list for `request` with the objects of `page`. Yields, because a list may have a
    /// hundred thousand.
    pub(super) async fn new(request: ProofRequest, page: ListPage) -> Self {
        let mut budget = CoopBudget::new();
        let mut expected = HashMap::with_capacity(page.items.len());
        for item in page.items {
            expected.insert(item.key.clone(), item);
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        Self {
            request,
            expected,
            version: page.resource_version,
            difference: None,
        }
    }

    /// Returns the objects that only one side has, or that differ in uid or resource version, up to
    /// [`MAX_OBJECTS`], each with its state in the list. Yields like [`VerificationList::new`].
    async fn differing(&self, snapshot: &Snapshot) -> Vec<(ObjectKey, Option<ObjectState>)> {
        let selection = &self.request.selection;
        let mut budget = CoopBudget::new();
        let mut differing = Vec::new();
        for object in snapshot.candidates(selection, None) {
            if selection.matches(object) && !self.has_same(object) {
                let listed = self.expected.get(&object.key).map(ObjectState::of);
                differing.push((object.key.clone(), listed));
            }
            if differing.len() == MAX_OBJECTS {
                return differing;
            }
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        for (key, listed) in &self.expected {
            let cached = snapshot.get(key);
            if cached.is_none_or(|cached| !selection.matches(&cached)) {
                differing.push((key.clone(), Some(ObjectState::of(listed))));
            }
            if differing.len() == MAX_OBJECTS {
                break;
            }
            budget.charge(OBJECT_UNITS);
            budget.proceed().await;
        }
        differing
    }

    fn has_same(&self, object: &Object) -> bool {
        let expected = self.expected.get(&object.key);
        expected.is_some_and(|expected| {
            expected.uid() == object.uid() && expected.resource_version == object.resource_version
        })
    }

    /// Returns true if `snapshot` holds exactly these objects in the selection. The comparison is
    /// always of complete sets: an individual key that one side lacks may be deleted already or not
    /// created yet. Guarded by `the_model_notices_each_broken_rule`. Yields like
    /// [`VerificationList::new`].
    pub(super) async fn matches(&self, snapshot: &Snapshot) -> bool {
        let selection = &self.request.selection;
        if mutation::is_active(Mutation::MissingKeysIgnored) {
            let cached = snapshot.list(selection, None);
            let keys: HashSet<_> = cached.map(|object| object.key.clone()).collect();
            return self.expected.keys().all(|key| keys.contains(key));
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
        found == self.expected.len()
    }

    /// Returns the difference between the list and `snapshot`. If there is an earlier difference
    /// from a snapshot that continues the list of `snapshot`, returns that difference.
    pub(super) async fn difference_from(&mut self, snapshot: &Snapshot) -> Arc<Difference> {
        let known = self.difference.take();
        let difference = match known.filter(|known| known.concerns(snapshot)) {
            Some(known) => known,
            None => {
                let objects = self.differing(snapshot).await;
                let request = self.request.clone();
                Arc::new(Difference::new(request, self.version, snapshot, objects))
            }
        };
        Arc::clone(self.difference.insert(difference))
    }
}
