//! FrameBackedQueue: stored objects that still hold a frame that the log has evicted. Their bodies
//! are copied, because the copies take less memory than the frames.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::api::Object;
use crate::cache::log::Event;
use crate::cache::objects::Store;

/// Maximum number of bodies that are copied during one change. It limits the delay of that change.
const DETACHED_AT_ONCE: usize = 64;

/// The objects with bodies that should be copied out of their frames, in the order of eviction.
#[derive(Default)]
pub(super) struct FrameBackedQueue(VecDeque<Weak<Object>>);

// === impl FrameBackedQueue ===

impl FrameBackedQueue {
    /// Adds the objects of events that the log evicted, if their copied bodies would take less
    /// memory than their frames.
    pub(super) fn extend(&mut self, evicted: &[Arc<Event>]) {
        let frame_backed = evicted.iter().filter(|event| {
            let frame = event.backing_frame();
            frame.is_some_and(|frame| event.object.should_have_own_body(frame.len()))
        });
        let objects = frame_backed.map(|event| Arc::downgrade(&event.object));
        self.0.extend(objects);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next objects, but not the last `left`, and returns those that `store` still has,
    /// with copied bodies.
    pub(super) fn detach_bodies(&mut self, store: &Store, left: usize) -> Vec<Arc<Object>> {
        let next = self.0.len().saturating_sub(left).min(DETACHED_AT_ONCE);
        let objects = self.0.drain(..next).filter_map(|object| object.upgrade());
        let is_stored = |object: &Arc<Object>| {
            let stored = store.get(object.key.as_str());
            stored.is_some_and(|stored| Arc::ptr_eq(stored, object))
        };
        let stored = objects.filter(is_stored);
        stored
            .map(|object| Arc::new(object.with_copied_body()))
            .collect()
    }
}
