//! Batch: the events that a watch stream reads from the log or from its group's queue in one step.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::{EventType, Object};
use crate::cache::log::event::Event;

/// Events that a watch stream has read but not delivered yet. The verdict is present if the event
/// is from a group's queue, and `None` if it is from the log.
pub(in crate::cache) type Batch = VecDeque<(Arc<Event>, Option<EventType>)>;

/// Upper limit of the bytes of a batch that has several events.
///
/// If a client reads nothing, its stream still holds its batch after the log has dropped the
/// events. So the bytes of all such streams together must stay small.
const MAX_BYTES: usize = 32 << 10;

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
