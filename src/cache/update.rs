//! Update: what one change, or one relist, brings into store and log.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::cache::log::Event;
use crate::cache::objects::Content;
use crate::cache::objects::Store;

/// What one critical section brings in.
pub(super) struct Update {
    pub(super) content: Content,
    /// Deletions that were missed, for all or for some selections, told at the version applied before.
    pub(super) block: Vec<Event>,
    pub(super) changes: Vec<Event>,
    /// True when the history from the version applied before up to now is not fully known.
    pub(super) opens_hole: bool,
}

// === impl Update ===

impl Update {
    pub(super) fn without_events(store: Arc<Store>, applied: ResourceVersion) -> Self {
        Self {
            content: Content { store, applied },
            block: Vec::new(),
            changes: Vec::new(),
            opens_hole: false,
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
            changes: vec![event],
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
            // The same text, which the indexes hold on to.
            object.key = stored.key.clone();
        }
        let object = Arc::new(object);
        let mut store = Store::clone(&content.store);
        let previous = store.insert(object.clone());
        // With another uid, a deletion was missed: somewhere between `content.applied` and here.
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
        let block: Vec<_> = missed.into_iter().map(imply).collect();
        Self {
            opens_hole: !block.is_empty(),
            block,
            changes: vec![Event::new(event_type, object, previous, upstream_frame)],
            ..Self::without_events(Arc::new(store), applied)
        }
    }

    /// Bytes of the objects that are in no store any more after this.
    pub(super) fn replaced_bytes(&self) -> u64 {
        let events = self.block.iter().chain(&self.changes);
        let events = events.filter(|event| !event.is_departure());
        let previous = events.filter_map(|event| event.previous.as_ref());
        previous.map(|object| object.size() as u64).sum()
    }
}
