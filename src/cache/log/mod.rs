//! The recent past: events, and the log that retains them.

mod batch;
mod charge;
mod event;
mod event_log;
mod expired;
mod retention;

pub(in crate::cache) use batch::Batch;
pub use event::Event;
pub(in crate::cache) use event_log::EventLog;
pub(in crate::cache) use event_log::PositionEvicted;
pub use expired::Expired;
pub(in crate::cache) use retention::Retention;
