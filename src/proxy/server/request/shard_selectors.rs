//! The choice whether kubefan itself serves the shards that requests select.

use super::info::RequestInfo;

/// How a LIST or WATCH with a `shardSelector` is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardSelectors {
    /// The request is forwarded to the API server, which may ignore the selector.
    Forward,
    /// The request is answered from a cache, or refused.
    Serve,
}

impl ShardSelectors {
    /// Returns true if the request that `info` describes is for a shard, and kubefan serves shards.
    pub(in crate::server) fn serves(self, info: &RequestInfo) -> bool {
        self == Self::Serve && info.shard_selector.is_some()
    }
}
