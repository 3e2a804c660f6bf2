//! Decodes a cached object into a Rust type.

use std::marker::PhantomData;
use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey, Resource};
use serde::de::DeserializeOwned;

/// Decodes the objects of one resource as `K`.
pub(super) struct Decoder<K> {
    pub(super) resource: Arc<Resource>,
    /// The keys `kind` and `apiVersion`, which the API server does not repeat in each item of a
    /// list.
    head: String,
    on_error: Arc<dyn Fn(&DecodeError) + Send + Sync>,
    decodes: PhantomData<fn() -> K>,
}

/// An object that is not of the informer's type.
#[derive(Debug, thiserror::Error)]
#[error("{resource} {key} cannot be decoded as {type_name}")]
pub struct DecodeError {
    /// The namespace and name of the object.
    pub key: ObjectKey,
    /// The resource, as the API server's messages name it.
    resource: String,
    type_name: &'static str,
    source: serde_json::Error,
}

// === impl Decoder ===

impl<K: DeserializeOwned> Decoder<K> {
    /// Creates a decoder of the objects of `resource`. It calls `on_error` for what cannot be
    /// decoded.
    pub(super) fn new(
        resource: Arc<Resource>,
        on_error: Arc<dyn Fn(&DecodeError) + Send + Sync>,
    ) -> Self {
        let (kind, version) = (&resource.kind, resource.gvr.api_version());
        Self {
            head: format!(r#"{{"kind":"{kind}","apiVersion":"{version}","#),
            resource,
            on_error,
            decodes: PhantomData,
        }
    }

    pub(super) fn decode(&self, object: &Object) -> Result<Arc<K>, DecodeError> {
        let decoded = match object.body.first() {
            Some(b'{') => parse(&object.body),
            _ => parse(&[self.head.as_bytes(), &object.body].concat()),
        };
        decoded.map(Arc::new).map_err(|source| DecodeError {
            key: object.key.clone(),
            resource: self.resource.gvr.group_resource(),
            type_name: std::any::type_name::<K>(),
            source,
        })
    }

    /// Like [`Decoder::decode`], but reports an error to the informer's user.
    pub(super) fn decode_or_report(&self, object: &Object) -> Option<Arc<K>> {
        let decoded = self.decode(object);
        decoded.map_err(|error| (self.on_error)(&error)).ok()
    }
}

/// Parses `json`. UTF-8 is checked once for all of it, which takes less time than for each string.
fn parse<K: DeserializeOwned>(json: &[u8]) -> serde_json::Result<K> {
    match std::str::from_utf8(json) {
        Ok(text) => serde_json::from_str(text),
        // The result is that of `from_slice`, which checks no UTF-8 in members that `K` ignores.
        Err(_) => serde_json::from_slice(json),
    }
}
