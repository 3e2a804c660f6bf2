//! FrameBackedQueue: objects that may be stored in less memory, as the log has forgotten their frames.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;

use crate::api::Object;
use crate::cache::log::Event;
use crate::cache::objects::Content;

/// So many objects are given a body of their own with one change, which waits for that.
const DETACHED_AT_ONCE: usize = 64;

/// Objects to give a body of their own, the longest known first.
#[derive(Default)]
pub(super) struct FrameBackedQueue(VecDeque<FrameBackedObject>);

/// An object whose body is a slice of a frame that nobody else needs any more.
struct FrameBackedObject {
    object: Weak<Object>,
    allocated: usize,
}

// === impl FrameBackedQueue ===

impl FrameBackedQueue {
    /// Adds the objects of events that the log forgot.
    pub(super) fn extend(&mut self, evicted: &[Arc<Event>]) {
        self.0.extend(
            evicted
                .iter()
                .filter_map(|event| FrameBackedObject::of(event)),
        );
    }

    /// Stores the next of them that are still stored with a body of their own; gives the bytes of
    /// those that were in the store instead.
    pub(super) fn detach_bodies(&mut self, content: &mut Content) -> u64 {
        let mut replaced = 0;
        let next = self.0.len().min(DETACHED_AT_ONCE);
        for FrameBackedObject { object, allocated } in self.0.drain(..next) {
            let Some(object) = object.upgrade() else {
                continue;
            };
            let stored = content.store.get(object.key.as_str());
            let is_stored = stored.is_some_and(|stored| Arc::ptr_eq(stored, &object));
            if let (true, Some(detached)) = (is_stored, object.with_own_body(allocated)) {
                Arc::make_mut(&mut content.store).insert(Arc::new(detached));
                replaced += object.size() as u64;
            }
        }
        replaced
    }
}

// === impl FrameBackedObject ===

impl FrameBackedObject {
    /// The object of an event that the log forgets.
    fn of(event: &Event) -> Option<Self> {
        Some(Self {
            allocated: event.backing_frame()?.len(),
            object: Arc::downgrade(&event.object),
        })
    }
}
