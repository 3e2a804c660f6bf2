//! Content: what a cache serves at one moment.

use std::sync::Arc;

use crate::api::ResourceVersion;
use crate::cache::objects::store::Store;

/// The objects, and the resource version whose state they are.
#[derive(Clone)]
pub(in crate::cache) struct Content {
    pub(in crate::cache) store: Arc<Store>,
    pub(in crate::cache) applied: ResourceVersion,
}
