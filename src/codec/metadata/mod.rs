//! Metadata on its own, as a PartialObjectMetadata carries it.

pub(crate) mod object_meta;
mod partial;

pub(crate) use partial::bare_body;
pub(crate) use partial::hidden_annotation;
pub(crate) use partial::in_declared_order;
pub(crate) use partial::json_with_resource_version;
pub(crate) use partial::metadata;
pub(crate) use partial::partial_body;

pub use partial::OBJECT_META;
