//! Converts answers to comparable text: a common name replaces the API server's and the simulator's
//! versions and uids of one object.

use std::collections::HashMap;

use crate::support::comparable::{ListVersion, events, frames, object, protobuf};
use crate::support::normalise::{mask_ages, normalise};

/// The common names of one server's versions and uids.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<String, String>,
}

impl Names {
    /// Records that this server's version or uid `own` has the common name `common`.
    pub(super) fn record_names(&mut self, own: &str, common: &str) {
        self.known.insert(own.to_owned(), common.to_owned());
    }

    /// Returns the comparable text of a body. A version without a common name, such as a
    /// deletion's, is replaced by its index among the unknown versions of the body.
    pub(super) fn body(&self, body: &[u8], watch: bool) -> String {
        let Ok(text) = std::str::from_utf8(body) else {
            return if watch {
                frames(body)
            } else {
                protobuf(body, ListVersion::Any)
            };
        };
        let text = without_managed_fields(text);
        let text = if watch {
            events(&text)
        } else if text.starts_with("k8s\0") {
            protobuf(text.as_bytes(), ListVersion::Any)
        } else {
            object(&text, ListVersion::Any, false)
        };
        let text = self.common(&text);
        match text.contains("\"columnDefinitions\":") {
            // Some Tables have a column with a timestamp instead of an age.
            true if text.contains("\"Created At\"") => normalise(&text, &[]),
            true => mask_ages(&text),
            false => text,
        }
    }

    /// Replaces the versions and uids in `text` by their common names, and masks creation times.
    pub(super) fn common(&self, text: &str) -> String {
        let mut unknown: Vec<&str> = Vec::new();
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, key, value, after)) = next_name(rest) {
            result.push_str(before);
            match self.known.get(value) {
                _ if key.starts_with("\"creationTimestamp\"") => result.push_str("TIME"),
                Some(name) => result.push_str(name),
                None if key.starts_with("\"uid\"") => result.push_str(value),
                None => {
                    let place = unknown.iter().position(|known| *known == value);
                    let place = place.unwrap_or_else(|| {
                        unknown.push(value);
                        unknown.len() - 1
                    });
                    result.push_str(&format!("unknown {place}"));
                }
            }
            rest = after;
        }
        result + rest
    }
}

/// Finds the next version, uid or creation time. Returns the text before it including its opening
/// quote, its key, its value, and the text after it.
fn next_name(text: &str) -> Option<(&str, &str, &str, &str)> {
    const KEYS: [&str; 3] = ["\"resourceVersion\":", "\"uid\":", "\"creationTimestamp\":"];
    let mut from = 0;
    loop {
        let places = KEYS.iter().filter_map(|key| {
            let at = from + text[from..].find(key)?;
            Some((at, at + key.len()))
        });
        let (at, end) = places.min()?;
        let value = text[end..].trim_start_matches(' ');
        if let Some(value) = value.strip_prefix('"') {
            let start = text.len() - value.len();
            let stop = start + value.find('"')?;
            return Some((
                &text[..start],
                &text[at..end],
                &text[start..stop],
                &text[stop..],
            ));
        }
        from = end;
    }
}

/// Removes the column definitions of Tables. An API server sends a stream's column definitions
/// again if another stream needs them for the event.
pub(super) fn without_columns(text: &str) -> String {
    const KEY: &str = "\"columnDefinitions\":";
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(KEY) {
        let (before, after) = rest.split_at(at + KEY.len());
        result.push_str(before);
        result.push_str("null");
        rest = match after.strip_prefix("null") {
            Some(after) => after,
            None => &after[list_length(after)..],
        };
    }
    result + rest
}

/// Removes all members `managedFields` from JSON with any indentation.
fn without_managed_fields(text: &str) -> String {
    const KEY: &str = "\"managedFields\":";
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(KEY) {
        // `managedFields` is never the first member, so there is a comma before it.
        let before = rest[..at].trim_end().trim_end_matches(',');
        result.push_str(before);
        rest = &rest[at + KEY.len()..];
        rest = &rest[list_length(rest)..];
    }
    result + rest
}

/// Returns the length in bytes of the JSON list at the start of `text`.
fn list_length(text: &str) -> usize {
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' if !in_text => depth += 1,
            b']' if !in_text => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

#[test]
fn only_names_are_normalised() {
    let mut names = Names::default();
    names.record_names("7", "first");
    names.record_names("a-b", "its uid");
    let rows = [
        (
            r#"{"uid":"a-b","resourceVersion":"7","n":"7"}"#,
            r#"{"uid":"its uid","resourceVersion":"first","n":"7"}"#,
        ),
        (
            r#"{"resourceVersion":"8"}{"resourceVersion": "9"}{"resourceVersion":"8"}"#,
            r#"{"resourceVersion":"unknown 0"}{"resourceVersion": "unknown 1"}{"resourceVersion":"unknown 0"}"#,
        ),
        (
            r#"{"uid":"c","creationTimestamp":"2026","creationTimestamp":null}"#,
            r#"{"uid":"c","creationTimestamp":"TIME","creationTimestamp":null}"#,
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(names.common(text), expected);
    }
    let rows = [
        (
            r#"{"a":1,"managedFields":[{"x":["]\""]}],"name":"n"}"#,
            r#"{"a":1,"name":"n"}"#,
        ),
        (
            "{\n  \"a\": 1,\n  \"managedFields\": [\n    {}\n  ]\n}",
            "{\n  \"a\": 1\n}",
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(without_managed_fields(text), expected);
    }
}
