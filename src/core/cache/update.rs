//! Update: the new objects and the new events that result from one change or one relist.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::{EventType, Object, ResourceVersion};
use crate::cache::log::Event;
use crate::cache::objects::{Content, Store};

/// New objects and new events, applied together in one critical section.
pub(super) struct Update {
    pub(super) objects: NewObjects,
    /// The applied resource version after this update.
    pub(super) applied: ResourceVersion,
    /// First the block: deletions that the upstream watch missed. They carry the resource version
    /// that was applied before this update, and some of them are only for certain selections. Then
    /// the changes.
    pub(super) events: Vec<Arc<Event>>,
    /// True if events between the version applied before and the new version may be unknown.
    pub(super) opens_hole: bool,
    /// When the list began that this update is the result of; `None` for a change.
    pub(super) list_began: Option<Instant>,
}

/// What an update does to the stored objects.
pub(super) enum NewObjects {
    Unchanged,
    /// Replaces the stored object with this key, and leaves the indexes as they are.
    One(Arc<Object>),
    /// Replaces the store.
    All(Arc<Store>),
}

// === impl Update ===

impl Update {
    pub(super) fn without_events(objects: NewObjects, applied: ResourceVersion) -> Self {
        Self {
            objects,
            applied,
            events: Vec::new(),
            opens_hole: false,
            list_began: None,
        }
    }

    pub(super) fn deletion(
        content: &Content,
        object: Object,
        frame: Option<(EventType, Bytes)>,
    ) -> Self {
        let applied = object.resource_version;
        let mut store = Store::clone(&content.store);
        let Some(previous) = store.remove(&object.key) else {
            return Self::without_events(NewObjects::Unchanged, applied);
        };
        let event = Event::new(EventType::Deleted, Arc::new(object), Some(previous), frame);
        Self {
            events: vec![Arc::new(event)],
            ..Self::without_events(NewObjects::All(Arc::new(store)), applied)
        }
    }

    pub(super) fn upsert(
        content: &Content,
        mut object: Object,
        frame: Option<(EventType, Bytes)>,
    ) -> Self {
        let applied = object.resource_version;
        let stored = content.store.get(object.key.as_str()).cloned();
        if let Some(stored) = &stored {
            // Reuse the key that the indexes already hold, so that its text is in memory only once.
            object.key = stored.key.clone();
        }
        let object = Arc::new(object);
        let objects = match &stored {
            Some(stored) if content.store.indexes_alike(stored, &object) => {
                NewObjects::One(Arc::clone(&object))
            }
            // An index may take many milliseconds, so a copy is changed before readers are paused.
            _ => {
                let mut store = Store::clone(&content.store);
                store.insert(Arc::clone(&object));
                NewObjects::All(Arc::new(store))
            }
        };
        // A different uid means that the old object was deleted, and that the upstream watch did
        // not deliver the deletion, which has a version above `content.applied`.
        let is_recreated = |stored: &Arc<Object>| stored.uid() != object.uid();
        let (missed, previous) = match stored {
            Some(stored) if is_recreated(&stored) => (Some(stored), None),
            previous => (None, previous),
        };
        let event_type = match previous {
            Some(_) => EventType::Modified,
            None => EventType::Added,
        };
        let block = missed.map(|missed| Event::implied_deletion(missed, content.applied));
        let change = Event::new(event_type, object, previous, frame);
        Self {
            opens_hole: block.is_some(),
            events: block.into_iter().chain([change]).map(Arc::new).collect(),
            ..Self::without_events(objects, applied)
        }
    }
}
