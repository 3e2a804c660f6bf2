//! Watches: one client's way along the changes.

mod initial_objects;
mod start;
mod watch_stream;

pub use start::WatchFrom;
pub use watch_stream::WatchItem;
pub use watch_stream::WatchStream;
