//! The event log: the recent changes of one resource, in order, and the rules for dropping them.
//!
//! [`Event`] is one change with its encoded frames. `EventLog` retains the events, records the
//! holes between them, and decides which resource versions a watch can start from.

mod batch;
mod charge;
mod event;
mod event_log;
mod expired;
mod retention;

pub(in crate::cache) use batch::{Batch, batch_length};
pub use charge::EvictedBytes;
pub(in crate::cache) use charge::LogBytes;
pub use event::Event;
pub(in crate::cache) use event_log::{EventLog, NewEntries};
pub use expired::Expired;
pub(in crate::cache) use retention::Retention;
