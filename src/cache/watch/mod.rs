//! Watches: one client's way along the changes.

mod initial_objects;
mod watch_stream;

pub(in crate::cache) use watch_stream::Batch;
pub use watch_stream::WatchItem;
pub use watch_stream::WatchStream;
