//! `metadata` as the API server handles it: names, fields that the server sets, and the order of
//! keys.

use jiff::Timestamp;
use kubefan_core::api::{Resource, Status};
use kubefan_core::codec::OBJECT_META;
use rand::Rng;
use serde_json::{Map, Value};

use super::refusal;

/// The top-level keys that come before all others.
const FIRST_KEYS: &[&str] = &["kind", "apiVersion", "metadata"];
/// The top-level keys that come after all others.
const LAST_KEYS: &[&str] = &["status"];

/// The top-level keys of EndpointSlices and Events that the API server encodes even if they are
/// null.
const NULLABLE_KEYS: &[&str] = &[
    "endpoints",
    "ports",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
];

/// The top-level keys of ConfigMaps and Secrets that the API server omits if they are empty.
const DATA_KEYS: &[&str] = &["data", "binaryData"];

/// The characters of the random suffix of generated names.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the string `metadata.<key>` of an object; empty if absent.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// Returns the `metadata` of an object for changes. Creates the `metadata` if it is absent.
///
/// # Errors
///
/// 400 if `object` or its `metadata` is not a JSON object.
pub(super) fn metadata_mut(object: &mut Value) -> Result<&mut Map<String, Value>, Status> {
    let wrong = || Status::bad_request("the object provided has no metadata");
    let members = object.as_object_mut().ok_or_else(wrong)?;
    let metadata = members
        .entry("metadata")
        .or_insert_with(|| Map::new().into());
    metadata.as_object_mut().ok_or_else(wrong)
}

/// Returns the current time in the format of Kubernetes timestamps.
pub(super) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Generates a name from at most 58 bytes of `prefix` and five random characters.
pub(super) fn generated_name(prefix: &str) -> String {
    let mut random = rand::rng();
    let letter = |_| char::from(SUFFIX_ALPHABET[random.random_range(0..SUFFIX_ALPHABET.len())]);
    let suffix: String = (0..5).map(letter).collect();
    format!("{}{suffix}", &prefix[..prefix.len().min(58)])
}

/// Checks that `name` is a valid name for an object of `resource`.
///
/// # Errors
///
/// 422 if the name is invalid.
pub(super) fn check_name(resource: &Resource, name: &str) -> Result<(), Status> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |part: &str, longest: usize| {
        (1..=longest).contains(&part.len())
            && part.starts_with(is_letter)
            && part.ends_with(is_letter)
            && part.chars().all(|c| is_letter(c) || c == '-')
    };
    let (is_valid, rule) = match resource.kind.as_str() {
        "Namespace" | "Service" => (
            is_label(name, 63),
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
             regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        _ => (
            name.len() <= 253 && name.split('.').all(|part| is_label(part, 253)),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
             or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
             regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*\
             [a-z0-9])?)*')",
        ),
    };
    if is_valid {
        return Ok(());
    }
    let why = format!("Invalid value: \"{name}\": {rule}");
    Err(refusal::invalid(resource, name, "metadata.name", &why))
}

/// Returns the object with its keys in the API server's order, and without empty members that the
/// API server omits.
pub(super) fn in_order(object: Value, is_custom: bool) -> Value {
    let Value::Object(mut members) = object else {
        return object;
    };
    remove_empty(&mut members, is_custom);
    if is_custom {
        let mut object = Value::Object(members);
        object.sort_all_objects();
        return object;
    }
    if let Some(Value::Object(mut metadata)) = members.shift_remove("metadata") {
        for key in ["labels", "annotations"] {
            if let Some(map) = metadata.get_mut(key) {
                map.sort_all_objects();
            }
        }
        members.insert(
            "metadata".to_owned(),
            with_key_order(metadata, &OBJECT_META, &[]).into(),
        );
    }
    with_key_order(members, FIRST_KEYS, LAST_KEYS).into()
}

/// Removes empty maps and lists that the API server omits.
fn remove_empty(members: &mut Map<String, Value>, is_custom: bool) {
    let is_empty = |value: &Value| match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
        metadata.retain(|_, value| !is_empty(value));
    }
    members
        .retain(|key, value| is_custom || !DATA_KEYS.contains(&key.as_str()) || !is_empty(value));
}

/// Removes the annotation `name` from `metadata`. Removes `annotations` too if no other is left.
pub(super) fn hide_annotation(metadata: &mut Value, name: &str) {
    let Some(members) = metadata.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(annotations)) = members.get_mut("annotations") {
        annotations.shift_remove(name);
        if annotations.is_empty() {
            members.shift_remove("annotations");
        }
    }
}

/// Orders members: the keys in `first`, then keys in neither list, then the keys in `last`. Drops
/// null members, except those in [`NULLABLE_KEYS`].
fn with_key_order(
    mut members: Map<String, Value>,
    first: &[&str],
    last: &[&str],
) -> Map<String, Value> {
    let mut take = |keys: &[&str]| -> Vec<(String, Value)> {
        let taken = keys.iter().map(|key| members.shift_remove_entry(*key));
        taken.flatten().collect()
    };
    let (front, end) = (take(first), take(last));
    let ordered = front.into_iter().chain(members).chain(end);
    ordered
        .filter(|(key, value)| !value.is_null() || NULLABLE_KEYS.contains(&key.as_str()))
        .collect()
}
