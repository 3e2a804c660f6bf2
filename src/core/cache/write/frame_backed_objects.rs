//! FrameBackedQueue: stored objects that still hold a frame that the log has evicted. Their bodies
//! are copied, because the copies take less memory than the frames.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::api::Object;
use crate::cache::log::Event;
use crate::cache::objects::Store;

/// Maximum number of bodies that are copied at once. It limits the delay of the next change.
const DETACHED_AT_ONCE: usize = 64;

/// The objects with bodies that should be copied out of their frames, in the order of eviction.
#[derive(Default)]
pub(super) struct FrameBackedQueue(VecDeque<FrameBacked>);

struct FrameBacked {
    object: Weak<Object>,
    /// The log's tip when the event was evicted.
    tip: u64,
}

// === impl FrameBackedQueue ===

impl FrameBackedQueue {
    /// Adds the objects of events that the log has evicted, if `store` still has them, and their
    /// copied bodies would take less memory than their frames. The log's tip is `tip`.
    ///
    /// Most events have been followed by a newer one of their object. A weak reference would keep
    /// the allocation of the replaced object.
    pub(super) fn extend(&mut self, evicted: &[Arc<Event>], store: &Store, tip: u64) {
        let frame_backed = evicted.iter().filter(|event| {
            let frame = event.backing_frame();
            frame.is_some_and(|frame| event.object.should_have_own_body(frame.len()))
                && is_stored(&event.object, store)
        });
        let objects = frame_backed.map(|event| FrameBacked {
            object: Arc::downgrade(&event.object),
            tip,
        });
        self.0.extend(objects);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if an object was added when the log's tip was at most `tip`.
    pub(super) fn has_added_by(&self, tip: u64) -> bool {
        self.0.front().is_some_and(|next| next.tip <= tip)
    }

    /// Takes the next objects that were added when the log's tip was at most `tip`. Returns those
    /// that `store` still has, with copied bodies.
    pub(super) fn detach_bodies(&mut self, store: &Store, tip: u64) -> Vec<Arc<Object>> {
        let next = || self.0.pop_front_if(|next| next.tip <= tip);
        let live = std::iter::from_fn(next).filter_map(|next| next.object.upgrade());
        let stored = live
            .take(DETACHED_AT_ONCE)
            .filter(|object| is_stored(object, store));
        stored
            .map(|object| Arc::new(object.with_copied_body()))
            .collect()
    }
}

/// Returns true if `store` has `object` itself, not a later state or a copy.
fn is_stored(object: &Arc<Object>, store: &Store) -> bool {
    let stored = store.get(object.key.as_str());
    stored.is_some_and(|stored| Arc::ptr_eq(stored, object))
}
