//! The recent past: events, and the log that retains them.

mod event;
mod event_log;

pub use event::Event;
pub(in crate::cache) use event_log::EventLog;
pub(in crate::cache) use event_log::FellOff;
pub(in crate::cache) use event_log::Retention;
