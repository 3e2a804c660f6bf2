//! Writes, from the body of a request to the store.

pub(super) mod defaults;
pub(super) mod patch;
pub(super) mod request;
pub(super) mod rules;
pub(super) mod strategic;
pub(super) mod subresources;
mod unknown_fields;
pub(super) mod verbs;
