//! The description from which an informer is started.

use std::sync::Arc;

use crate::api::Resource;
use crate::api::SelectableFields;
use crate::api::WireFormat;

/// What a cache has of each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectContent {
    /// Everything.
    #[default]
    Whole,
    /// Only the metadata. The API server sends no more.
    Metadata,
}

/// The description of a resource and wire format from which an informer is started.
#[derive(Clone, Debug)]
pub struct InformerSpec {
    /// The resource that the informer lists and watches.
    pub resource: Arc<Resource>,
    /// The wire format in which upstream sends the objects, and the cache stores them.
    pub format: WireFormat,
    /// The fields that field selectors may name, and their positions in an object.
    pub fields: Arc<SelectableFields>,
    /// True for a custom resource. When its CustomResourceDefinition changes, the bytes of its
    /// objects may change although their resource versions stay the same.
    pub custom: bool,
    /// The kind of the resource's lists; `None` if it is the resource's kind followed by `List`.
    pub list_kind: Option<String>,
}
