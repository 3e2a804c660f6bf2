//! Makes the metadata of a PartialObjectMetadata from a cached object.

mod declared_order;
mod hidden;
mod members;
mod object_meta;
mod partial;
mod version;

#[cfg(test)]
mod tests;

pub(crate) use declared_order::in_declared_order;
pub(crate) use hidden::hidden_annotation;
pub use members::OBJECT_META;
pub(crate) use partial::{bare_body, partial_body};
pub(crate) use version::{json_with_resource_version, metadata};
