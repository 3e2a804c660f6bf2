//! One stored object: the upstream's bytes, and the few values that selectors compare.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::object_values::PackedValues;
use super::{ObjectValues, ResourceVersion};

/// The key of an object within its resource: `namespace/name`, or `name` if it is cluster-scoped.
///
/// Keys are ordered by bytes like the API server's storage keys, so namespace `a-b` is before `a`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// Makes the key of the object `name` in `namespace`; `None` or `""` means cluster-scoped.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            None | Some("") => Self(name.into()),
            Some(namespace) => Self([namespace, "/", name].concat().into()),
        }
    }

    /// Returns the key as text: `namespace/name`, or `name` for a cluster-scoped object.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the namespace, which is empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// Returns the object's name, without the namespace.
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
/// `body` holds the upstream's bytes in a form that constant bytes around it turn into exactly the
/// API server's list item or watch event:
/// - JSON of a built-in kind: events begin with `kind` and `apiVersion`, and list items have
///   neither, so this is everything after these two keys, without the opening brace:
///   `"metadata":{…},"spec":{…}}`;
/// - JSON of a custom resource, which has sorted keys: the complete object;
/// - protobuf: the object message alone, which is `raw` in `runtime.Unknown`.
///
/// Values parsed from the body are stored as positions in it. Replacing only the body with
/// different bytes would therefore break them.
// The body is the first field, so that it shares a cache line with the `Arc`'s reference counts:
// listing all objects reads only these.
#[derive(Clone)]
#[repr(C)]
pub struct Object {
    /// The object as the upstream encoded it, in the form that the type's documentation describes.
    pub body: Bytes,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// The namespace and name that identify the object within its resource.
    pub key: ObjectKey,
    values: PackedValues,
}

/// Estimated memory of an object outside its fields: reference counts, and an entry in a map.
const OVERHEAD_BYTES: usize = 72;

impl Object {
    /// Makes an object from its parts; all of `values` are copied.
    pub fn new(
        key: ObjectKey,
        resource_version: ResourceVersion,
        values: &ObjectValues<'_>,
        body: Bytes,
    ) -> Self {
        Self::from_source(key, resource_version, values, &[], body)
    }

    /// Makes an object like [`Object::new`], but does not copy `values` that are slices of
    /// `source`: it stores their positions, which are valid in `body` too. `body` must equal
    /// `source`, or have another length; `source` is then ignored.
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

    /// Returns `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.values.uid(&self.body)
    }

    /// Returns `metadata.labels`, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.values.labels(&self.body);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// Returns the value of the label `key`, or `None` if the object does not have the label.
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

    /// Returns the values of the kind's selectable fields, in the order of
    /// `SelectableFields::fields`.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let (count, texts) = self.values.fields(&self.body);
        texts.take(count)
    }

    /// Returns the value of the selectable field at `position`, or an empty text if the object has
    /// no such value.
    pub fn field(&self, position: usize) -> &str {
        let (count, mut texts) = self.values.fields(&self.body);
        if position >= count {
            return "";
        }
        (0..position).for_each(|_| texts.skip_text());
        texts.next().unwrap_or_default()
    }

    /// Returns true if both objects have equal labels and selectable fields. Then every label or
    /// field selector matches both objects or neither.
    pub fn has_same_selectable_values(&self, other: &Self) -> bool {
        self.fields().eq(other.fields()) && self.labels().eq(other.labels())
    }

    /// Returns true if both objects have equal values in the first `count` selectable fields.
    pub(crate) fn has_same_fields(&self, other: &Self, count: usize) -> bool {
        // Bytes are compared in one walk: this is done for each change.
        let (_, mut own) = self.values.fields(&self.body);
        let (_, mut others) = other.values.fields(&other.body);
        (0..count).all(|_| {
            let (own, other) = (own.next_bytes(), others.next_bytes());
            own.unwrap_or_default() == other.unwrap_or_default()
        })
    }

    /// Decodes the object, which is stored as JSON.
    ///
    /// # Errors
    /// If it has another form than `T`, or is stored as protobuf.
    pub fn decode_json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        match self.body.first() {
            Some(b'{') => serde_json::from_slice(&self.body),
            // Objects of built-in kinds have no opening brace.
            _ => serde_json::from_slice(&[b"{", &self.body[..]].concat()),
        }
    }

    /// Returns a clone with a copy of the body, if the copy takes less memory than the allocation
    /// of `allocated` bytes that holds the body now.
    #[must_use]
    pub fn with_own_body(&self, allocated: usize) -> Option<Self> {
        let should_copy = self.should_have_own_body(allocated);
        should_copy.then(|| self.with_copied_body())
    }

    /// Returns true if [`Object::with_own_body`] returns a copy.
    pub(crate) fn should_have_own_body(&self, allocated: usize) -> bool {
        rounded(self.body.len()) < rounded(allocated)
    }

    pub(crate) fn with_copied_body(&self) -> Self {
        Self {
            body: Bytes::copy_from_slice(&self.body),
            ..self.clone()
        }
    }

    /// Estimates the memory of the object in bytes, including its key and its entry in a cache.
    pub fn size(&self) -> usize {
        size_of::<Self>()
            + OVERHEAD_BYTES
            + self.body.len()
            + self.values.allocated()
            + self.key.0.len()
    }
}

/// Returns the memory that jemalloc allocates for `bytes`: it has four size
/// classes per power of two.
fn rounded(bytes: usize) -> usize {
    let step = bytes.next_power_of_two() / 8;
    bytes.next_multiple_of(step.max(16))
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.resource_version == other.resource_version
            && self.key == other.key
            && self.body == other.body
            // Objects are equal even if only one of them stores its values as positions.
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
