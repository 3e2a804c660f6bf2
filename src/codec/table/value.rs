//! Reading of objects whose fields may be missing, and the words that cells share.

use serde_json::Value;

use super::age::Moment;
use super::age::age;

/// What stands for an empty set.
pub(super) const NONE: &str = "<none>";
/// What stands for an optional field that is absent.
pub(super) const UNSET: &str = "<unset>";

/// A text; empty when it is absent.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A number; 0 when it is absent.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// A list; empty when it is absent.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// How many members an object has; 0 when it is absent.
pub(super) fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

/// `text`, or `otherwise` when it is empty.
pub(super) fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    match text {
        "" => otherwise,
        _ => text,
    }
}

/// The cell of the object's name.
pub(super) fn name(object: &Value) -> Value {
    text(&object["metadata"]["name"]).into()
}

/// The cell of the object's age.
pub(super) fn age_of(object: &Value, now: Moment) -> Value {
    age(&object["metadata"]["creationTimestamp"], now).into()
}

/// True when the object is being deleted.
pub(super) fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Texts with commas between them.
pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// The first few texts, and how many more there are.
pub(super) fn shortened(texts: &[String]) -> String {
    const SHOWN: usize = 3;
    match texts.get(SHOWN..) {
        Some(more) if !more.is_empty() => {
            format!("{} + {} more...", texts[..SHOWN].join(","), more.len())
        }
        _ => texts.join(","),
    }
}

/// `a=1,b=2` of a map of texts.
pub(super) fn pairs(map: &Value) -> String {
    let members = map.as_object().into_iter().flatten();
    let pairs = members.map(|(key, value)| format!("{key}={}", text(value)));
    or(&pairs.collect::<Vec<_>>().join(","), NONE).to_owned()
}
