//! The kinds that are served, built-in and custom, and the documents that tell them.

pub(super) mod bookmarks;
mod builtin;
pub(super) mod custom;
pub(super) mod discovery;

pub(super) use builtin::Kind;
pub(super) use builtin::builtin;
pub(super) use builtin::definitions;
pub(super) use builtin::namespaces;
