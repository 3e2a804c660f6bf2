//! Reached: the state that a handler has received, and the steps from there to a newer one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey, ResourceVersion, Selection};
use kubefan_core::cache::Snapshot;
use kubefan_core::concurrency::{CoopBudget, drop_elsewhere};

/// From this number of objects on, old states are freed on another thread. Lower in tests, which
/// have few objects.
pub(super) const MANY: usize = if cfg!(test) { 8 } else { 1000 };
/// Budget units of an object that is copied or compared.
const UNITS_PER_OBJECT: usize = CoopBudget::UNITS / 4096;

/// One change that a handler receives next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Added {
        object: Arc<Object>,
        is_initial_list: bool,
    },
    Updated {
        old: Arc<Object>,
        new: Arc<Object>,
    },
    Deleted {
        /// The state that the handler received last.
        before: Arc<Object>,
        /// The last state that the cache received.
        object: Arc<Object>,
        is_final_state_known: bool,
    },
}

/// The objects that a handler has received, in their last received states.
#[derive(Default)]
pub(super) enum Reached {
    /// Nothing was recorded yet.
    #[default]
    Nothing,
    /// All objects of a cache: those of a snapshot, and the changes since then.
    Everything {
        base: Snapshot,
        /// The objects that changed after `base`, in their last state; `None` if an object is gone.
        /// A hash map would move all entries at once when it has become too small, and the handler's
        /// thread would do nothing else in that time.
        since: BTreeMap<ObjectKey, Option<Arc<Object>>>,
    },
    /// The selected objects of a cache. A snapshot would also hold the old states of all other
    /// objects (`a_narrow_handler_keeps_only_the_objects_that_it_selects`).
    Selected(BTreeMap<ObjectKey, Arc<Object>>),
}

// === impl Step ===

impl Step {
    /// Returns the step of an object that was present at first.
    pub(super) fn initial(object: Arc<Object>) -> Self {
        Self::Added {
            object,
            is_initial_list: true,
        }
    }

    /// Returns the step from the state `known`, if the object existed, to the state `object`.
    pub(super) fn between(known: Option<&Arc<Object>>, object: Arc<Object>) -> Self {
        match known {
            Some(known) => Self::Updated {
                old: Arc::clone(known),
                new: object,
            },
            None => Self::Added {
                object,
                is_initial_list: false,
            },
        }
    }

    /// Returns the step of an object if its deletion was not seen.
    pub(super) fn missed_deletion(object: &Arc<Object>) -> Self {
        Self::Deleted {
            before: Arc::clone(object),
            object: Arc::clone(object),
            is_final_state_known: false,
        }
    }
}

// === impl Reached ===

impl Reached {
    /// Returns the state of a handler that has received all objects of `snapshot`.
    pub(super) fn everything(snapshot: Snapshot) -> Self {
        Self::Everything {
            base: snapshot,
            since: BTreeMap::new(),
        }
    }

    /// Records that the handler has received the state `object` of the object at `key`;
    /// `None` if it is gone.
    pub(super) fn apply(&mut self, key: ObjectKey, object: Option<Arc<Object>>) {
        match (self, object) {
            (Self::Nothing, _) => {}
            (Self::Everything { since, .. }, object) => {
                since.insert(key, object);
            }
            (Self::Selected(objects), Some(object)) => {
                objects.insert(key, object);
            }
            (Self::Selected(objects), None) => {
                objects.remove(&key);
            }
        }
    }

    /// Counts the objects that have changed since the snapshot; 0 if there is no snapshot.
    pub(super) fn changed(&self) -> usize {
        match self {
            Self::Nothing | Self::Selected(_) => 0,
            Self::Everything { since, .. } => since.len(),
        }
    }

    /// Returns true if there is a snapshot of an earlier version than `version`.
    pub(super) fn is_older_than(&self, version: ResourceVersion) -> bool {
        match self {
            Self::Nothing | Self::Selected(_) => false,
            Self::Everything { base, .. } => base.resource_version() < version,
        }
    }

    /// Collects the objects that the handler has received, in key order.
    async fn objects(&self, budget: &mut CoopBudget) -> Vec<Arc<Object>> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Everything { base, since } => {
                let everything = Selection::default();
                let merged = merged(base.list(&everything, None), since);
                collect(merged, budget).await
            }
            Self::Selected(objects) => collect(objects.values().cloned().map(Some), budget).await,
        }
    }

    /// Returns the steps that report all objects again, and the unchanged state.
    pub(super) async fn resync(self) -> (VecDeque<Step>, Self) {
        let mut budget = CoopBudget::new();
        let again = |object| Step::Updated {
            old: Arc::clone(&object),
            new: object,
        };
        let objects = self.objects(&mut budget).await.into_iter();
        let steps = collect(objects.map(|object| Some(again(object))), &mut budget).await;
        (steps.into(), self)
    }

    /// Returns the steps that lead to the objects of `selection` in `snapshot`, and
    /// the state after them.
    pub(super) async fn advance(
        self,
        snapshot: Snapshot,
        selection: Arc<Selection>,
    ) -> (VecDeque<Step>, Self) {
        let mut budget = CoopBudget::new();
        // No index may fit the selection. Then all objects of the cache are tested, even if few are
        // selected, so the budget counts candidates.
        let candidates = snapshot.candidates(&selection, None);
        let selected =
            candidates.map(|object| selection.matches(object).then(|| Arc::clone(object)));
        let new = collect(selected, &mut budget).await;
        let reached = if selection.is_everything() {
            Self::everything(snapshot)
        } else {
            let mut selected = BTreeMap::new();
            for object in &new {
                selected.insert(object.key.clone(), Arc::clone(object));
                after_object(&mut budget).await;
            }
            Self::Selected(selected)
        };
        let steps = match self {
            Self::Nothing => {
                let steps = new.into_iter().map(|object| Some(Step::initial(object)));
                collect(steps, &mut budget).await.into()
            }
            old => {
                let known = old.objects(&mut budget).await;
                let steps = difference(&known, &new, &mut budget).await;
                if known.len().max(new.len()) >= MANY {
                    drop_elsewhere((old, known, new));
                }
                steps
            }
        };
        (steps, reached)
    }
}

/// Yields if the budget is spent after work for one more object.
async fn after_object(budget: &mut CoopBudget) {
    budget.charge(UNITS_PER_OBJECT);
    budget.proceed().await;
}

/// Collects the items that are not `None`, and yields in between.
async fn collect<T>(items: impl Iterator<Item = Option<T>>, budget: &mut CoopBudget) -> Vec<T> {
    let mut collected = Vec::new();
    for item in items {
        collected.extend(item);
        after_object(budget).await;
    }
    collected
}

/// Merges `base` with the newer states of `since`, in key order; `None` for an object that is gone.
fn merged(
    base: impl Iterator<Item = Arc<Object>>,
    since: &BTreeMap<ObjectKey, Option<Arc<Object>>>,
) -> impl Iterator<Item = Option<Arc<Object>>> {
    let (mut base, mut since) = (base.peekable(), since.iter().peekable());
    let next = move || {
        let Some((key, _)) = since.peek() else {
            return base.next().map(Some);
        };
        if let Some(before) = base.next_if(|object| object.key < **key) {
            return Some(Some(before));
        }
        base.next_if(|object| object.key == **key);
        since.next().map(|(_, changed)| changed.clone())
    };
    std::iter::from_fn(next)
}

/// Returns the steps that lead from `old` to `new`, both in key order: first the deletions, then
/// the additions and updates by resource version, as the cache orders the difference of a relist.
/// An object that was recreated with another uid is deleted and added.
async fn difference(
    old: &[Arc<Object>],
    new: &[Arc<Object>],
    budget: &mut CoopBudget,
) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    // The number distinguishes objects with equal versions.
    let mut changed = BTreeMap::new();
    let mut old = old.iter().peekable();
    for (number, object) in new.iter().enumerate() {
        while let Some(gone) = old.next_if(|old| old.key < object.key) {
            steps.push_back(Step::missed_deletion(gone));
            after_object(budget).await;
        }
        let known = old.next_if(|old| old.key == object.key);
        after_object(budget).await;
        if known.is_some_and(|known| Arc::ptr_eq(known, object)) {
            continue;
        }
        if known.is_some_and(|known| known.resource_version == object.resource_version) {
            // The comparison below then reads the objects' bytes.
            budget.charge(object.body.len());
        }
        if known == Some(object) {
            continue;
        }
        let is_recreated = known.is_some_and(|known| known.uid() != object.uid());
        if is_recreated {
            steps.extend(known.map(Step::missed_deletion));
        }
        let known = known.filter(|_| !is_recreated);
        changed.insert((object.resource_version, number), (object, known));
    }
    for gone in old {
        steps.push_back(Step::missed_deletion(gone));
        after_object(budget).await;
    }
    for (object, known) in changed.into_values() {
        steps.push_back(Step::between(known, Arc::clone(object)));
        after_object(budget).await;
    }
    steps
}

#[cfg(test)]
mod tests {
    use kubefan_core::api::ObjectValues;

    use super::*;

    fn object(name: &str, version: u64, uid: &str) -> Arc<Object> {
        let values = ObjectValues {
            uid: uid.into(),
            ..ObjectValues::default()
        };
        let key = ObjectKey::new(Some("n"), name);
        let version = ResourceVersion(version);
        Arc::new(Object::new(key, version, &values, Default::default()))
    }

    /// Returns a step as text: `+` added, `~` updated, `-` deleted, with the version.
    fn text(step: &Step) -> String {
        let name = |object: &Object| format!("{}{}", object.key.name(), object.resource_version);
        match step {
            Step::Added { object, .. } => format!("+{}", name(object)),
            Step::Updated { old, new } => format!("{}~{}", name(old), name(new)),
            Step::Deleted { object, .. } => format!("-{}", name(object)),
        }
    }

    #[tokio::test]
    async fn the_difference_deletes_first_and_follows_the_versions() {
        let old = [
            object("a", 1, "1"),
            object("b", 2, "2"),
            object("c", 3, "3"),
            object("d", 4, "4"),
            object("f", 5, "5"),
        ];
        let new = [
            object("b", 9, "2"),
            old[2].clone(),
            object("d", 8, "recreated"),
            object("e", 7, "7"),
        ];
        let budget = &mut CoopBudget::new();
        let steps = difference(&old, &new, budget).await;
        let steps: Vec<_> = steps.iter().map(text).collect();
        assert_eq!(steps, ["-a1", "-d4", "-f5", "+e7", "+d8", "b2~b9"]);
        assert!(difference(&new, &new, budget).await.is_empty());
    }

    #[test]
    fn later_states_replace_those_of_the_snapshot() {
        let base = ["b", "d", "f"].map(|name| object(name, 1, name));
        let mut since = BTreeMap::new();
        for (name, state) in [("a", Some(2)), ("d", Some(3)), ("f", None), ("g", Some(4))] {
            let state = state.map(|version| object(name, version, name));
            since.insert(ObjectKey::new(Some("n"), name), state);
        }
        let objects = merged(base.into_iter(), &since).flatten();
        let found: Vec<_> = objects.map(|object| text(&Step::initial(object))).collect();
        assert_eq!(found, ["+a2", "+b1", "+d3", "+g4"]);
    }
}
