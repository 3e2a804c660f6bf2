//! Converts a response's body to comparable text. Masks or removes everything that two correct
//! servers may answer differently:
//!
//! - The resourceVersion of a list, as far as [`ListVersion`] allows, and the version in its
//!   continue token.
//! - The resourceVersion of the bookmark that ends the initial events. All other bookmarks are
//!   removed, because the API server does not promise when it sends them.
//! - The server's current version in error messages: `current: N` if the requested version is too
//!   new, and `(N)` if it is too old.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::support::clients::frames::{bookmark_fields, split_list, split_watch};

/// The resourceVersions that a list in the second answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListVersion {
    /// One version in both answers, because the request asks for an exact version.
    Pinned,
    /// Any version that is not below this version, because the two lists
    /// are taken at different times.
    NotBelow(u64),
    /// Any number, because the two servers have different histories.
    Any,
}

impl ListVersion {
    /// Replaces an allowed version by `VERSION`, and any other version by `NO-VERSION(…)`.
    fn masked(self, version: &str) -> String {
        let least = match self {
            Self::Pinned => return version.to_owned(),
            Self::NotBelow(least) => least.max(1),
            Self::Any => 0,
        };
        match version.parse::<u64>() {
            Ok(version) if version >= least => "VERSION".to_owned(),
            _ => format!("NO-VERSION({version})"),
        }
    }
}

/// Returns the comparable text of a watch's body in JSON.
pub(crate) fn events(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let lines = lines.filter_map(|line| match line.starts_with(r#"{"type":"BOOKMARK""#) {
        true if line.contains("initial-events-end") => Some(without_version(line)),
        true => None,
        false => Some(without_current(line)),
    });
    lines.collect()
}

fn without_version(text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let version = value
        .pointer("/object/metadata/resourceVersion")
        .and_then(Value::as_str);
    match version {
        // In a Table the version occurs twice: in the table and in the object of its row.
        Some(version) => text.replace(&format!("\"{version}\""), "\"VERSION\""),
        None => text.to_owned(),
    }
}

fn without_current(text: &str) -> String {
    if !text.contains(r#""kind":"Status""#) && !text.contains("resource version: ") {
        return text.to_owned();
    }
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = ["current: ", " ("]
        .iter()
        .filter_map(|mark| Some(rest.find(mark)? + mark.len()))
        .min()
    {
        result.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    result + rest
}

/// Returns the comparable text of an object, a list, a Table or a Status in JSON. A Table of one
/// object may be the answer to a GET, unless `is_surely_list`.
pub(crate) fn object(text: &str, list: ListVersion, is_surely_list: bool) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let Some(version) = value
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
    else {
        return without_current(text);
    };
    let is_list = value.get("items").is_some() || value.get("rows").is_some();
    let may_be_of_get = !is_surely_list && list != ListVersion::Any;
    let is_of_one_object = may_be_of_get && is_table_of_one_object(&value);
    if !is_list || is_of_one_object || list == ListVersion::Pinned {
        return text.to_owned();
    }
    let quoted = format!("\"{version}\"");
    // A list of custom resources has its metadata after the items.
    let behind = text
        .trim_start_matches(['{', ' ', '\n'])
        .starts_with("\"apiVersion\"");
    let at = if behind {
        text.rfind(&quoted)
    } else {
        text.find(&quoted)
    };
    let at = at.expect("the text contains its resourceVersion");
    let masked = list.masked(version);
    let text = format!("{}\"{masked}\"{}", &text[..at], &text[at + quoted.len()..]);
    match value.pointer("/metadata/continue").and_then(Value::as_str) {
        Some(token) if !token.is_empty() => text.replace(token, &start_of(token)),
        _ => text,
    }
}

/// Returns true for a Table with one row and the resourceVersion of that
/// row's object, as a GET returns it.
fn is_table_of_one_object(table: &Value) -> bool {
    let rows = table["rows"].as_array().map_or(0, Vec::len);
    let of_row = table.pointer("/rows/0/object/metadata/resourceVersion");
    rows == 1 && of_row == table.pointer("/metadata/resourceVersion")
}

/// Returns the comparable text of an object, a list, a Table or a Status in YAML.
pub(crate) fn yaml(text: &str, list: ListVersion) -> String {
    const METADATA: &str = "\nmetadata:\n";
    let is_list = text.contains("\nitems:") || text.contains("\nrows:");
    let Some(at) = text
        .find(METADATA)
        .filter(|_| is_list && list != ListVersion::Pinned)
    else {
        return text.to_owned();
    };
    let (before, metadata) = text.split_at(at + METADATA.len());
    let lines = metadata.lines().map(|line| match line.split_once(": ") {
        Some(("  resourceVersion", version)) => {
            format!(
                "  resourceVersion: {}\n",
                list.masked(version.trim_matches('"'))
            )
        }
        Some(("  continue", token)) => format!("  continue: {}\n", start_of(token)),
        _ => format!("{line}\n"),
    });
    before.to_owned() + &lines.collect::<String>()
}

/// Returns the JSON inside a continue token; null if the token cannot be decoded.
pub(crate) fn decoded(token: &str) -> Value {
    let decoded = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    serde_json::from_slice(&decoded).unwrap_or_default()
}

/// Returns the key where a continue token's list continues, without the token's resourceVersion.
fn start_of(token: &str) -> String {
    format!("TOKEN({})", decoded(token)["start"])
}

/// Returns the comparable text of an object, a list, a Table or a Status in protobuf.
pub(crate) fn protobuf(body: &[u8], list: ListVersion) -> String {
    // `split_list` cannot parse the lists of discovery; their `ListVersion` is `Pinned`.
    let parts = if list == ListVersion::Pinned {
        None
    } else {
        split_list(body)
    };
    match parts {
        Some((token, rest)) => format!("{} {rest:?}", start_of(&token)),
        None => without_current(&body.escape_ascii().to_string()),
    }
}

/// Returns the comparable text of a watch's body in protobuf.
pub(crate) fn frames(body: &[u8]) -> String {
    let frames = split_watch(body)
        .into_iter()
        .filter_map(|(is_bookmark, frame)| {
            let text = frame.escape_ascii().to_string();
            match is_bookmark {
                true if text.contains("initial-events-end") => {
                    Some(format!("BOOKMARK {:?}", bookmark_fields(&frame)))
                }
                true => None,
                false => Some(without_current(&text)),
            }
        });
    frames.collect::<Vec<_>>().join("\n")
}

#[test]
fn only_allowed_differences_are_masked() {
    let list = |version, item| {
        format!(
            r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{version}"}},"items":[{{"metadata":{{"resourceVersion":"{item}"}}}}]}}"#
        )
    };
    for allowed in [ListVersion::Any, ListVersion::NotBelow(7)] {
        assert_eq!(
            object(&list(7, 5), allowed, false),
            object(&list(8, 5), allowed, false)
        );
        assert_ne!(
            object(&list(7, 5), allowed, false),
            object(&list(7, 6), allowed, false)
        );
    }
    for allowed in [ListVersion::Pinned, ListVersion::NotBelow(8)] {
        assert_ne!(
            object(&list(7, 5), allowed, false),
            object(&list(8, 5), allowed, false)
        );
    }
    let bookmark = |version| {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#
        )
    };
    assert_eq!(events(&bookmark(1)), events(&bookmark(2)));
    assert_ne!(events(&bookmark(1)), events(r#"{"type":"ADDED"}"#));
    let expired = |version| {
        let message = format!("too old resource version: 1 ({version})");
        object(
            &format!(r#"{{"kind":"Status","message":"{message}"}}"#),
            ListVersion::Pinned,
            false,
        )
    };
    assert_eq!(expired(1), expired(22));
}
