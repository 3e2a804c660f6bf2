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
    /// The bytes of the objects that this update replaces or deletes in the store.
    pub(super) replaced: u64,
    /// The newest version before the update, if events between it and `applied` may be unknown.
    pub(super) hole_after: Option<ResourceVersion>,
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
            replaced: 0,
            hole_after: None,
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
        Self::with_events(
            NewObjects::All(Arc::new(store)),
            applied,
            vec![Arc::new(event)],
        )
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
        let (missed, change) = events_of_upsert(stored, object, frame, content.applied);
        Self {
            hole_after: missed.is_some().then_some(content.applied),
            ..Self::with_events(
                objects,
                applied,
                missed.into_iter().chain([change]).collect(),
            )
        }
    }

    fn with_events(objects: NewObjects, applied: ResourceVersion, events: Vec<Arc<Event>>) -> Self {
        Self {
            replaced: events.iter().map(|event| event.replaced_bytes()).sum(),
            events,
            ..Self::without_events(objects, applied)
        }
    }
}

/// Returns the event of the change of `stored` to `object`. Also returns the event of a deletion
/// that the upstream watch did not deliver, if there was one. Its version is `newest`, the newest
/// one before the change.
pub(super) fn events_of_upsert(
    stored: Option<Arc<Object>>,
    object: Arc<Object>,
    frame: Option<(EventType, Bytes)>,
    newest: ResourceVersion,
) -> (Option<Arc<Event>>, Arc<Event>) {
    // A different uid means that the old object was deleted, at a version above `newest`.
    let is_recreated = |stored: &Arc<Object>| stored.uid() != object.uid();
    let (missed, previous) = match stored {
        Some(stored) if is_recreated(&stored) => (Some(stored), None),
        previous => (None, previous),
    };
    let event_type = match previous {
        Some(_) => EventType::Modified,
        None => EventType::Added,
    };
    let missed = missed.map(|missed| Arc::new(Event::implied_deletion(missed, newest)));
    (
        missed,
        Arc::new(Event::new(event_type, object, previous, frame)),
    )
}
