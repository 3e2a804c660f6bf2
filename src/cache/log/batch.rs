//! Batch: what a stream takes out of the log or a queue at once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::EventType;
use crate::cache::log::event::Event;

/// Events taken but not yet looked at, with the verdict if one was given already.
pub(in crate::cache) type Batch = VecDeque<(Arc<Event>, Option<EventType>)>;
