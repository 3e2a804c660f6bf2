//! The values that the decoder reads from an object or list, in both wire formats.

use std::borrow::Cow;

use super::field_tree::Values;

/// The values that are read from an object: its metadata and its selectable fields.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    pub(super) namespace: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) uid: Cow<'a, str>,
    pub(super) resource_version: Cow<'a, str>,
    pub(super) labels: Labels<'a>,
    pub(super) values: Values<'a>,
}

/// An object's labels as pairs of key and value, in the order of the object.
pub(super) type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The list metadata that is read from a page of a LIST.
#[derive(Default)]
pub(super) struct ListHead {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}
