//! Reads object fields that may be absent, and formats values that many kinds' cells share.

use serde_json::Value;

use super::cell::Cell;

/// The cell for an empty set or an absent value in most columns.
pub(super) const NONE: &str = "<none>";
/// The cell for an optional field that is not set, in some columns.
pub(super) const UNSET: &str = "<unset>";

/// The text of a value; empty if the value is absent or not text.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The integer of a value; 0 if the value is absent or not an integer.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The items of a value; empty if the value is absent or not an array.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The number of members of a value; 0 if the value is absent or not an object.
pub(super) fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

/// Returns `text`, or `otherwise` if `text` is empty.
pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    match text {
        "" => otherwise,
        _ => text,
    }
}

pub(super) fn name(object: &Value) -> Cell {
    text(&object["metadata"]["name"]).into()
}

/// The cell with the object's age.
pub(super) fn age_of(object: &Value) -> Cell {
    Cell::age(&object["metadata"]["creationTimestamp"])
}

/// True if the object has a deletion timestamp.
pub(super) fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// Joins the first three texts with commas, followed by the number of the others.
pub(super) fn shortened(texts: &[String]) -> String {
    const SHOWN: usize = 3;
    match texts.get(SHOWN..) {
        Some(more) if !more.is_empty() => {
            format!("{} + {} more...", texts[..SHOWN].join(","), more.len())
        }
        _ => texts.join(","),
    }
}

/// Formats a map of texts as `a=1,b=2`; `<none>` if it is empty.
pub(super) fn pairs(map: &Value) -> String {
    let members = map.as_object().into_iter().flatten();
    let pairs = members.map(|(key, value)| format!("{key}={}", text(value)));
    or(&pairs.collect::<Vec<_>>().join(","), NONE).to_owned()
}
