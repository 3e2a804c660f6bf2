//! Content: the store of a cache together with its resource version.

use std::sync::Arc;

use crate::api::ResourceVersion;
use crate::cache::objects::store::Store;

/// The current objects, and the resource version that they have reached.
#[derive(Clone)]
pub(in crate::cache) struct Content {
    pub(in crate::cache) store: Arc<Store>,
    pub(in crate::cache) applied: ResourceVersion,
    /// The version of the newest change of an object, or of the list that the cache began with.
    pub(in crate::cache) changed: ResourceVersion,
}
