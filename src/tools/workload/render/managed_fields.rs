//! Builds the `fieldsV1` of an object, which lists its fields and the merge keys of its lists.

use serde_json::{Map, Value};

/// The members of `metadata` that have a field manager.
const METADATA: [&str; 4] = ["annotations", "generateName", "labels", "ownerReferences"];
/// The top-level members that are not managed, or that have separate records for their fields.
const UNMANAGED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// Returns the `fieldsV1` of an object, without its status.
pub(super) fn of_object(object: &Value, metadata: &Value) -> Value {
    let mut fields = Map::new();
    let owned = members(metadata).filter(|(key, _)| METADATA.contains(&key.as_str()));
    let owned = fields_of(owned);
    if !owned.is_empty() {
        fields.insert("f:metadata".to_owned(), Value::Object(owned));
    }
    for (key, value) in members(object) {
        match key.as_str() {
            "spec" => drop(fields.insert("f:spec".to_owned(), of_part(value))),
            key if UNMANAGED.contains(&key) => {}
            key => drop(fields.insert(format!("f:{key}"), of_value(key, value))),
        }
    }
    Value::Object(fields)
}

/// Returns the `fieldsV1` of a spec or status.
pub(super) fn of_part(part: &Value) -> Value {
    Value::Object(fields_of(members(part)))
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn fields_of<'a>(members: impl Iterator<Item = (&'a String, &'a Value)>) -> Map<String, Value> {
    members
        .map(|(key, value)| (format!("f:{key}"), of_value(key, value)))
        .collect()
}

fn of_value(key: &str, value: &Value) -> Value {
    let mut fields = match value {
        Value::Object(map) if !is_atomic(key) => fields_of(map.iter()),
        Value::Array(items) => match merge_keys(key) {
            Some(keys) => items.iter().map(|item| item_of(keys, item)).collect(),
            None => Map::new(),
        },
        _ => Map::new(),
    };
    if !fields.is_empty() {
        fields.insert(".".to_owned(), Value::Object(Map::new()));
    }
    Value::Object(fields)
}

/// Returns the `fieldsV1` entry of a list item: the merge key and the item's fields.
fn item_of(keys: &[&str], item: &Value) -> (String, Value) {
    let mut name = String::from("k:{");
    for (i, key) in keys.iter().enumerate() {
        name.push_str(if i == 0 { "\"" } else { ",\"" });
        name.push_str(key);
        name.push_str("\":");
        name.push_str(&literal(&item[key]));
    }
    name.push('}');
    let mut fields = fields_of(members(item));
    fields.insert(".".to_owned(), Value::Object(Map::new()));
    (name, Value::Object(fields))
}

/// Encodes a merge key's value as JSON. Strings are copied without escaping, because names and
/// paths need none and this is faster.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => ["\"", text, "\""].concat(),
        other => other.to_string(),
    }
}

/// Returns true for maps with members that have no separate entries.
fn is_atomic(key: &str) -> bool {
    matches!(
        key,
        "selector" | "nodeSelector" | "secretKeyRef" | "configMapKeyRef" | "fieldRef"
    )
}

/// Returns the merge keys that identify the items of a list; `None` if the
/// items have no separate entries.
fn merge_keys(key: &str) -> Option<&'static [&'static str]> {
    Some(match key {
        "containers" | "env" | "volumes" => &["name"],
        "volumeMounts" => &["mountPath"],
        "ports" => &["containerPort", "protocol"],
        "conditions" | "addresses" => &["type"],
        "podIPs" | "hostIPs" => &["ip"],
        "ownerReferences" => &["uid"],
        _ => return None,
    })
}
