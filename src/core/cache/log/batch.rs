//! Batch: the events that a watch stream reads from the log or from its group's queue in one step.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use crate::api::{EventType, Object};
use crate::cache::log::event::Event;

/// Events that a watch stream has read but not delivered yet.
#[derive(Default)]
pub(in crate::cache) struct Batch {
    /// Kept apart, so that a stream that is up to date, and reads its events one by one, needs no
    /// allocation. If it is `None`, there are no more.
    first: Option<BatchedEvent>,
    more: VecDeque<BatchedEvent>,
}

/// The verdict is present if the event is from a group's queue, and `None` if it is from the log.
type BatchedEvent = (Arc<Event>, Option<EventType>);

/// Upper limit of the bytes of a batch that has several events.
///
/// If a client reads nothing, its stream still holds its batch after the log has dropped the
/// events. So the bytes of all such streams together must stay small.
const MAX_BYTES: usize = 32 << 10;

// === impl Batch ===

impl Batch {
    pub(in crate::cache) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(in crate::cache) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    pub(in crate::cache) fn push_back(&mut self, event: BatchedEvent) {
        if self.first.is_none() {
            self.first = Some(event);
        } else {
            self.more.push_back(event);
        }
    }

    pub(in crate::cache) fn pop_front(&mut self) -> Option<BatchedEvent> {
        let second = self.more.pop_front();
        mem::replace(&mut self.first, second)
    }

    /// Frees the memory for more than `capacity` events besides the first.
    pub(in crate::cache) fn shrink_to(&mut self, capacity: usize) {
        self.more.shrink_to(capacity);
    }
}

/// Returns the number of the next events that a batch takes: at most `max`, and at most
/// [`MAX_BYTES`] but always one. `events` returns the next events.
pub(in crate::cache) fn batch_length<'a>(
    events: impl ExactSizeIterator<Item = &'a Arc<Event>>,
    max: usize,
) -> usize {
    let count = events.len().min(max);
    if count <= 1 {
        // The usual case of a stream that is up to date needs no look at the objects.
        return count;
    }
    let mut bytes = 0;
    let fits = |event: &&Arc<Event>| {
        let previous = event.previous.as_deref().map_or(0, Object::size);
        bytes += event.object.size() + previous;
        bytes <= MAX_BYTES
    };
    events.take(count).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ObjectKey, ObjectValues, ResourceVersion};

    fn event(before: Option<usize>, after: usize) -> Arc<Event> {
        let object = |bytes: usize| {
            let key = ObjectKey::new(None, "a");
            let body = vec![b'x'; bytes].into();
            let values = ObjectValues::default();
            Arc::new(Object::new(key, ResourceVersion(1), &values, body))
        };
        let previous = before.map(object);
        Arc::new(Event::new(
            EventType::Modified,
            object(after),
            previous,
            None,
        ))
    }

    #[test]
    fn a_batch_returns_its_events_in_order_and_allocates_for_the_second() {
        let events: [_; 3] = std::array::from_fn(|_| event(None, 10));
        for count in 0..=events.len() {
            let mut batch = Batch::default();
            for event in &events[..count] {
                batch.push_back((Arc::clone(event), None));
            }
            assert_eq!((batch.len(), batch.is_empty()), (count, count == 0));
            assert_eq!(batch.more.capacity() > 0, count > 1, "{count} events");
            for event in &events[..count] {
                let (next, _) = batch.pop_front().expect("an event");
                assert!(Arc::ptr_eq(&next, event));
            }
            assert!(batch.pop_front().is_none() && batch.is_empty());
        }
    }

    #[test]
    fn a_batch_has_few_bytes_but_at_least_one_event() {
        let small = event(Some(10), 10);
        let large = event(Some(MAX_BYTES), 10);
        let half = event(None, MAX_BYTES / 2 - 1_000);
        let rows: [(&str, Vec<&Arc<Event>>, usize); 6] = [
            ("no event", vec![], 0),
            ("one event of any size", vec![&large], 1),
            ("the first is large", vec![&large, &small], 1),
            ("the second is large", vec![&small, &large, &small], 1),
            ("two fit", vec![&half, &half, &half], 2),
            ("not more than the maximum", vec![&small; 10], 8),
        ];
        for (name, events, expected) in rows {
            assert_eq!(batch_length(events.into_iter(), 8), expected, "{name}");
        }
    }
}
