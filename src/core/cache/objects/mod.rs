//! The current objects: the store with its indexes, snapshots of it, and pinned snapshots.
//!
//! The store is persistent: a clone shares all data with the original. So a snapshot is cheap, and
//! the writer never waits for the readers of an older one.

mod content;
mod index;
mod key_range;
mod pins;
mod ranks;
mod snapshot;
mod store;

pub(in crate::cache) use content::Content;
pub(in crate::cache) use pins::Pins;
pub use snapshot::Snapshot;
pub(in crate::cache) use store::Store;
