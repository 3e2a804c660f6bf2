//! JSON objects: the decoder's scanner reads the same values as serde_json, and an encoded object
//! decodes to the same value.

use bytes::Bytes;
use kubefan::api::{EventType, FieldValue, Object, SelectableField, WireFormat};
use kubefan::codec::{Decoder, Encoder, TypeMeta};
use serde_json::Value;

use super::plain::is_plain;
use super::pod_fields;
use super::printed::{check_page_round_trip, check_round_trip};

/// Decodes any bytes as an object, as a list, and as the Status of an error answer.
pub fn object_json(data: &[u8]) {
    let decoder = Decoder::new(WireFormat::Json, pod_fields());
    let read = decoder.object(data).ok();
    let _ = kubefan::codec::decode_status("application/json", 500, data);
    list(&decoder, data);
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    if is_plain(data) && !has_exotic_numbers(&value) {
        assert_eq!(
            read.as_ref().map(decoded_fields),
            expected(&value),
            "{value}"
        );
    }
    for printed in [value.to_string(), format!("{value:#}")] {
        let read = decoder.object(printed.as_bytes());
        assert_eq!(
            read.as_ref().ok().map(decoded_fields),
            expected(&value),
            "{printed}"
        );
        if let Ok(object) = read {
            check_object_round_trip(&decoder, &object, &value);
        }
    }
}

/// The key, uid, version, labels and field values of an object.
type DecodedFields = (String, String, u64, Vec<(String, String)>, Vec<String>);

fn decoded_fields(object: &Object) -> DecodedFields {
    let labels = object.labels();
    (
        object.key.to_string(),
        object.uid().to_owned(),
        object.resource_version.0,
        labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        object.fields().map(ToString::to_string).collect(),
    )
}

/// The fields of an object as serde_json reads them; `None` if the decoder must reject the object.
fn expected(value: &Value) -> Option<DecodedFields> {
    let metadata = match value.as_object()?.get("metadata") {
        None | Some(Value::Null) => return None,
        Some(metadata) => metadata.as_object()?,
    };
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(value) => value.as_str().map(str::to_owned),
    };
    let part = |name: &str| text(metadata.get(name));
    let (namespace, name) = (part("namespace")?, part("name")?);
    let version = part("resourceVersion")?;
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    let mut labels = match metadata.get("labels") {
        None | Some(Value::Null) => Vec::new(),
        Some(labels) => {
            let labels = labels.as_object()?.iter();
            let label = |(key, value): (&String, _)| Some((key.clone(), text(Some(value))?));
            labels.map(label).collect::<Option<_>>()?
        }
    };
    labels.sort();
    let key = match namespace.as_str() {
        "" => name.clone(),
        _ => format!("{namespace}/{name}"),
    };
    let fields = pod_fields()
        .fields
        .iter()
        .map(|field| field_of(value, field))
        .collect();
    let version = version
        .parse()
        .ok()
        .filter(|_| is_number && !name.is_empty())?;
    Some((key, part("uid")?, version, labels, fields))
}

fn field_of(value: &Value, field: &SelectableField) -> String {
    let step = |value: Option<&Value>, key: &String| match value? {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?).cloned(),
        other => other.get(key).cloned(),
    };
    let start = Some(value.clone());
    let found = field
        .json_path
        .iter()
        .fold(start, |value, key| step(value.as_ref(), key));
    match (found, field.value) {
        (Some(Value::String(text)), _) => text,
        (Some(scalar @ (Value::Bool(_) | Value::Number(_))), _) => scalar.to_string(),
        (_, FieldValue::Boolean) => "false".to_owned(),
        (_, FieldValue::Integer) => "0".to_owned(),
        (_, FieldValue::Text | FieldValue::Scalar) => String::new(),
    }
}

/// Checks that the encoded object, with its `kind` and `apiVersion`, equals the value.
fn check_object_round_trip(decoder: &Decoder, object: &Object, value: &Value) {
    let member = |name| value.get(name).map_or(Some(""), Value::as_str);
    let (Some(kind), Some(api_version)) = (member("kind"), member("apiVersion")) else {
        return;
    };
    let type_meta = TypeMeta {
        kind: kind.to_owned(),
        api_version: api_version.to_owned(),
        list_kind: format!("{kind}List"),
        is_embedded: false,
    };
    let encoder = Encoder::from_type_meta(WireFormat::Json, &type_meta);
    check_round_trip(decoder, &encoder, (EventType::Modified, object), true);
    let printed = encoder.object_body(object).concat();
    let printed = serde_json::from_slice::<Value>(&printed).expect("the encoder's JSON is valid");
    let mut whole = value.clone();
    // Items of a list have neither `kind` nor `apiVersion`; the encoder takes both from the list.
    let is_bare = ["kind", "apiVersion"]
        .iter()
        .all(|name| whole.get(name).is_none());
    if let Some(members) = whole.as_object_mut().filter(|_| is_bare) {
        members.insert("kind".to_owned(), kind.into());
        members.insert("apiVersion".to_owned(), api_version.into());
    }
    assert_eq!(printed, whole);
}

/// Checks that a decoded page that is encoded in parts decodes to the same page.
fn list(decoder: &Decoder, data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let (Ok(page), Ok(type_meta)) = (decoder.list(&body), TypeMeta::read(WireFormat::Json, &body))
    else {
        return;
    };
    if serde_json::from_slice::<Value>(data).is_ok() {
        let encoder = Encoder::from_type_meta(WireFormat::Json, &type_meta);
        check_page_round_trip(decoder, &encoder, page);
    }
}

/// True if the value contains a number that serde_json would print differently.
fn has_exotic_numbers(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_exotic_numbers),
        Value::Object(members) => members.values().any(has_exotic_numbers),
        _ => false,
    }
}
