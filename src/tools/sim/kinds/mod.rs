//! The served kinds, built-in and custom, and the discovery documents that describe them.

pub(super) mod bookmarks;
mod builtin;
pub(super) mod custom;
pub(super) mod discovery;
mod openapi;

pub(super) use builtin::{Kind, builtin, definitions, namespaces};
pub(super) use openapi::remove_unknown_fields;
