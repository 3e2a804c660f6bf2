//! What is read of objects and lists, in either format.

use std::borrow::Cow;

use super::field_tree::Values;

/// What is read from an object in either format.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) uid: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) labels: Labels<'a>,
    pub(super) values: Values<'a>,
}

/// Keys and values.
pub(super) type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// What a list says beside its items.
#[derive(Default)]
pub(super) struct ListHead {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}
