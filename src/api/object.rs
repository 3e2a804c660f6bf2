//! One stored object: the upstream's bytes and the few values that reads select by.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::ResourceVersion;

/// An object's place in its resource: `namespace/name`, or `name` for cluster-scoped ones.
///
/// Ordered bytewise as the API server's storage keys are, so namespace `a-b` comes before `a`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Makes the key of `name` in `namespace`; `None` or `""` means cluster-scoped.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            None | Some("") => Self(name.into()),
            Some(namespace) => Self(format!("{namespace}/{name}").into()),
        }
    }

    /// The whole key, as it is ordered.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// An immutable object of one resource in one wire format.
///
/// `body` holds the upstream's bytes in the one form from which both the list item and the watch
/// event are printed exactly, by putting constant bytes around it:
/// - JSON of a kind whose `kind` and `apiVersion` come first in events and are absent in list items
///   (all built-in kinds): everything behind them, without the opening brace:
///   `"metadata":{…},"spec":{…}}`;
/// - JSON of a custom resource, whose keys are sorted: the whole object;
/// - protobuf: the bare object message, `raw` of `runtime.Unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.labels`, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the kind's selectable fields, in the order of `SelectableFields`.
    pub fields: Box<[Box<str>]>,
    /// The upstream's bytes.
    pub body: Bytes,
}

impl Object {
    /// The value of label `key`.
    pub fn label(&self, key: &str) -> Option<&str> {
        let position = self
            .labels
            .binary_search_by(|(label, _)| label.as_ref().cmp(key))
            .ok()?;
        Some(&self.labels[position].1)
    }
}
