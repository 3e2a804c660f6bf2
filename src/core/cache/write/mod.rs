//! The writer: how changes and relists are turned into a new store and new events.
//!
//! [`Writer`] applies individual changes. A [`Relist`] collects a new list, and [`Writer::replace`]
//! appends its difference from the store to the log, or starts a new epoch. This may be much work,
//! so [`Writer::replace_cooperatively`] yields to other tasks.

mod difference;
mod frame_backed_objects;
mod housekeeping;
mod open_version;
mod pace;
mod publish;
mod relist;
mod replace;
mod writer;

pub use difference::ReplaceOutcome;
#[cfg(test)]
pub(in crate::cache) use pace::Pace;
pub use relist::Relist;
pub use writer::{WentBack, Writer};
