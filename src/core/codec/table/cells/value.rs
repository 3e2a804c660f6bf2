//! Reads object fields that may be absent, and formats values that many kinds' cells share.

use std::borrow::Cow;

use super::cell::Cell;
use super::go_number::put_separated;
use crate::codec::table::part::Part;

/// The cell for an empty set or an absent value in most columns.
pub(in crate::codec::table) const NONE: &str = "<none>";
/// The number of texts that [`shortened`] shows.
pub(in crate::codec::table) const SHORTENED: usize = 3;

/// Returns the text of a value, or an empty text if the value is absent or not text.
pub(in crate::codec::table) fn text(value: Part<'_>) -> Cow<'_, str> {
    value.as_str().unwrap_or_default()
}

/// Returns the integer of a value, or 0 if the value is absent or not an integer.
pub(in crate::codec::table) fn number(value: Part<'_>) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// Returns the items of a value, or no items if the value is absent or not an array.
pub(in crate::codec::table) fn list(value: Part<'_>) -> Vec<Part<'_>> {
    value.items().collect()
}

/// Returns the number of members of a value, or 0 if the value is absent or not an object.
pub(in crate::codec::table) fn count(value: Part<'_>) -> usize {
    value.members().count()
}

/// Returns `text`, or `otherwise` if `text` is empty.
pub(in crate::codec::table) fn or<'a>(
    text: impl Into<Cow<'a, str>>,
    otherwise: impl Into<Cow<'a, str>>,
) -> Cow<'a, str> {
    let text = text.into();
    if text.is_empty() {
        otherwise.into()
    } else {
        text
    }
}

pub(in crate::codec::table) fn name(object: Part<'_>) -> Cell {
    text(object.at("metadata").at("name")).into()
}

/// Returns true if the object has a deletion timestamp.
pub(in crate::codec::table) fn is_deleted(object: Part<'_>) -> bool {
    object.at("metadata").at("deletionTimestamp").is_string()
}

pub(in crate::codec::table) fn joined<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let mut joined = String::new();
    put_separated(&mut joined, texts, |joined, text| {
        joined.push_str(text.as_ref());
    });
    joined
}

/// Joins the first three of `count` texts with commas, followed by the number of the others.
pub(in crate::codec::table) fn shortened(
    texts: impl Iterator<Item = String>,
    count: usize,
) -> String {
    with_more(joined(texts.take(SHORTENED)), count, SHORTENED)
}

/// Adds the number of texts that are not shown, if `shown` of `count` are.
pub(in crate::codec::table) fn with_more(text: String, count: usize, shown: usize) -> String {
    match count.checked_sub(shown) {
        None | Some(0) => text,
        Some(more) => format!("{text} + {more} more..."),
    }
}

/// Joins two members of an object with a slash.
pub(in crate::codec::table) fn slashed(object: Part<'_>, first: &str, second: &str) -> String {
    let [first, second] = object.all([first, second]);
    format!("{}/{}", text(first), text(second))
}

/// Formats a map of texts as `a=1,b=2`; `<none>` if it is empty. The API server sorts these texts,
/// not the keys: `a.b=2` comes before `a=1`.
pub(in crate::codec::table) fn pairs(map: Part<'_>) -> String {
    let pairs = map.members();
    let pairs = pairs.map(|(key, value)| format!("{key}={}", text(value)));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    or(joined(pairs), NONE).into_owned()
}
