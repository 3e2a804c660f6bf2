//! A response's body as text, without what two servers of one state may say
//! differently: the RV of a list that asked for none, and the RVs of bookmarks.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::support::clients::frames::split_list;
use crate::support::clients::frames::split_watch;

/// The body of a list, an object, a Status or a watch.
pub(super) fn comparable(body: &[u8], watch: bool) -> String {
    match std::str::from_utf8(body) {
        Ok(text) if watch => events(text),
        Ok(text) if !body.starts_with(b"k8s\0") => object(text),
        _ if watch => frames(body),
        _ => protobuf(body),
    }
}

fn events(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let lines = lines.filter_map(|line| match line.starts_with(r#"{"type":"BOOKMARK""#) {
        // Other bookmarks come when they come, and are never promised.
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
        Some(version) => text.replacen(&format!("\"{version}\""), "\"VERSION\"", 1),
        None => text.to_owned(),
    }
}

/// Of a Status: `current: 248` of a future RV, `(93)` of a past one.
fn without_current(text: &str) -> String {
    if !text.contains(r#""kind":"Status""#) {
        return text.to_owned();
    }
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = ["current: ", " ("]
        .iter()
        .filter_map(|m| Some(rest.find(m)? + m.len()))
        .min()
    {
        result.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    result + rest
}

fn object(text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let Some(version) = value
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
    else {
        return without_current(text);
    };
    if value.get("items").is_none() && value.get("rows").is_none() {
        return text.to_owned();
    }
    let quoted = format!("\"{version}\"");
    // Lists of custom resources have their metadata behind the items.
    let behind = text
        .trim_start_matches(['{', ' ', '\n'])
        .starts_with("\"apiVersion\"");
    let at = if behind {
        text.rfind(&quoted)
    } else {
        text.find(&quoted)
    };
    let at = at.expect("the RV that was parsed from it");
    let text = format!("{}\"VERSION\"{}", &text[..at], &text[at + quoted.len()..]);
    match value.pointer("/metadata/continue").and_then(Value::as_str) {
        Some(token) if !token.is_empty() => text.replace(token, &start_of(token)),
        _ => text,
    }
}

/// Where a continue token goes on, without its RV.
fn start_of(token: &str) -> String {
    let decoded = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let value: Value = serde_json::from_slice(&decoded).unwrap_or_default();
    format!("TOKEN({})", value["start"])
}

fn protobuf(body: &[u8]) -> String {
    match split_list(body) {
        Some((token, rest)) => format!("{} {rest:?}", start_of(&token)),
        None => without_current(&format!("{}", body.escape_ascii())),
    }
}

fn frames(body: &[u8]) -> String {
    let frames = split_watch(body)
        .into_iter()
        .filter_map(|(is_bookmark, frame)| {
            let frame = frame.escape_ascii().to_string();
            match is_bookmark {
                true if frame.contains("initial-events-end") => {
                    Some("the initial bookmark".to_owned())
                }
                true => None,
                false => Some(frame),
            }
        });
    frames.collect::<Vec<_>>().join("\n")
}

#[test]
fn only_what_may_differ_is_left_out() {
    let list = |rv, item| {
        format!(
            r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{rv}"}},"items":[{{"metadata":{{"resourceVersion":"{item}"}}}}]}}"#
        )
    };
    let text = |rv, item| comparable(list(rv, item).as_bytes(), false);
    assert_eq!(text(7, 5), text(8, 5));
    assert_ne!(text(7, 5), text(7, 6));
    let bookmark = |rv| {
        format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{rv}"}}}}}}"#)
    };
    assert_eq!(
        comparable(bookmark(1).as_bytes(), true),
        comparable(bookmark(2).as_bytes(), true)
    );
    let expired =
        |rv| format!(r#"{{"kind":"Status","message":"too old resource version: 1 ({rv})"}}"#);
    assert_eq!(
        comparable(expired(1).as_bytes(), false),
        comparable(expired(22).as_bytes(), false)
    );
}
