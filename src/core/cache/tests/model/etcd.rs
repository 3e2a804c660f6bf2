//! The etcd of the model: the correct state at each revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{EventType, Object, ObjectKey, ResourceVersion, Selection};
use crate::cache::tests::support::object;

/// The revision before the first change.
pub(super) const BASE: u64 = 10;

pub(super) type View = BTreeMap<ObjectKey, Arc<Object>>;

pub(super) struct Etcd {
    states: Vec<View>,
    /// The changes that led to each state. There are none if another resource was changed.
    changes: Vec<Vec<(EventType, Object)>>,
    uids: u64,
}

// === impl Etcd ===

impl Etcd {
    pub(super) fn new() -> Self {
        let empty = || (0..=BASE).map(|_| View::new()).collect();
        Self {
            states: empty(),
            changes: (0..=BASE).map(|_| Vec::new()).collect(),
            uids: 0,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    pub(super) fn state(&self, version: ResourceVersion) -> &View {
        &self.states[usize::try_from(version.0).expect("small numbers")]
    }

    pub(super) fn now(&self) -> &View {
        self.state(ResourceVersion(self.revision()))
    }

    /// Commits `changes` in one transaction.
    pub(super) fn commit(&mut self, changes: Vec<(EventType, Object)>) {
        let mut next = self.now().clone();
        for (event_type, object) in &changes {
            match event_type {
                EventType::Deleted => drop(next.remove(&object.key)),
                _ => drop(next.insert(object.key.clone(), Arc::new(object.clone()))),
            }
        }
        self.states.push(next);
        self.changes.push(changes);
    }

    pub(super) fn write(&mut self, name: &str, app: &str) {
        let (event_type, uid) = match self.now().get(name) {
            Some(stored) => (EventType::Modified, stored.uid().to_owned()),
            None => {
                self.uids += 1;
                (EventType::Added, format!("uid-{}", self.uids))
            }
        };
        let written = object(name, &uid, self.revision() + 1, app);
        self.commit(vec![(event_type, written)]);
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.delete_together([name]);
    }

    /// Deletes the objects in one transaction.
    pub(super) fn delete_together<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let stored = names.into_iter().filter_map(|name| self.now().get(name));
        let deleted: Vec<_> = stored
            .map(|stored| {
                let mut last = Object::clone(stored);
                last.resource_version = ResourceVersion(self.revision() + 1);
                (EventType::Deleted, last)
            })
            .collect();
        if !deleted.is_empty() {
            self.commit(deleted);
        }
    }

    /// Returns true if several objects changed at `version`.
    pub(super) fn has_several_changes(&self, version: ResourceVersion) -> bool {
        let changes = usize::try_from(version.0)
            .ok()
            .and_then(|at| self.changes.get(at));
        changes.is_some_and(|changes| changes.len() > 1)
    }

    /// The changes with versions above `after`, oldest first.
    pub(super) fn changes_after(
        &self,
        after: ResourceVersion,
    ) -> impl Iterator<Item = (EventType, Object)> {
        let skipped = usize::try_from(after.0).expect("small numbers") + 1;
        self.changes.iter().skip(skipped).flatten().cloned()
    }

    pub(super) fn selected(&self, selection: &Selection, version: ResourceVersion) -> View {
        let selected = |(_, object): &(&ObjectKey, &Arc<Object>)| selection.matches(object);
        let state = self.state(version).iter().filter(selected);
        state
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    }

    /// Restores the state and history at `revision`, like a backup.
    pub(super) fn restore(&mut self, revision: u64) {
        let length = usize::try_from(revision).expect("small numbers") + 1;
        self.states.truncate(length);
        self.changes.truncate(length);
    }
}
