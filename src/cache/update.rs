//! Update: what one change, or one relist, brings into store and log.

use std::sync::Arc;
use std::sync::Weak;

use bytes::Bytes;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::cache::Event;
use crate::cache::Replaced;
use crate::cache::objects::Store;
use crate::cache::state::Content;
use crate::cache::write::Difference;
use crate::mutation;
use crate::mutation::Mutation;

/// What one critical section brings in.
pub(super) struct Update {
    pub(super) content: Content,
    /// Deletions that were missed, for all or for some selections, told at the version applied before.
    pub(super) block: Vec<Event>,
    pub(super) changes: Vec<Event>,
    /// True when the history from the version applied before up to now is not fully known.
    pub(super) is_jump: bool,
}

/// An object whose body is a slice of a frame that nobody else needs any more.
pub(super) struct Loose {
    object: Weak<Object>,
    allocated: usize,
}

// === impl Loose ===

impl Loose {
    /// The object of an event that the log forgets.
    pub(super) fn of(event: &Event) -> Option<Self> {
        Some(Self {
            allocated: event.frame_of_body()?.len(),
            object: Arc::downgrade(&event.object),
        })
    }
}

// === impl Update ===

impl Update {
    pub(super) fn quiet(store: Arc<Store>, applied: ResourceVersion) -> Self {
        Self {
            content: Content { store, applied },
            block: Vec::new(),
            changes: Vec::new(),
            is_jump: false,
        }
    }

    pub(super) fn deletion(
        content: &Content,
        object: Object,
        told: Option<(EventType, Bytes)>,
    ) -> Self {
        let applied = object.resource_version;
        let mut store = Store::clone(&content.store);
        let Some(previous) = store.remove(&object.key) else {
            return Self::quiet(content.store.clone(), applied);
        };
        let event = Event::new(EventType::Deleted, Arc::new(object), Some(previous), told);
        Self {
            changes: vec![event],
            ..Self::quiet(Arc::new(store), applied)
        }
    }

    pub(super) fn state(
        content: &Content,
        mut object: Object,
        told: Option<(EventType, Bytes)>,
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
            is_jump: !block.is_empty(),
            block,
            changes: vec![Event::new(event_type, object, previous, told)],
            ..Self::quiet(Arc::new(store), applied)
        }
    }

    pub(super) fn relist(
        applied: ResourceVersion,
        difference: Difference,
        list: ResourceVersion,
    ) -> (Self, Replaced) {
        let deleted = difference.deleted.len();
        let modified = difference.changed.iter();
        let modified = modified.filter(|(_, previous)| previous.is_some()).count();
        let added = difference.changed.len() - modified;
        let change = |(object, previous): (Arc<Object>, Option<Arc<Object>>)| {
            let event_type = match previous {
                Some(_) => EventType::Modified,
                None => EventType::Added,
            };
            let event = Event::new(event_type, object, previous, None);
            match mutation::is_active(Mutation::DepartureWithChange) {
                true => event,
                false => event.but_departure(),
            }
        };
        let departure = |(object, previous): &(Arc<Object>, Option<Arc<Object>>)| {
            Event::implied_departure(object, previous.as_ref()?, applied)
        };
        let departures: Vec<_> = match mutation::is_active(Mutation::DepartureWithChange) {
            true => Vec::new(),
            false => difference.changed.iter().filter_map(departure).collect(),
        };
        let imply = |missed| Event::implied_deletion(missed, applied);
        let deletions = difference.deleted.into_iter().map(imply);
        let block = deletions.chain(departures).collect();
        let mut update = Self {
            is_jump: list > applied,
            block,
            changes: difference.changed.into_iter().map(change).collect(),
            ..Self::quiet(Arc::new(difference.store), list)
        };
        if mutation::is_active(Mutation::BlockAtList) {
            let moved = |event: Event| event.moved_to(list);
            update.changes.extend(update.block.drain(..).map(moved));
        }
        let replaced = Replaced::Diffed {
            added,
            modified,
            deleted,
        };
        (update, replaced)
    }

    /// Stores each of `loose` that is still stored with a body of its own; gives the bytes of
    /// those that were in the store instead.
    pub(super) fn tighten(&mut self, loose: impl Iterator<Item = Loose>) -> u64 {
        let mut replaced = 0;
        for Loose { object, allocated } in loose {
            let Some(object) = object.upgrade() else {
                continue;
            };
            let stored = self.content.store.get(object.key.as_str());
            let is_stored = stored.is_some_and(|stored| Arc::ptr_eq(stored, &object));
            if let (true, Some(alone)) = (is_stored, object.with_own_body(allocated)) {
                Arc::make_mut(&mut self.content.store).insert(Arc::new(alone));
                replaced += object.size() as u64;
            }
        }
        replaced
    }

    /// Bytes of the objects that are in no store any more after this.
    pub(super) fn replaced_bytes(&self) -> u64 {
        let events = self.block.iter().chain(&self.changes);
        let events = events.filter(|event| !event.is_departure());
        let previous = events.filter_map(|event| event.previous.as_ref());
        previous.map(|object| object.size() as u64).sum()
    }
}
