//! Converts the JSON metadata of a custom resource into a protobuf ObjectMeta, byte for byte like
//! the API server.
//!
//! Fields are ordered by number and map entries by key. A field that is not a pointer in Go is
//! written even if it is empty. A text, number or time of the wrong type is treated as absent.

use std::borrow::Cow;

use jiff::Timestamp;

use super::members::{MANAGED_FIELDS, OBJECT_META, OWNER_REFERENCE, elements, members};
use crate::codec::Error;
use crate::codec::json::{Scanner, Text};
use crate::codec::protobuf::{put_bytes, put_number};

/// A member's value as JSON text; `None` if the member is absent.
type Value<'a> = Option<&'a [u8]>;

/// Converts JSON `metadata` into a protobuf ObjectMeta message.
///
/// # Errors
///
/// If `metadata` is not a JSON object, or if a map, list or string in it is malformed.
pub(super) fn from_json(metadata: &[u8]) -> Result<Vec<u8>, Error> {
    let found = members(metadata, &OBJECT_META)?;
    let mut message = Vec::with_capacity(metadata.len());
    for (number, value) in (1..).zip(&found[..6]) {
        put_text(&mut message, number, *value)?;
    }
    let [
        ..,
        generation,
        created,
        deleted,
        grace_period,
        labels,
        annotations,
        owners,
        finalizers,
        managed_fields,
    ] = found;
    put_number(&mut message, 7, number(generation).unwrap_or_default());
    put_bytes(&mut message, 8, &time(created)?);
    put_pointer(&mut message, 9, deleted, time)?;
    if let Some(seconds) = number(grace_period) {
        put_number(&mut message, 10, seconds);
    }
    put_map(&mut message, 11, labels)?;
    put_map(&mut message, 12, annotations)?;
    put_each(&mut message, 13, owners, owner_reference)?;
    put_each(&mut message, 14, finalizers, |value| {
        Ok(text(Some(value))?.into_owned().into_bytes())
    })?;
    put_each(&mut message, 17, managed_fields, managed_fields_entry)?;
    Ok(message)
}

fn owner_reference(json: &[u8]) -> Result<Vec<u8>, Error> {
    let [api_version, kind, name, uid, controller, blocks_deletion] =
        members(json, &OWNER_REFERENCE)?;
    let mut message = Vec::with_capacity(json.len());
    for (number, value) in [(1, kind), (3, name), (4, uid), (5, api_version)] {
        put_text(&mut message, number, value)?;
    }
    for (number, value) in [(6, controller), (7, blocks_deletion)] {
        match value {
            Some(b"true") => put_number(&mut message, number, 1),
            Some(b"false") => put_number(&mut message, number, 0),
            _ => {}
        }
    }
    Ok(message)
}

fn managed_fields_entry(json: &[u8]) -> Result<Vec<u8>, Error> {
    let found = members(json, &MANAGED_FIELDS)?;
    let mut message = Vec::with_capacity(json.len());
    for (number, value) in (1..).zip(&found[..3]) {
        put_text(&mut message, number, *value)?;
    }
    let [.., at, fields_type, fields, subresource] = found;
    put_pointer(&mut message, 4, at, time)?;
    put_text(&mut message, 6, fields_type)?;
    put_pointer(&mut message, 7, fields, |json| {
        // FieldsV1 stays JSON text in protobuf.
        let mut fields = Vec::with_capacity(json.unwrap_or_default().len() + 6);
        put_bytes(&mut fields, 1, json.unwrap_or_default());
        Ok(fields)
    })?;
    put_text(&mut message, 8, subresource)?;
    Ok(message)
}

/// Converts and appends the value of a pointer field; appends nothing if it is absent or null.
fn put_pointer<'a>(
    message: &mut Vec<u8>,
    number: u32,
    value: Value<'a>,
    convert: impl Fn(Value<'a>) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let value = value.filter(|value| *value != b"null");
    if value.is_some() {
        put_bytes(message, number, &convert(value)?);
    }
    Ok(())
}

fn put_each(
    message: &mut Vec<u8>,
    number: u32,
    list: Value<'_>,
    convert: impl Fn(&[u8]) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    for element in elements(list.unwrap_or(b"null"))? {
        put_bytes(message, number, &convert(element)?);
    }
    Ok(())
}

fn put_map(message: &mut Vec<u8>, number: u32, map: Value<'_>) -> Result<(), Error> {
    let mut scanner = Scanner::new(map.unwrap_or(b"null"));
    if scanner.peek() == Some(b'n') {
        return Ok(());
    }
    let mut entries = Vec::new();
    let mut members = scanner.object()?;
    while let Some(key) = scanner.next_key(&mut members)? {
        entries.push((key.text.unescape()?, text(Some(scanner.value()?))?));
    }
    entries.sort();
    let mut entry = Vec::new();
    for (key, value) in entries {
        entry.clear();
        put_bytes(&mut entry, 1, key.as_bytes());
        put_bytes(&mut entry, 2, value.as_bytes());
        put_bytes(message, number, &entry);
    }
    Ok(())
}

fn put_text(message: &mut Vec<u8>, number: u32, value: Value<'_>) -> Result<(), Error> {
    put_bytes(message, number, text(value)?.as_bytes());
    Ok(())
}

fn text(value: Value<'_>) -> Result<Cow<'_, str>, Error> {
    match value {
        Some([b'"', inside @ .., b'"']) => Text(inside).unescape(),
        _ => Ok(Cow::Borrowed("")),
    }
}

/// Parses an integer into its varint form; negative numbers are in two's complement.
fn number(value: Value<'_>) -> Option<u64> {
    let number: i64 = std::str::from_utf8(value?).ok()?.parse().ok()?;
    Some(number.cast_unsigned())
}

/// Encodes a `Time` message of seconds and nanoseconds; it is empty if the value is not a time.
fn time(value: Value<'_>) -> Result<Vec<u8>, Error> {
    let mut message = Vec::new();
    if let Ok(time) = text(value)?.parse::<Timestamp>() {
        put_number(&mut message, 1, time.as_second().cast_unsigned());
        // Nanoseconds are zero, because a time in JSON has no fraction of a second.
        put_number(&mut message, 2, 0);
    }
    Ok(message)
}
