//! The objects of one moment: how they are stored, found and shown.

mod index;
mod snapshot;
mod store;

pub use snapshot::Snapshot;
pub(in crate::cache) use store::Store;
