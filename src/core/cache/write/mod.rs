//! The writer: how changes and relists are turned into a new store and new events.
//!
//! [`Writer`] applies single changes. A [`Relist`] collects a new list, and [`Writer::replace`]
//! appends its difference from the store to the log, or starts a new epoch. That may be much work,
//! so [`Writer::replace_cooperatively`] lets other tasks run meanwhile.

mod difference;
mod frame_backed_objects;
mod pace;
mod relist;
mod replace;
mod writer;

pub use difference::ReplaceOutcome;
#[cfg(test)]
pub(in crate::cache) use pace::Pace;
pub use relist::Relist;
pub use writer::{WentBack, Writer};
