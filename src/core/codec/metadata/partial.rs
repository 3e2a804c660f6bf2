//! The body of a PartialObjectMetadata: sliced from a cached object's body, converted from it, or
//! rebuilt from the values that the cache has of the object.

use std::borrow::Cow;

use bytes::Bytes;

use super::declared_order::in_declared_order;
use super::hidden::{is_hidden, without_annotation};
use super::object_meta;
use super::version::{at_version, metadata};
use crate::api::{Object, ResourceVersion, WireFormat};
use crate::codec::Error;
use crate::codec::protobuf::{Field, Fields, RESOURCE_VERSION, put_bytes};

/// Makes the body of a PartialObjectMetadata in the format `to` from a cached object's canonical
/// body in the format `from`.
///
/// The annotation `hidden` is left out. If `at` is set, it replaces the resource version. In JSON
/// the result is the value of `metadata`; in protobuf it is the complete message. The result is a
/// slice of `body` if the metadata needs no change.
pub(crate) fn partial_body(
    from: WireFormat,
    to: WireFormat,
    hidden: Option<&str>,
    body: &Bytes,
    at: Option<ResourceVersion>,
) -> Result<Bytes, Error> {
    match (from, to) {
        (WireFormat::Protobuf, WireFormat::Protobuf) => return protobuf_body(body, hidden, at),
        // Not needed: a resource with protobuf also has JSON, and metadata in JSON is made from it.
        (WireFormat::Protobuf, WireFormat::Json) => {
            return Err(Error::Protobuf("metadata does not become JSON"));
        }
        (WireFormat::Json, _) => {}
    }
    let metadata = &body[metadata(body)?];
    let mut current = match at {
        None => Cow::Borrowed(metadata),
        Some(rv) => Cow::Owned(at_version(metadata, rv)?),
    };
    if let Some(hidden) = hidden
        && memchr::memmem::find(metadata, hidden.as_bytes()).is_some()
    {
        current = Cow::Owned(without_annotation(&current, hidden)?);
    }
    // The keys of a custom resource are sorted; the keys of a PartialObjectMetadata are not.
    let is_sorted = body.first() == Some(&b'{');
    Ok(match (to, current) {
        (WireFormat::Protobuf, current) => {
            let mut message = Vec::with_capacity(current.len() + 8);
            put_bytes(&mut message, 1, &object_meta::from_json(&current)?);
            message.into()
        }
        (WireFormat::Json, current) if is_sorted => in_declared_order(&current)?.into(),
        (WireFormat::Json, Cow::Borrowed(metadata)) => body.slice_ref(metadata),
        (WireFormat::Json, Cow::Owned(metadata)) => metadata.into(),
    })
}

/// Makes the body of a PartialObjectMetadata from the values that the cache has of the object:
/// name, namespace, uid, and `at` as the resource version.
///
/// Used if the object's metadata is so malformed that [`partial_body`] fails.
pub(crate) fn bare_body(to: WireFormat, object: &Object, at: ResourceVersion) -> Bytes {
    let mut metadata = serde_json::Map::new();
    metadata.insert("name".to_owned(), object.key.name().into());
    if !object.key.namespace().is_empty() {
        metadata.insert("namespace".to_owned(), object.key.namespace().into());
    }
    metadata.insert("uid".to_owned(), object.uid().into());
    metadata.insert("resourceVersion".to_owned(), at.to_string().into());
    let json = serde_json::Value::Object(metadata).to_string();
    match to {
        WireFormat::Json => json.into(),
        WireFormat::Protobuf => {
            let mut message = Vec::new();
            let metadata = object_meta::from_json(json.as_bytes());
            put_bytes(&mut message, 1, &metadata.expect("metadata is JSON"));
            message.into()
        }
    }
}

fn protobuf_body(
    body: &Bytes,
    hidden: Option<&str>,
    at: Option<ResourceVersion>,
) -> Result<Bytes, Error> {
    for field in Fields::new(body) {
        let field = field?;
        if field.number == 1 {
            return protobuf_metadata(body, &field, hidden, at);
        }
    }
    Err(Error::Missing("metadata"))
}

/// Returns a message with only the field `metadata`, which is a field of `body`.
fn protobuf_metadata(
    body: &Bytes,
    metadata: &Field<'_>,
    hidden: Option<&str>,
    at: Option<ResourceVersion>,
) -> Result<Bytes, Error> {
    let fields = || metadata.bytes().map(Fields::new);
    let is_hidden = |field: &Field<'_>| hidden.is_some_and(|hidden| is_hidden(field, hidden));
    let hides =
        hidden.is_some() && fields()?.any(|field| field.is_ok_and(|field| is_hidden(&field)));
    if at.is_none() && !hides {
        return Ok(body.slice_ref(metadata.whole));
    }
    let mut output = Vec::with_capacity(metadata.whole.len() + 24);
    for field in fields()? {
        let field = field?;
        match (field.number, at) {
            (RESOURCE_VERSION, Some(rv)) => {
                put_bytes(&mut output, RESOURCE_VERSION, rv.to_string().as_bytes());
            }
            _ if hides && is_hidden(&field) => {}
            _ => output.extend_from_slice(field.whole),
        }
    }
    let mut message = Vec::with_capacity(output.len() + 8);
    put_bytes(&mut message, 1, &output);
    Ok(message.into())
}
