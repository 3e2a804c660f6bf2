//! Update: the new store and the new events that result from one change or one relist.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::cache::log::Event;
use crate::cache::objects::Content;
use crate::cache::objects::Store;

/// A new store and new events, applied together in one critical section.
pub(super) struct Update {
    pub(super) content: Content,
    /// First the block: deletions that the upstream watch missed. They carry the resource version
    /// that was applied before this update, and some of them concern only certain selections. Then
    /// the changes.
    pub(super) events: Vec<Arc<Event>>,
    /// True if events between the version applied before and the new version may be unknown.
    pub(super) opens_hole: bool,
    /// When the list began that this update is the result of; `None` for a change.
    pub(super) list_began: Option<Instant>,
}

// === impl Update ===

impl Update {
    pub(super) fn without_events(store: Arc<Store>, applied: ResourceVersion) -> Self {
        Self {
            content: Content { store, applied },
            events: Vec::new(),
            opens_hole: false,
            list_began: None,
        }
    }

    pub(super) fn deletion(
        content: &Content,
        object: Object,
        upstream_frame: Option<(EventType, Bytes)>,
    ) -> Self {
        let applied = object.resource_version;
        let mut store = Store::clone(&content.store);
        let Some(previous) = store.remove(&object.key) else {
            return Self::without_events(content.store.clone(), applied);
        };
        let event = Event::new(
            EventType::Deleted,
            Arc::new(object),
            Some(previous),
            upstream_frame,
        );
        Self {
            events: vec![Arc::new(event)],
            ..Self::without_events(Arc::new(store), applied)
        }
    }

    pub(super) fn upsert(
        content: &Content,
        mut object: Object,
        upstream_frame: Option<(EventType, Bytes)>,
    ) -> Self {
        let applied = object.resource_version;
        if let Some(stored) = content.store.get(object.key.as_str()) {
            // Reuse the key that the indexes already hold, so that its text is in memory only once.
            object.key = stored.key.clone();
        }
        let object = Arc::new(object);
        let mut store = Store::clone(&content.store);
        let previous = store.insert(object.clone());
        // A different uid means that the old object was deleted, and that the upstream watch did
        // not deliver the deletion, whose version is above `content.applied`.
        let is_recreated = |previous: &Arc<Object>| previous.uid() != object.uid();
        let (missed, previous) = match previous {
            Some(previous) if is_recreated(&previous) => (Some(previous), None),
            previous => (None, previous),
        };
        let event_type = match previous {
            Some(_) => EventType::Modified,
            None => EventType::Added,
        };
        let imply = |missed| Event::implied_deletion(missed, content.applied);
        let block = missed.map(imply);
        let change = Event::new(event_type, object, previous, upstream_frame);
        Self {
            opens_hole: block.is_some(),
            events: block.into_iter().chain([change]).map(Arc::new).collect(),
            ..Self::without_events(Arc::new(store), applied)
        }
    }

    /// True if the update changes objects; false for a bookmark.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
}
