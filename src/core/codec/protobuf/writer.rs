//! Writes protobuf messages, envelopes and watch frames.

use super::envelope::MAGIC;
use super::fields::{Field, Fields, RESOURCE_VERSION};
use crate::api::ResourceVersion;
use crate::codec::Error;

/// The field of ObjectMeta with its managed fields.
const MANAGED_FIELDS: u32 = 17;
/// The empty `contentEncoding` and `contentType` that end an envelope.
pub(crate) const ENVELOPE_END: &[u8] = &[0x1a, 0x00, 0x22, 0x00];

/// Copies an object message with its resource version replaced.
pub(crate) fn with_resource_version(message: &[u8], rv: ResourceVersion) -> Result<Vec<u8>, Error> {
    with_metadata(message, |metadata, field| match field.number {
        RESOURCE_VERSION => put_bytes(metadata, RESOURCE_VERSION, rv.to_string().as_bytes()),
        _ => metadata.extend_from_slice(field.whole),
    })
}

/// Copies an object message without the managed fields in its metadata; `None` if it has none.
pub(crate) fn without_managed_fields(message: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut is_changed = false;
    let copy = with_metadata(message, |metadata, field| match field.number {
        MANAGED_FIELDS => is_changed = true,
        _ => metadata.extend_from_slice(field.whole),
    })?;
    Ok(is_changed.then_some(copy))
}

/// Copies an object message. `put` appends what the copy has for a field of the metadata.
fn with_metadata(
    message: &[u8],
    mut put: impl FnMut(&mut Vec<u8>, &Field<'_>),
) -> Result<Vec<u8>, Error> {
    let mut copy = Vec::with_capacity(message.len() + 24);
    for field in Fields::new(message) {
        let field = field?;
        if field.number != 1 {
            copy.extend_from_slice(field.whole);
            continue;
        }
        let fields = field.bytes()?;
        let mut metadata = Vec::with_capacity(fields.len() + 22);
        for field in Fields::new(fields) {
            put(&mut metadata, &field?);
        }
        put_bytes(&mut copy, 1, &metadata);
    }
    Ok(copy)
}

fn put_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Returns the number of bytes that [`put_varint`] appends for `value`.
pub(crate) fn varint_length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends the tag and length of a field whose value has `length` bytes.
pub(crate) fn put_prefix(buffer: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(buffer, u64::from(number << 3 | 2));
    put_varint(buffer, length as u64);
}

/// Appends a field whose value is bytes, text or a message.
pub fn put_bytes(buffer: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_prefix(buffer, number, bytes.len());
    buffer.extend_from_slice(bytes);
}

/// Encodes a message whose first fields are `texts`.
pub(crate) fn texts<const N: usize>(texts: [&str; N]) -> Vec<u8> {
    let mut message = Vec::with_capacity(64);
    for (number, text) in (1..).zip(texts) {
        put_bytes(&mut message, number, text.as_bytes());
    }
    message
}

/// Appends a field whose value is a varint.
pub fn put_number(buffer: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(buffer, u64::from(number << 3));
    put_varint(buffer, value);
}

/// Appends a field whose value has eight bytes.
pub fn put_fixed64(buffer: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(buffer, u64::from(number << 3 | 1));
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// Returns the bytes of an envelope before its content, which has `raw_length` bytes.
pub(crate) fn envelope_start(api_version: &str, kind: &str, raw_length: usize) -> Vec<u8> {
    let type_meta = texts([api_version, kind]);
    let mut start = Vec::with_capacity(type_meta.len() + 24);
    start.extend_from_slice(MAGIC);
    put_bytes(&mut start, 1, &type_meta);
    put_prefix(&mut start, 2, raw_length);
    start
}

/// Wraps the message `raw` in an envelope.
pub(crate) fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut envelope = envelope_start(api_version, kind, raw.len());
    envelope.extend_from_slice(raw);
    envelope.extend_from_slice(ENVELOPE_END);
    envelope
}

/// Makes a complete watch frame; `object` is the enveloped object in parts.
pub(crate) fn frame(event_type: &str, object: &[&[u8]]) -> Vec<u8> {
    let object_length = object.iter().map(|part| part.len()).sum::<usize>();
    let extension_length = 1 + varint_length(object_length as u64) + object_length;
    let mut head = Vec::with_capacity(32);
    put_bytes(&mut head, 1, event_type.as_bytes());
    put_prefix(&mut head, 2, extension_length);
    put_prefix(&mut head, 1, object_length);
    // The length prefix has four bytes. Objects from the upstream are far smaller than 4 GiB.
    let length = u32::try_from(head.len() + object_length).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(4 + head.len() + object_length);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&head);
    for part in object {
        frame.extend_from_slice(part);
    }
    frame
}
