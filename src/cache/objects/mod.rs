//! The objects of one moment: how they are stored, found and shown.

mod content;
mod index;
mod key_range;
mod pins;
mod snapshot;
mod store;

pub(in crate::cache) use content::Content;
pub(in crate::cache) use pins::Pins;
pub use snapshot::Snapshot;
pub(in crate::cache) use store::Store;
