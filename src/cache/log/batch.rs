//! Batch: the events that a watch stream reads from the log or from its group's queue in one step.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::EventType;
use crate::cache::log::event::Event;

/// Events that a watch stream has read but not delivered yet. The verdict is present if the event
/// is from a group's queue, and `None` if it is from the log.
pub(in crate::cache) type Batch = VecDeque<(Arc<Event>, Option<EventType>)>;
