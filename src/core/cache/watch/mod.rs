//! Watch streams: where a watch starts, and how it reads the history at its own speed.
//!
//! A [`WatchStream`] first delivers the objects of a snapshot, if the watch requests them, and then
//! the changes. It reads changes from its group's queue, or from the log if they are older than the
//! queue.

mod initial_objects;
mod start;
mod watch_error;
mod watch_progress;
mod watch_stream;

pub use initial_objects::InitialObjects;
pub use start::WatchFrom;
pub(in crate::cache) use start::{LogReach, needs_bridge};
pub use watch_error::WatchError;
pub use watch_progress::{Behind, WatchProgress};
pub use watch_stream::{WatchItem, WatchStream};
