//! The description that an informer is started with.

use std::sync::Arc;

use super::CacheSettings;
use crate::api::{Resource, SelectableFields, Selection, WireFormat};
use crate::upstream::Scope;

/// What a cache has of each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ObjectContent {
    /// Everything.
    #[default]
    Whole,
    /// Only the metadata. The API server sends no more.
    Metadata,
}

/// The description of a resource and wire format that an informer is started with.
#[derive(Clone, Debug)]
pub struct InformerSpec {
    /// The resource that the informer lists and watches.
    pub resource: Arc<Resource>,
    /// The wire format of the objects, from upstream and in the cache.
    pub format: WireFormat,
    /// The fields that field selectors may name, and their positions in an object.
    pub fields: Arc<SelectableFields>,
    /// True for a custom resource. When its CustomResourceDefinition changes, the bytes of its
    /// objects may change although their resource versions do not change.
    pub custom: bool,
    /// The kind of the resource's lists; `None` if it is the resource's kind followed by `List`.
    pub list_kind: Option<String>,
    /// Which of the objects are cached, and how.
    pub settings: Arc<CacheSettings>,
}

impl InformerSpec {
    /// Returns true if objects, lists and selectors of both specs look alike. A field that the API
    /// server has begun to accept in selectors, or to refuse, makes no difference: each read
    /// follows its own spec.
    #[doc(hidden)]
    pub fn answers_like(&self, other: &Self) -> bool {
        let kinds = |spec: &Self| (spec.custom, spec.resource.namespaced);
        kinds(self) == kinds(other)
            && self.resource.kind == other.resource.kind
            && self.list_kind == other.list_kind
            && self.fields.equals_unless_refused(&other.fields)
    }

    /// Returns the parameters of requests for the objects of `selection`, of all shards.
    #[doc(hidden)]
    pub fn upstream_scope(&self, selection: &Selection) -> Scope {
        Scope {
            namespace: selection.namespace.clone(),
            label_selector: selection.labels.to_string(),
            field_selector: selection.fields.to_text(&self.fields).unwrap_or_default(),
        }
    }
}
