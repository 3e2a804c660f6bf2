//! The open version: the newest version, while more changes of it may come.
//!
//! If several changes may have one version, and no bookmarks come, only a change of a later version
//! shows that a version is complete. Until then:
//!
//! - The log has the changes, so open watches get them at once.
//! - The store has the state before, and the applied version is the one before the open version. So
//!   no list, proof, bookmark or upstream watch names the open version.
//! - An upstream watch that is resumed repeats the changes. They are skipped by key and uid.
//!
//! Guarded by `every_client_of_shared_versions_ends_with_the_true_view`.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::{EventType, Object, ObjectKey, ResourceVersion};
use crate::cache::log::Event;
use crate::cache::objects::{Content, Store};
use crate::cache::update::{NewObjects, Update, events_of_upsert};
use crate::mutation;
use crate::mutation::Mutation;

/// The changes of the open version that were received. There are none if no version is open.
#[derive(Default)]
pub(super) struct OpenVersion {
    /// In the order in which they came. All have one version.
    changes: Vec<Arc<Event>>,
}

// === impl OpenVersion ===

impl OpenVersion {
    /// Adds a change to the open version, or closes it if the change has a later version, which is
    /// open then. Returns the update of `content`, or `None` if the change was received before.
    pub(super) fn change(
        &mut self,
        content: &Content,
        event_type: EventType,
        object: Object,
        frame: Option<(EventType, Bytes)>,
    ) -> Option<Update> {
        let version = object.resource_version;
        let is_open = self.version() == Some(version);
        if is_open && self.has(event_type, &object) {
            return None;
        }
        let newest = self.version().unwrap_or(content.applied);
        let stored = self.newest_state(&content.store, &object.key);
        let (missed, change) = match (event_type, stored) {
            (EventType::Deleted, None) => (None, None),
            (EventType::Deleted, previous) => {
                let object = Arc::new(object);
                (
                    None,
                    Some(Event::new(event_type, object, previous, frame).into()),
                )
            }
            (_, stored) => {
                let object = Arc::new(with_key_of(object, stored.as_deref()));
                let (missed, change) = events_of_upsert(stored, object, frame, newest);
                (missed, Some(change))
            }
        };
        let before = if mutation::is_active(Mutation::OpenVersionShown) {
            version
        } else {
            ResourceVersion(version.0.saturating_sub(1))
        };
        let mut update = if is_open {
            Update::without_events(NewObjects::Unchanged, before)
        } else {
            self.close(&content.store, before)
        };
        if let Some(missed) = &missed {
            update.delete(&content.store, &missed.object.key);
            update.replaced += missed.replaced_bytes();
            update.hole_after = Some(newest);
        }
        self.changes.extend(change.clone());
        update.events = missed.into_iter().chain(change).collect();
        Some(update)
    }

    /// Returns true if a bookmark at `version` shows that the open version is complete.
    pub(super) fn is_closed_by(&self, version: ResourceVersion) -> bool {
        self.version().is_some_and(|open| open <= version)
    }

    /// Returns the update that adds the changes to `store`, and sets the applied version. No
    /// version is open then.
    pub(super) fn close(&mut self, store: &Arc<Store>, applied: ResourceVersion) -> Update {
        let objects = match self.changes.as_slice() {
            [] => NewObjects::Unchanged,
            [change] if is_update_in_place(store, change) => {
                NewObjects::One(Arc::clone(&change.object))
            }
            _ => NewObjects::All(self.applied_to(store)),
        };
        let replaced = self.replaced_bytes();
        self.changes.clear();
        Update {
            replaced,
            ..Update::without_events(objects, applied)
        }
    }

    /// Returns the newest state that was received, and its version: that of `content` with the
    /// changes of the open version.
    pub(super) fn state(&self, content: &Content) -> (Arc<Store>, ResourceVersion) {
        match self.version() {
            None => (Arc::clone(&content.store), content.applied),
            Some(version) => (self.applied_to(&content.store), version),
        }
    }

    /// Returns the bytes of the objects that the changes replace or delete.
    pub(super) fn replaced_bytes(&self) -> u64 {
        let changes = self.changes.iter();
        changes.map(|change| change.replaced_bytes()).sum()
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.changes.first().map(|change| change.resource_version)
    }

    /// Returns true if the change of `object`, which has the open version, was received before. An
    /// object changes once at a version, but an upstream kubefan may add a deletion at it, from the
    /// block of a relist.
    fn has(&self, event_type: EventType, object: &Object) -> bool {
        let known = |change: &Arc<Event>| change.repeats(event_type, object);
        self.changes.iter().any(known) && !mutation::is_active(Mutation::OpenVersionRepeated)
    }

    /// Returns the newest state of the object at `key`: `store` has the state before the open
    /// version.
    fn newest_state(&self, store: &Store, key: &ObjectKey) -> Option<Arc<Object>> {
        let mut changes = self.changes.iter().rev();
        match changes.find(|change| change.object.key == *key) {
            Some(change) if change.event_type == EventType::Deleted => None,
            Some(change) => Some(Arc::clone(&change.object)),
            None => store.get(key.as_str()).cloned(),
        }
    }

    fn applied_to(&self, store: &Store) -> Arc<Store> {
        let mut store = Store::clone(store);
        for change in &self.changes {
            match change.event_type {
                EventType::Deleted => drop(store.remove(&change.object.key)),
                EventType::Added | EventType::Modified => {
                    store.insert(Arc::clone(&change.object));
                }
            }
        }
        Arc::new(store)
    }
}

impl Update {
    /// Also removes the object at `key`, which is in the store after this update.
    fn delete(&mut self, before: &Store, key: &ObjectKey) {
        let mut store = match &self.objects {
            NewObjects::All(store) => Store::clone(store),
            NewObjects::Unchanged => before.clone(),
            NewObjects::One(object) => {
                let mut store = before.clone();
                store.insert(Arc::clone(object));
                store
            }
        };
        store.remove(key);
        self.objects = NewObjects::All(Arc::new(store));
    }
}

/// Returns `object` with the key of `stored`, which the indexes already hold, so that its text is
/// in memory only once.
fn with_key_of(mut object: Object, stored: Option<&Object>) -> Object {
    if let Some(stored) = stored {
        object.key = stored.key.clone();
    }
    object
}

/// Returns true if `change` replaces an object of `store`, and leaves the indexes as they are.
fn is_update_in_place(store: &Store, change: &Event) -> bool {
    let stored = store.get(change.object.key.as_str());
    change.event_type != EventType::Deleted
        && stored.is_some_and(|stored| store.indexes_alike(stored, &change.object))
}
