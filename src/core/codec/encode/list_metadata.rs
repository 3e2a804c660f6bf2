//! The metadata of a list.

use crate::api::{ResourceVersion, ShardSelector};

/// The metadata of a list, or of a Table of a list or of a single object.
#[derive(Clone, Copy, Debug)]
pub struct ListMetadata<'a> {
    /// The resource version of the list, or of the single object.
    pub resource_version: ResourceVersion,
    /// The token for the next page; empty if this is the last page.
    pub continue_token: &'a str,
    /// The number of items on later pages; `None` if it is unknown or zero.
    pub remaining_item_count: Option<u64>,
    /// The shard that the list shows; `None` if it shows all. Tables do not mention it.
    pub shard: Option<&'a ShardSelector>,
}

impl From<ResourceVersion> for ListMetadata<'_> {
    fn from(resource_version: ResourceVersion) -> Self {
        Self {
            resource_version,
            continue_token: "",
            remaining_item_count: None,
            shard: None,
        }
    }
}
