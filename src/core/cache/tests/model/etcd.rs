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
    /// The change that led to each state; `None` if the change was to another resource.
    changes: Vec<Option<(EventType, Object)>>,
    uids: u64,
}

// === impl Etcd ===

impl Etcd {
    pub(super) fn new() -> Self {
        let empty = || (0..=BASE).map(|_| View::new()).collect();
        Self {
            states: empty(),
            changes: (0..=BASE).map(|_| None).collect(),
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

    pub(super) fn commit(&mut self, change: Option<(EventType, Object)>) {
        let mut next = self.now().clone();
        match &change {
            Some((EventType::Deleted, object)) => drop(next.remove(&object.key)),
            Some((_, object)) => drop(next.insert(object.key.clone(), Arc::new(object.clone()))),
            None => {}
        }
        self.states.push(next);
        self.changes.push(change);
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
        self.commit(Some((event_type, written)));
    }

    pub(super) fn delete(&mut self, name: &str) {
        let Some(stored) = self.now().get(name) else {
            return;
        };
        let mut last = Object::clone(stored);
        last.resource_version = ResourceVersion(self.revision() + 1);
        self.commit(Some((EventType::Deleted, last)));
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
