//! Protobuf objects: the decoder reads the same fields as a simple reference reader and as the
//! converter to JSON, and an encoded object decodes to the same value.

use bytes::Bytes;
use kubefan::api::{EventType, Object, WireFormat};
use kubefan::codec::{Decoder, Encoder, TypeMeta};
use serde_json::Value;

use super::pod_fields;
use super::printed::{check_page_round_trip, check_round_trip};

const FORMAT: WireFormat = WireFormat::Protobuf;

/// Decodes any bytes as an object in its envelope, as a list, and as the Status of an error answer.
pub fn object_protobuf(data: &[u8]) {
    let decoder = Decoder::new(FORMAT, pod_fields());
    let _ = kubefan::codec::decode_status(FORMAT.media_type(), 500, data);
    let body = Bytes::copy_from_slice(data);
    let type_meta = TypeMeta::read(FORMAT, &body);
    if let (Ok(page), Ok(type_meta)) = (decoder.list(&body), &type_meta) {
        check_page_round_trip(&decoder, &Encoder::from_type_meta(FORMAT, type_meta), page);
    }
    let read = decoder.object(data);
    let found = reference::object(data);
    let Ok(object) = read else { return };
    let expected = found.expect("the reference reads every object that the decoder reads");
    assert_eq!(decoded_fields(&object), expected);
    if let Ok(type_meta) = type_meta {
        let encoder = Encoder::from_type_meta(FORMAT, &type_meta);
        check_round_trip(&decoder, &encoder, (EventType::Added, &object), true);
        let printed = encoder.object_body(&object).concat();
        assert_eq!(decoder.object(&printed).as_ref(), Ok(&object));
    }
}

/// The key, uid, version and labels of an object.
type DecodedFields = (String, String, u64, Vec<(String, String)>);

fn decoded_fields(object: &Object) -> DecodedFields {
    let labels = object.labels();
    (
        object.key.to_string(),
        object.uid().to_owned(),
        object.resource_version.0,
        labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
    )
}

/// Converts any bytes to JSON, as for a body that a client writes. If both the converter and the
/// decoder accept the bytes, they must read the same metadata.
pub fn protobuf_to_json(data: &[u8]) {
    let Ok(value) = kubefan::codec::protobuf_to_json(data) else {
        return;
    };
    let text = value.to_string();
    assert_eq!(
        serde_json::from_str::<Value>(&text).as_ref().ok(),
        Some(&value),
        "{text}"
    );
    let is_text = |name: &str| value.get(name).is_some_and(Value::is_string);
    assert!(is_text("kind") && is_text("apiVersion"), "{text}");
    let decoder = Decoder::new(FORMAT, pod_fields());
    let Ok(object) = decoder.object(data) else {
        return;
    };
    let Some(metadata) = value.get("metadata") else {
        return;
    };
    let part = |name: &str| {
        metadata
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let key = match part("namespace") {
        "" => part("name").to_owned(),
        namespace => format!("{namespace}/{}", part("name")),
    };
    // If a message is repeated, the decoder reads all its parts and the converter only the last.
    if reference::has_one_metadata(data) {
        assert_eq!(object.key.as_str(), key, "{text}");
        assert_eq!(object.uid(), part("uid"), "{text}");
        for (label, _) in object.labels() {
            let converted = metadata.get("labels").and_then(|labels| labels.get(label));
            let values = object.labels().filter(|(key, _)| *key == label);
            let last = values.map(|(_, value)| value).last();
            assert_eq!(converted.and_then(Value::as_str), last, "{text}");
        }
    }
}

/// A reference reader of protobuf objects, which is simple instead of fast.
mod reference {
    use super::DecodedFields;

    /// A field's number, and its bytes if it is length-delimited.
    type Field<'a> = (u64, Option<&'a [u8]>);

    fn varint(message: &mut &[u8]) -> Option<u64> {
        let length = message.iter().position(|byte| *byte < 0x80)? + 1;
        let (number, rest) = message.split_at(length);
        *message = rest;
        let bits = number.iter().enumerate().take(10);
        (length <= 10).then(|| {
            bits.fold(0, |value, (index, byte)| {
                value
                    | u64::from(byte & 0x7f)
                        .checked_shl(7 * index as u32)
                        .unwrap_or(0)
            })
        })
    }

    fn fields(mut message: &[u8]) -> Option<Vec<Field<'_>>> {
        let mut fields = Vec::new();
        while !message.is_empty() {
            let tag = varint(&mut message)?;
            let length = match tag & 7 {
                0 => {
                    varint(&mut message)?;
                    fields.push((tag >> 3, None));
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut message)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (bytes, rest) = message.split_at_checked(length)?;
            message = rest;
            fields.push((tag >> 3, (tag & 7 == 2).then_some(bytes)));
        }
        Some(fields)
    }

    /// The bytes of the last field with this number, which counts; empty if there is none.
    fn last<'a>(fields: &[Field<'a>], number: u64) -> Option<&'a [u8]> {
        let found = fields.iter().rev().find(|(known, _)| *known == number);
        found.map_or(Some(&[][..]), |(_, bytes)| *bytes)
    }

    fn text(bytes: &[u8]) -> Option<String> {
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn raw(data: &[u8]) -> Option<&[u8]> {
        last(&fields(data.strip_prefix(b"k8s\0")?)?, 2)
    }

    /// The fields of all metadata messages in order, because repeated messages are merged.
    fn metadata(message: &[u8]) -> Option<Vec<Field<'_>>> {
        let all = fields(message)?;
        let parts = all.iter().filter(|(number, _)| *number == 1);
        let merged = parts
            .map(|(_, bytes)| fields((*bytes)?))
            .collect::<Option<Vec<_>>>()?;
        Some(merged.concat())
    }

    pub(super) fn has_one_metadata(data: &[u8]) -> bool {
        let all = raw(data).and_then(fields).unwrap_or_default();
        all.iter().filter(|(number, _)| *number == 1).count() == 1
    }

    pub(super) fn object(data: &[u8]) -> Option<DecodedFields> {
        let metadata = metadata(raw(data)?)?;
        let part = |number| text(last(&metadata, number)?);
        let mut labels = Vec::new();
        for (_, entry) in metadata.iter().filter(|(number, _)| *number == 11) {
            let entry = fields((*entry)?)?;
            labels.push((text(last(&entry, 1)?)?, text(last(&entry, 2)?)?));
        }
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        let key = match part(3)?.as_str() {
            "" => part(1)?,
            namespace => format!("{namespace}/{}", part(1)?),
        };
        Some((key, part(5)?, part(6)?.parse().ok()?, labels))
    }
}
