//! One stored object: the upstream's bytes and the few values that reads select by.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::ObjectValues;
use super::ResourceVersion;
use super::object_values::PackedValues;

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
///
/// What was parsed out of the body is kept as places in it, so a body is never replaced alone.
// In this order, as a list of everything takes the bodies only: they are to be in the cache line of
// the reference count.
#[derive(Clone)]
#[repr(C)]
pub struct Object {
    /// The upstream's bytes.
    pub body: Bytes,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// Namespace and name.
    pub key: ObjectKey,
    values: PackedValues,
}

/// What an object takes beside itself: counts of references, and an entry in a map.
const OVERHEAD_BYTES: usize = 72;

impl Object {
    /// Makes an object of its parts.
    pub fn new(
        key: ObjectKey,
        resource_version: ResourceVersion,
        values: &ObjectValues<'_>,
        body: Bytes,
    ) -> Self {
        Self::from_source(key, resource_version, values, &[], body)
    }

    /// As [`Object::new`]; those of `values` that are slices of `source` take no memory if `body`
    /// is a copy of it.
    pub fn from_source(
        key: ObjectKey,
        resource_version: ResourceVersion,
        values: &ObjectValues<'_>,
        source: &[u8],
        body: Bytes,
    ) -> Self {
        let source = if source.len() == body.len() {
            source
        } else {
            &[]
        };
        Self {
            key,
            resource_version,
            values: PackedValues::new(values, source),
            body,
        }
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.values.uid(&self.body)
    }

    /// `metadata.labels`, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.values.labels(&self.body);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// The value of label `key`.
    pub fn label(&self, key: &str) -> Option<&str> {
        let mut texts = self.values.labels(&self.body);
        while let Some(label) = texts.next_bytes() {
            if label == key.as_bytes() {
                return texts.next();
            }
            texts.skip_text();
        }
        None
    }

    /// Values of the kind's selectable fields, in the order of `SelectableFields`.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let (count, texts) = self.values.fields(&self.body);
        texts.take(count)
    }

    /// The value of the selectable field at `position`; empty when the object carries none there.
    pub fn field(&self, position: usize) -> &str {
        let (count, mut texts) = self.values.fields(&self.body);
        if position >= count {
            return "";
        }
        (0..position).for_each(|_| texts.skip_text());
        texts.next().unwrap_or_default()
    }

    /// True when every selection by labels and fields that selects one of both selects the other.
    pub fn has_same_selectable_values(&self, other: &Self) -> bool {
        self.fields().eq(other.fields()) && self.labels().eq(other.labels())
    }

    /// The same object with a body of its own, if that takes less memory than the `allocated` bytes
    /// that its body is a slice of.
    #[must_use]
    pub fn with_own_body(&self, allocated: usize) -> Option<Self> {
        let is_smaller = rounded(self.body.len()) < rounded(allocated);
        is_smaller.then(|| Self {
            body: Bytes::copy_from_slice(&self.body),
            ..self.clone()
        })
    }

    /// What it takes in memory, its key and its place in a cache included.
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + OVERHEAD_BYTES
            + self.body.len()
            + self.values.allocated()
            + self.key.0.len()
    }
}

/// What jemalloc takes for so many bytes: it has four sizes between a power of two and the next.
fn rounded(bytes: usize) -> usize {
    let step = bytes.next_power_of_two() / 8;
    bytes.next_multiple_of(step.max(16))
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.resource_version == other.resource_version
            && self.key == other.key
            && self.body == other.body
            // Where the texts stand does not matter.
            && (self.values == other.values
                || self.uid() == other.uid() && self.has_same_selectable_values(other))
    }
}

impl Eq for Object {}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("key", &self.key)
            .field("uid", &self.uid())
            .field("resource_version", &self.resource_version)
            .field("labels", &self.labels().collect::<Vec<_>>())
            .field("fields", &self.fields().collect::<Vec<_>>())
            .field("body", &self.body)
            .finish()
    }
}
