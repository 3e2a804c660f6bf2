//! Whether kubefan itself serves the shards that requests select.

use super::info::RequestInfo;

/// What is done with a LIST or WATCH that has a `shardSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardSelectors {
    /// It is forwarded to the API server, which may ignore the selector.
    Forward,
    /// It is answered from a cache, or refused.
    Serve,
}

impl ShardSelectors {
    /// True if the request that `info` describes is for a shard, and kubefan serves shards.
    pub(in crate::server) fn serves(self, info: &RequestInfo) -> bool {
        self == Self::Serve && info.shard_selector.is_some()
    }
}
