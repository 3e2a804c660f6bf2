//! The writer: how changes and relists are turned into a new store and new events.
//!
//! [`Writer`] applies single changes. A [`Relist`] collects a new list, and [`Writer::replace`]
//! appends its difference from the store to the log, or starts a new epoch.

mod difference;
mod frame_backed_objects;
mod relist;
mod writer;

pub use difference::ReplaceOutcome;
pub use relist::Relist;
pub use writer::WentBack;
pub use writer::Writer;
