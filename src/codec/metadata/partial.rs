//! Metadata on its own, as a PartialObjectMetadata carries it.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::object_meta;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::WireFormat;
use crate::codec::Error;
use crate::codec::json::Members;
use crate::codec::json::Scanner;
use crate::codec::protobuf::Field;
use crate::codec::protobuf::Fields;
use crate::codec::protobuf::RESOURCE_VERSION;
use crate::codec::protobuf::map_entry;
use crate::codec::protobuf::put_bytes;

/// `annotations` within ObjectMeta in protobuf.
const ANNOTATIONS: u32 = 12;

/// The fields of ObjectMeta in the order that the API declares them, which is that of JSON printed
/// from it.
pub const OBJECT_META: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
pub(crate) const OWNER_REFERENCE: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
pub(crate) const MANAGED_FIELDS: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

/// The annotation that the API server puts into whole objects of a kind, made of what it keeps
/// elsewhere: metadata alone goes without it.
pub(crate) fn hidden_annotation(api_version: &str, kind: &str) -> Option<&'static str> {
    match (api_version, kind) {
        ("apps/v1", "DaemonSet") => Some("deprecated.daemonset.template.generation"),
        _ => None,
    }
}

/// An object's metadata as it stands in a PartialObjectMetadata of the format `to`, from a
/// canonical body in the format `from`, without the annotation `hidden`; at another resource
/// version if `at` is one.
///
/// In JSON that is the metadata's value, in protobuf the whole message. Unless something changes,
/// it is a slice of the body.
pub(crate) fn partial_body(
    from: WireFormat,
    to: WireFormat,
    hidden: Option<&str>,
    body: &Bytes,
    at: Option<ResourceVersion>,
) -> Result<Bytes, Error> {
    match (from, to) {
        (WireFormat::Protobuf, WireFormat::Protobuf) => return protobuf_body(body, hidden, at),
        // Whatever comes in protobuf is there in JSON too, so nobody needs it.
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
    // A custom resource's keys are sorted, those of metadata on its own are not.
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

/// The metadata of an object whose own can't be printed, because it is not as API servers send it:
/// what is known of it for certain.
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
            put_bytes(&mut message, 1, &metadata.expect("it is a JSON object"));
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
        if field.number != 1 {
            continue;
        }
        let is_hidden = |inner: &Field<'_>| {
            inner.number == ANNOTATIONS
                && inner.bytes().and_then(map_entry).ok().map(|entry| entry.0) == hidden
        };
        let mut fields = Fields::new(field.bytes()?);
        let hides = hidden.is_some() && fields.any(|inner| inner.is_ok_and(|i| is_hidden(&i)));
        if at.is_none() && !hides {
            return Ok(body.slice_ref(field.whole));
        }
        let mut metadata = Vec::with_capacity(field.whole.len() + 24);
        for inner in Fields::new(field.bytes()?) {
            let inner = inner?;
            match (inner.number, at) {
                (RESOURCE_VERSION, Some(rv)) => {
                    put_bytes(&mut metadata, RESOURCE_VERSION, rv.to_string().as_bytes());
                }
                _ if hides && is_hidden(&inner) => {}
                _ => metadata.extend_from_slice(inner.whole),
            }
        }
        let mut message = Vec::with_capacity(metadata.len() + 8);
        put_bytes(&mut message, 1, &metadata);
        return Ok(message.into());
    }
    Err(Error::Missing("metadata"))
}

/// JSON metadata without an annotation, and without annotations if there is no other.
fn without_annotation(metadata: &[u8], hidden: &str) -> Result<Vec<u8>, Error> {
    let mut kept = Vec::with_capacity(metadata.len());
    let mut scanner = Scanner::new(metadata);
    let mut fields = scanner.object()?;
    let mut open = b'{';
    while let Some(key) = scanner.next_key(&mut fields)? {
        if !key.text.is("annotations") || scanner.peek() != Some(b'{') {
            let value = scanner.skip()?;
            kept.push(std::mem::replace(&mut open, b','));
            kept.extend_from_slice(&metadata[key.start..value.end]);
            continue;
        }
        let mut others = Vec::new();
        let mut entries = scanner.object()?;
        while let Some(entry) = scanner.next_key(&mut entries)? {
            let value = scanner.skip()?;
            if !entry.text.is(hidden) {
                others.push(&metadata[entry.start..value.end]);
            }
        }
        if !others.is_empty() {
            kept.push(std::mem::replace(&mut open, b','));
            kept.extend_from_slice(b"\"annotations\":{");
            kept.extend_from_slice(&others.join(&b','));
            kept.push(b'}');
        }
    }
    kept.push(b'}');
    Ok(kept)
}

/// Where the metadata's value stands in a canonical JSON body.
pub(crate) fn metadata(body: &[u8]) -> Result<Range<usize>, Error> {
    let mut scanner = Scanner::new(body);
    let mut members = match body.first() {
        Some(b'{') => scanner.object()?,
        _ => Members::default(),
    };
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if key.text.is("metadata") {
            return Ok(value);
        }
    }
    Err(Error::Missing("metadata"))
}

/// The canonical JSON body with another resource version.
pub(crate) fn json_with_resource_version(
    body: &[u8],
    rv: ResourceVersion,
) -> Result<Vec<u8>, Error> {
    let place = metadata(body)?;
    let changed = at_version(&body[place.clone()], rv)?;
    Ok([&body[..place.start], &changed, &body[place.end..]].concat())
}

/// Metadata with another resource version.
fn at_version(metadata: &[u8], rv: ResourceVersion) -> Result<Vec<u8>, Error> {
    let mut scanner = Scanner::new(metadata);
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.skip()?;
        if key.text.is("resourceVersion") {
            let quoted = format!("\"{rv}\"");
            let (before, behind) = (&metadata[..value.start], &metadata[value.end..]);
            return Ok([before, quoted.as_bytes(), behind].concat());
        }
    }
    Err(Error::Missing("metadata.resourceVersion"))
}

/// Metadata as it is printed on its own, from one with sorted keys.
pub(crate) fn in_declared_order(metadata: &[u8]) -> Result<Vec<u8>, Error> {
    let mut printed = Vec::with_capacity(metadata.len());
    put_ordered(
        &mut printed,
        metadata,
        &OBJECT_META,
        |printed, name, value| match name {
            "ownerReferences" => put_each_ordered(printed, value, &OWNER_REFERENCE),
            "managedFields" => put_each_ordered(printed, value, &MANAGED_FIELDS),
            _ => {
                printed.extend_from_slice(value);
                Ok(())
            }
        },
    )?;
    Ok(printed)
}

fn put_each_ordered<const N: usize>(
    printed: &mut Vec<u8>,
    list: &[u8],
    order: &[&str; N],
) -> Result<(), Error> {
    let mut open = b'[';
    for item in elements(list)? {
        printed.push(std::mem::replace(&mut open, b','));
        put_ordered(printed, item, order, |printed, _, value| {
            printed.extend_from_slice(value);
            Ok(())
        })?;
    }
    if open == b'[' {
        printed.push(open);
    }
    printed.push(b']');
    Ok(())
}

/// Prints the members of a JSON object that `order` names, in that order.
fn put_ordered<const N: usize>(
    printed: &mut Vec<u8>,
    object: &[u8],
    order: &[&str; N],
    put: impl Fn(&mut Vec<u8>, &str, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let found = members(object, order)?;
    let mut open = b'{';
    for (name, value) in order.iter().zip(found) {
        let Some(value) = value else { continue };
        printed.push(std::mem::replace(&mut open, b','));
        printed.push(b'"');
        printed.extend_from_slice(name.as_bytes());
        printed.extend_from_slice(b"\":");
        put(printed, name, value)?;
    }
    if open == b'{' {
        printed.push(open);
    }
    printed.push(b'}');
    Ok(())
}

/// The values of the members that `names` names, in its order; none of them for null.
pub(crate) fn members<'a, const N: usize>(
    object: &'a [u8],
    names: &[&str; N],
) -> Result<[Option<&'a [u8]>; N], Error> {
    let mut found = [None; N];
    let mut scanner = Scanner::new(object);
    if scanner.peek() == Some(b'n') {
        return Ok(found);
    }
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        let value = scanner.value()?;
        if let Some(position) = names.iter().position(|name| key.text.is(name)) {
            found[position] = Some(value);
        }
    }
    Ok(found)
}

/// The elements of a JSON array; none for null.
pub(crate) fn elements(array: &[u8]) -> Result<Vec<&[u8]>, Error> {
    let mut found = Vec::new();
    let mut scanner = Scanner::new(array);
    if scanner.peek() == Some(b'n') {
        return Ok(found);
    }
    let mut elements = scanner.array()?;
    while scanner.next_element(&mut elements)? {
        found.push(scanner.value()?);
    }
    Ok(found)
}
