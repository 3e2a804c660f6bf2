//! CachedRead: what a read that a cache has answered means for the bill.

use crate::bill::estimate::Cost;

/// What a read that a cache has answered means for the bill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct CachedRead {
    /// True if no index finds the objects of a list, or the changes of a watch.
    pub(in crate::server) is_unindexed: bool,
    /// True for a GET, or a LIST without a continue token, of the most recent state.
    pub(in crate::server) is_unversioned: bool,
    /// True for a LIST without a continue token, and for a WATCH with `sendInitialEvents=true`.
    pub(in crate::server) starts_list: bool,
    /// The objects of a list.
    pub(in crate::server) objects: u64,
    /// What the answer would have cost the API server.
    pub(in crate::server) saved: Cost,
}
