//! Reached: the state that a handler was told, and the steps from there to a newer one.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::Object;
use crate::api::ObjectKey;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::cache::Snapshot;

/// One change that a handler is told next.
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
        /// The state that the handler was told last.
        before: Arc<Object>,
        /// The last known state.
        object: Arc<Object>,
        is_final_state_known: bool,
    },
}

/// The objects that a handler knows.
#[derive(Default)]
pub(super) enum Reached {
    /// Nothing was recorded yet.
    #[default]
    Nothing,
    /// All objects of a cache: those of a snapshot, and the changes since then.
    Everything {
        base: Snapshot,
        /// The objects that changed after `base`, in their last state; `None` if an object is gone.
        since: HashMap<ObjectKey, Option<Arc<Object>>>,
    },
    /// The selected objects of a cache. A snapshot would also keep the old states of all others
    /// (`a_narrow_handler_keeps_only_the_objects_that_it_selects`).
    Selected(BTreeMap<ObjectKey, Arc<Object>>),
}

// === impl Step ===

impl Step {
    /// The step of an object that was present at first.
    pub(super) fn initial(object: Arc<Object>) -> Self {
        Self::Added {
            object,
            is_initial_list: true,
        }
    }

    /// The step of an object whose deletion was not seen.
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
    /// The state of `snapshot`, of which the handler knows the objects of `selection`.
    pub(super) fn new(snapshot: Snapshot, selection: &Selection) -> Self {
        if selection.is_everything() {
            return Self::Everything {
                base: snapshot,
                since: HashMap::new(),
            };
        }
        let selected = snapshot.list(selection, None);
        Self::Selected(
            selected
                .map(|object| (object.key.clone(), object))
                .collect(),
        )
    }

    /// Records that the handler was told the state of the object at `key`.
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

    /// How many objects have changed since the snapshot, if there is one.
    pub(super) fn changed(&self) -> usize {
        match self {
            Self::Nothing | Self::Selected(_) => 0,
            Self::Everything { since, .. } => since.len(),
        }
    }

    /// True if there is a snapshot, and it is of an earlier version than `version`.
    pub(super) fn is_older_than(&self, version: ResourceVersion) -> bool {
        match self {
            Self::Nothing | Self::Selected(_) => false,
            Self::Everything { base, .. } => base.resource_version() < version,
        }
    }

    /// The objects that the handler knows, in key order.
    pub(super) fn objects(&self) -> Vec<Arc<Object>> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Everything { base, since } => {
                let since = since.iter().map(|(key, object)| (key, object.as_ref()));
                merged(base.list(&Selection::default(), None), since.collect())
            }
            Self::Selected(objects) => objects.values().cloned().collect(),
        }
    }
}

/// `base` in key order, with the states of `since` in place of its own.
fn merged(
    base: impl Iterator<Item = Arc<Object>>,
    since: BTreeMap<&ObjectKey, Option<&Arc<Object>>>,
) -> Vec<Arc<Object>> {
    let mut since = since.into_iter().peekable();
    let mut objects = Vec::new();
    for object in base {
        while let Some((_, changed)) = since.next_if(|(key, _)| **key < object.key) {
            objects.extend(changed.cloned());
        }
        match since.next_if(|(key, _)| **key == object.key) {
            Some((_, changed)) => objects.extend(changed.cloned()),
            None => objects.push(object),
        }
    }
    objects.extend(since.filter_map(|(_, changed)| changed.cloned()));
    objects
}

/// The steps that lead from `old` to `new`, both in key order: first the deletions, then the others
/// by resource version, as the cache orders the difference of a relist. An object that was recreated
/// with another uid is deleted and added.
pub(super) fn difference(old: &[Arc<Object>], new: &[Arc<Object>]) -> VecDeque<Step> {
    let (mut steps, mut changed) = (VecDeque::new(), Vec::new());
    let mut old = old.iter().peekable();
    for object in new {
        while let Some(gone) = old.next_if(|old| old.key < object.key) {
            steps.push_back(Step::missed_deletion(gone));
        }
        match old.next_if(|old| old.key == object.key) {
            Some(known) if Arc::ptr_eq(known, object) || known == object => {}
            Some(known) if known.uid() == object.uid() => changed.push((object, Some(known))),
            Some(known) => {
                steps.push_back(Step::missed_deletion(known));
                changed.push((object, None));
            }
            None => changed.push((object, None)),
        }
    }
    steps.extend(old.map(Step::missed_deletion));
    changed.sort_by_key(|(object, _)| object.resource_version);
    steps.extend(changed.into_iter().map(|(object, known)| match known {
        Some(known) => Step::Updated {
            old: Arc::clone(known),
            new: Arc::clone(object),
        },
        None => Step::Added {
            object: Arc::clone(object),
            is_initial_list: false,
        },
    }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectValues;

    fn object(name: &str, version: u64, uid: &str) -> Arc<Object> {
        let values = ObjectValues {
            uid: uid.into(),
            ..ObjectValues::default()
        };
        let key = ObjectKey::new(Some("n"), name);
        let version = ResourceVersion(version);
        Arc::new(Object::new(key, version, &values, Default::default()))
    }

    /// A step as text: `+` added, `~` updated, `-` deleted, with the version.
    fn text(step: &Step) -> String {
        let name = |object: &Object| format!("{}{}", object.key.name(), object.resource_version);
        match step {
            Step::Added { object, .. } => format!("+{}", name(object)),
            Step::Updated { old, new } => format!("{}~{}", name(old), name(new)),
            Step::Deleted { object, .. } => format!("-{}", name(object)),
        }
    }

    #[test]
    fn the_difference_deletes_first_and_follows_the_versions() {
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
        let steps: Vec<_> = difference(&old, &new).iter().map(text).collect();
        assert_eq!(steps, ["-a1", "-d4", "-f5", "+e7", "+d8", "b2~b9"]);
        assert!(difference(&new, &new).is_empty());
    }

    #[test]
    fn later_states_replace_those_of_the_snapshot() {
        let base = ["b", "d", "f"].map(|name| object(name, 1, name));
        let mut since = HashMap::new();
        for (name, state) in [("a", Some(2)), ("d", Some(3)), ("f", None), ("g", Some(4))] {
            let state = state.map(|version| object(name, version, name));
            since.insert(ObjectKey::new(Some("n"), name), state);
        }
        let since = since.iter().map(|(key, object)| (key, object.as_ref()));
        let objects = merged(base.into_iter(), since.collect());
        let found: Vec<_> = objects
            .iter()
            .map(|object| (object.key.name(), object.resource_version.0))
            .collect();
        assert_eq!(found, [("a", 2), ("b", 1), ("d", 3), ("g", 4)]);
    }
}
