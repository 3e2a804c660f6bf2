//! The choice whether kubefan itself serves the shards that requests select.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::info::RequestInfo;

/// What is done with a LIST or WATCH that has a `shardSelector`.
// The comments are the texts of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ShardSelectorMode")]
pub enum ShardSelectors {
    /// It is forwarded, and the API server may ignore the selector
    Forward,
    /// It is answered from a cache, or refused
    Serve,
}

impl ShardSelectors {
    /// Returns true if the request that `info` describes is for a shard, and kubefan serves shards.
    pub(in crate::server) fn serves(self, info: &RequestInfo) -> bool {
        self == Self::Serve && info.shard_selector.is_some()
    }
}
