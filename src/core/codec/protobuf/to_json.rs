//! Converts protobuf bodies to JSON, for the kinds in `schema.txt`.
//!
//! Used only for the small bodies that clients write. Objects in caches are never converted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::envelope::envelope;
use super::fields::{Field, Fields, texts_of};
use super::schema::{Kind, Rule, SCHEMA, Shape};
use crate::codec::Error;

/// The largest permitted depth of nested messages.
const MAX_DEPTH: usize = 32;

/// Converts an enveloped protobuf body to JSON.
///
/// # Errors
///
/// If the body is malformed, or if `schema.txt` does not contain its kind.
pub fn protobuf_to_json(body: &[u8]) -> Result<Value, Error> {
    let envelope = envelope(body)?;
    let package = match envelope.api_version {
        _ if envelope.kind == "DeleteOptions" => "meta",
        "v1" => "core",
        "apps/v1" => "apps",
        "autoscaling/v1" => "auto",
        "batch/v1" => "batch",
        "authentication.k8s.io/v1" => "authn",
        "authorization.k8s.io/v1" => "authz",
        "coordination.k8s.io/v1" => "coord",
        "discovery.k8s.io/v1" => "disc",
        _ => return Err(Error::Protobuf("group and version are unknown")),
    };
    let mut members = Map::new();
    members.insert("kind".to_owned(), envelope.kind.into());
    members.insert("apiVersion".to_owned(), envelope.api_version.into());
    let name = format!("{package}.{}", envelope.kind);
    fill(&mut members, &name, envelope.raw, 0)?;
    Ok(members.into())
}

/// Adds the fields of `message` to `members`. `name` is the message's name in the schema.
fn fill(
    members: &mut Map<String, Value>,
    name: &str,
    message: &[u8],
    depth: usize,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::Protobuf("messages are nested too deeply"));
    }
    let rules = SCHEMA.get(name);
    let rules = rules.ok_or(Error::Protobuf("kind is unknown"))?;
    for field in Fields::new(message) {
        let field = field?;
        if let Some(rule) = rules.get(&field.number) {
            put(members, rule, &field, depth)?;
        }
    }
    Ok(())
}

fn put(
    members: &mut Map<String, Value>,
    rule: &Rule,
    field: &Field<'_>,
    depth: usize,
) -> Result<(), Error> {
    let (name, shape, kind) = match *rule {
        Rule::Member { name, shape, kind } => (name, shape, kind),
        Rule::OfOwner { message } => return fill(members, message, field.bytes()?, depth + 1),
    };
    match shape {
        Shape::List => {
            let item = value(kind, field, depth)?;
            let list = members
                .entry(name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.push(item);
            }
        }
        Shape::Map => {
            let (key, item) = entry(kind, field.bytes()?, depth)?;
            let map = members.entry(name).or_insert_with(|| Map::new().into());
            if let Some(map) = map.as_object_mut() {
                map.insert(key, item);
            }
        }
        Shape::EvenZero => {
            members.insert(name.to_owned(), value(kind, field, depth)?);
        }
        Shape::UnlessZero => put_unless_zero(members, name, value(kind, field, depth)?),
    }
    Ok(())
}

fn put_unless_zero(members: &mut Map<String, Value>, name: &str, value: Value) {
    if is_zero(&value) {
        // The last occurrence of a field wins, even if it is empty.
        members.shift_remove(name);
    } else {
        members.insert(name.to_owned(), value);
    }
}

fn entry(kind: Kind, message: &[u8], depth: usize) -> Result<(String, Value), Error> {
    let mut key = String::new();
    let mut item = Value::Null;
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => key = field.text()?.to_owned(),
            2 => item = value(kind, &field, depth)?,
            _ => {}
        }
    }
    if item.is_null() && matches!(kind, Kind::Text | Kind::Bytes) {
        item = "".into();
    }
    Ok((key, item))
}

fn value(kind: Kind, field: &Field<'_>, depth: usize) -> Result<Value, Error> {
    Ok(match kind {
        Kind::Text => field.text()?.into(),
        Kind::Integer => field.number_value()?.cast_signed().into(),
        Kind::Boolean => (field.number_value()? != 0).into(),
        Kind::Bytes => STANDARD.encode(field.bytes()?).into(),
        Kind::Time => time(field.bytes()?, "%Y-%m-%dT%H:%M:%SZ")?,
        Kind::PreciseTime => time(field.bytes()?, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        Kind::Quantity => text_of_first_field(field.bytes()?)?.into(),
        Kind::NumberOrText => number_or_text(field.bytes()?)?,
        Kind::Raw => {
            let text = text_of_first_field(field.bytes()?)?;
            serde_json::from_str(text).unwrap_or_default()
        }
        Kind::Message(name) => {
            let mut members = Map::new();
            fill(&mut members, name, field.bytes()?, depth + 1)?;
            members.into()
        }
    })
}

fn text_of_first_field(message: &[u8]) -> Result<&str, Error> {
    texts_of(message, [1]).map(|[text]| text)
}

fn numbers(message: &[u8]) -> Result<[u64; 2], Error> {
    let mut numbers = [0; 2];
    for field in Fields::new(message) {
        let field = field?;
        if let 1 | 2 = field.number {
            numbers[field.number as usize - 1] = field.number_value()?;
        }
    }
    Ok(numbers)
}

/// Formats a time message as text; an empty message is null.
fn time(message: &[u8], format: &str) -> Result<Value, Error> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanoseconds] = numbers(message)?;
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
    let time = Timestamp::new(seconds.cast_signed(), nanoseconds);
    let time = time.map_err(|_| Error::Protobuf("time is out of range"))?;
    Ok(time.strftime(format).to_string().into())
}

fn number_or_text(message: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => is_text = field.number_value()? == 1,
            2 => number = field.number_value()?.cast_signed(),
            3 => text = field.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_i64() == Some(0),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::protobuf::writer::enveloped;

    #[test]
    fn a_real_pod_is_equal_in_both_formats() {
        let bytes = include_bytes!("../../../../tests/golden/codec/get-pod-pb.bin");
        let expected = include_bytes!("../../../../tests/golden/codec/get-pod.json");
        let mut expected: Value = serde_json::from_slice(expected).expect("JSON");
        let mut converted = protobuf_to_json(bytes).expect("a pod");
        // One of the two formats may omit empty values, so the comparison ignores them.
        prune(&mut expected);
        prune(&mut converted);
        assert_eq!(converted, expected);
    }

    fn prune(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.values_mut().for_each(prune);
                members.retain(|_, value| !is_zero(value));
            }
            Value::Array(items) => items.iter_mut().for_each(prune),
            _ => {}
        }
    }

    #[test]
    fn the_last_occurrence_of_a_field_counts() {
        let metadata = b"\n\x01a\x1a\x05space\n\x01x\x1a\0";
        let message = [b"\n\x0f".as_slice(), metadata].concat();
        let body = enveloped("v1", "Service", &message);
        let metadata = protobuf_to_json(&body).expect("a service")["metadata"].take();
        assert_eq!(metadata.get("name"), Some(&"x".into()), "{metadata}");
        assert_eq!(metadata.get("namespace"), None, "{metadata}");
    }

    #[test]
    fn malformed_messages_are_errors() {
        for body in [
            &b"k8s\0"[..],
            b"",
            b"{}",
            b"k8s\0\n\x0c\n\x02v1\x12\x06Nobody\x12\0",
        ] {
            assert!(protobuf_to_json(body).is_err(), "{body:?}");
        }
    }
}
