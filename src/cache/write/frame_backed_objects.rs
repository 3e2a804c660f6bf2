//! FrameBackedQueue: stored objects whose frames the log has evicted, so that copying their bodies
//! may save memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Weak;

use crate::api::Object;
use crate::cache::log::Event;
use crate::cache::objects::Content;

/// Maximum number of bodies that are copied during one change. It limits the delay of that change.
const DETACHED_AT_ONCE: usize = 64;

/// The objects whose bodies should be copied out of their frames, in the order of eviction.
#[derive(Default)]
pub(super) struct FrameBackedQueue(VecDeque<FrameBackedObject>);

/// An object whose body is a slice of a frame that the log no longer needs.
struct FrameBackedObject {
    object: Weak<Object>,
    /// Length of the frame in bytes.
    frame_len: usize,
}

// === impl FrameBackedQueue ===

impl FrameBackedQueue {
    /// Adds the objects of events that the log evicted.
    pub(super) fn extend(&mut self, evicted: &[Arc<Event>]) {
        self.0.extend(
            evicted
                .iter()
                .filter_map(|event| FrameBackedObject::of(event)),
        );
    }

    /// Replaces the next objects that are still stored by objects with copied bodies, if that takes
    /// less memory. Returns the bytes of the replaced objects.
    pub(super) fn detach_bodies(&mut self, content: &mut Content) -> u64 {
        let mut replaced = 0;
        let next = self.0.len().min(DETACHED_AT_ONCE);
        for FrameBackedObject { object, frame_len } in self.0.drain(..next) {
            let Some(object) = object.upgrade() else {
                continue;
            };
            let stored = content.store.get(object.key.as_str());
            let is_stored = stored.is_some_and(|stored| Arc::ptr_eq(stored, &object));
            if let (true, Some(detached)) = (is_stored, object.with_own_body(frame_len)) {
                Arc::make_mut(&mut content.store).insert(Arc::new(detached));
                replaced += object.size() as u64;
            }
        }
        replaced
    }
}

// === impl FrameBackedObject ===

impl FrameBackedObject {
    /// The entry for an evicted event's object; `None` if its body is not a slice of a frame.
    fn of(event: &Event) -> Option<Self> {
        Some(Self {
            frame_len: event.backing_frame()?.len(),
            object: Arc::downgrade(&event.object),
        })
    }
}
