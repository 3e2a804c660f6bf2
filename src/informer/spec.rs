//! What an informer is about.

use std::sync::Arc;

use crate::api::Resource;
use crate::api::SelectableFields;
use crate::api::WireFormat;

/// What is to be informed about.
#[derive(Clone, Debug)]
pub struct InformerSpec {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The wire format.
    pub format: WireFormat,
    /// Where its selectable fields stand.
    pub fields: Arc<SelectableFields>,
    /// True for custom resources, whose bytes may change at one resource version when their CRD
    /// changes.
    pub custom: bool,
    /// The kind of its lists, where that is not the kind and `List`.
    pub list_kind: Option<String>,
}
