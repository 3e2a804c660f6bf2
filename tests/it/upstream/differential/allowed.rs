//! What two answers to one request may differ in: all of it is here, each with its reason.
//! Everything else must be the same, to the byte.
//!
//! Headers: see [`HEADERS`]. The case of their names, which HTTP/1.1 ignores and HTTP/2 lacks,
//! and their order are not looked at.
//!
//! Bodies:
//!
//! - *The resourceVersion of a list that its request doesn't pin*, and that of the token in it:
//!   two lists are two moments. It must be a number not below the one asked for.
//! - *The RV of a bookmark*, for the same reason; *bookmarks other than the end of initial
//!   events* altogether: they come when they come, and are never promised.
//! - *`current: N`* of a future RV and *`(N)`* of a past one, in the words of errors: the state
//!   of the one who answers.
//! - *What does not fit into a second*: a watch that differs is asked for once more, with more time.
//! - *Ages* in the cells of Tables: the two are printed one after the other.
//! - *Compression level*: what is compressed is compared after it was inflated.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::support::clients::client::Answer;
use crate::support::clients::frames::bookmark_fields;
use crate::support::clients::frames::split_list;
use crate::support::clients::frames::split_watch;
use crate::support::normalise::mask_ages;
use crate::upstream::differential::table::parameter;

/// How a header may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum May {
    /// In its value; both must have it.
    HaveAnyValue,
    /// By being absent from what kubefan answered itself.
    BeForwardedOnly,
    /// In every way.
    BeAnything,
}

const HEADERS: [(&str, May, &str); 8] = [
    ("date", May::HaveAnyValue, "two moments"),
    (
        "last-modified",
        May::HaveAnyValue,
        "OpenAPI's alone: the moment at which the API server last had to print it anew",
    ),
    (
        "x-kubernetes-pf-flowschema-uid",
        May::BeForwardedOnly,
        "an id of the queue that the API server let the request through; the cache has none",
    ),
    (
        "x-kubernetes-pf-prioritylevel-uid",
        May::BeForwardedOnly,
        "likewise",
    ),
    (
        "x-kubefan-proof",
        May::BeAnything,
        "kubefan's alone: how an answer from the cache was proven to be the most recent state",
    ),
    (
        "content-length",
        May::BeAnything,
        "framing, which the client checks: the server sets it where it knows it",
    ),
    ("transfer-encoding", May::BeAnything, "framing likewise"),
    (
        "connection",
        May::BeAnything,
        "of the connection, not of the answer",
    ),
];

/// An answer in words, without what may differ.
pub(super) fn comparable(target: &str, is_watch: bool, is_own: bool, answer: &Answer) -> String {
    let mut headers = Vec::new();
    for (name, value) in &answer.headers {
        let rule = HEADERS.iter().find(|(known, ..)| name == known);
        let value = String::from_utf8_lossy(value.as_bytes());
        match rule.map(|(_, may, _)| may) {
            Some(May::BeAnything) => {}
            Some(May::BeForwardedOnly) if is_own => {}
            Some(May::HaveAnyValue) => headers.push(format!("{name}: (any)")),
            _ => headers.push(format!("{name}: {value}")),
        }
    }
    headers.sort();
    let status = answer.status.as_u16();
    let body = body(target, is_watch && status == 200, answer);
    format!("{status}\n{}\n\n{body}", headers.join("\n"))
}

pub(super) fn body(target: &str, is_watch: bool, answer: &Answer) -> String {
    let mut inflated = Vec::new();
    let body = match answer.header("content-encoding") {
        Some("gzip") => {
            let read = MultiGzDecoder::new(&answer.body[..]).read_to_end(&mut inflated);
            read.unwrap_or_else(|error| panic!("{target}: no gzip: {error}"));
            &inflated
        }
        _ => &answer.body[..],
    };
    let media = answer.header("content-type").unwrap_or_default();
    let text = String::from_utf8_lossy(body);
    match is_watch {
        _ if media.contains("protobuf") && is_watch => frames(body),
        _ if media.contains("protobuf") => protobuf(target, body),
        true => mask_table_ages(&events(&text)),
        false if media.contains("yaml") => mask_table_ages(&yaml_list(target, &text)),
        false => mask_table_ages(&object(target, &text)),
    }
}

/// True when the request says of which RV its list is.
fn is_pinned(target: &str) -> bool {
    let of = |name| parameter(target, name).unwrap_or_default();
    let is_past = !matches!(of("resourceVersion"), "" | "0");
    let legacy = of("resourceVersionMatch").is_empty()
        && of("limit").parse::<i64>().is_ok_and(|limit| limit > 0);
    match of("continue") {
        "" => is_past && (legacy || of("resourceVersionMatch") == "Exact"),
        token => decoded(token)["rv"].as_i64().is_some_and(|rv| rv > 0),
    }
}

/// What stands for an unpinned RV, if it is one that may stand there.
fn masked_version(target: &str, version: &str) -> String {
    let asked = parameter(target, "resourceVersion").unwrap_or_default();
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    match version.parse::<u64>() {
        Ok(version) if version >= number(asked) && version > 0 => "VERSION".to_owned(),
        _ => format!("NO-VERSION({version})"),
    }
}

fn mask_table_ages(text: &str) -> String {
    const KINDS: [&str; 3] = [r#""kind":"Table""#, r#""kind": "Table""#, "\nkind: Table\n"];
    if KINDS.iter().any(|kind| text.contains(kind)) {
        mask_ages(text)
    } else {
        text.to_owned()
    }
}

fn events(text: &str) -> String {
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
        // A row of a Table says it a second time.
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

fn object(target: &str, text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let Some(version) = value
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
    else {
        return without_current(text);
    };
    let is_list = value.get("items").is_some() || value.get("rows").is_some();
    let is_of_one_object = value.get("rows").is_some() && !target_is_collection(&value);
    if !is_list || is_of_one_object || is_pinned(target) {
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
    let masked = masked_version(target, version);
    let text = format!("{}\"{masked}\"{}", &text[..at], &text[at + quoted.len()..]);
    match value.pointer("/metadata/continue").and_then(Value::as_str) {
        Some(token) if !token.is_empty() => text.replace(token, &start_of(token)),
        _ => text,
    }
}

/// A Table of one object has that object's RV.
fn target_is_collection(table: &Value) -> bool {
    let rows = table["rows"].as_array().map_or(0, Vec::len);
    let of_row = table.pointer("/rows/0/object/metadata/resourceVersion");
    rows != 1 || of_row != table.pointer("/metadata/resourceVersion")
}

fn yaml_list(target: &str, text: &str) -> String {
    const METADATA: &str = "\nmetadata:\n";
    let is_list = text.contains("\nitems:") || text.contains("\nrows:");
    let Some(at) = text
        .find(METADATA)
        .filter(|_| is_list && !is_pinned(target))
    else {
        return text.to_owned();
    };
    let (before, metadata) = text.split_at(at + METADATA.len());
    let lines = metadata.lines().map(|line| match line.split_once(": ") {
        Some(("  resourceVersion", version)) => {
            format!(
                "  resourceVersion: {}\n",
                masked_version(target, version.trim_matches('"'))
            )
        }
        Some(("  continue", token)) => format!("  continue: {}\n", start_of(token)),
        _ => format!("{line}\n"),
    });
    before.to_owned() + &lines.collect::<String>()
}

fn decoded(token: &str) -> Value {
    let decoded = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    serde_json::from_slice(&decoded).unwrap_or_default()
}

/// Where a continue token goes on, without its RV.
fn start_of(token: &str) -> String {
    format!("TOKEN({})", decoded(token)["start"])
}

fn protobuf(target: &str, body: &[u8]) -> String {
    // Discovery has lists of another make, without an RV.
    let path = target.split('?').next().unwrap_or_default();
    let segments = path.trim_matches('/').split('/').count();
    let is_discovery = segments < 3 + usize::from(path.starts_with("/apis"));
    let list = if is_discovery { None } else { split_list(body) };
    match list {
        Some(_) if is_pinned(target) => format!("{}", body.escape_ascii()),
        Some((token, rest)) => format!("{} {rest:?}", start_of(&token)),
        None => without_current(&format!("{}", body.escape_ascii())),
    }
}

fn frames(body: &[u8]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str, headers: &[(&'static str, &str)]) -> Answer {
        let mut map = http::HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        Answer {
            status: http::StatusCode::OK,
            headers: map,
            body: body.to_owned().into(),
        }
    }

    fn list(rv: u32, item: u32) -> String {
        format!(
            r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{rv}"}},"items":[{{"metadata":{{"resourceVersion":"{item}"}}}}]}}"#
        )
    }

    #[test]
    fn only_what_may_differ_is_left_out_of_bodies() {
        let shown = |target: &str, body: &str| comparable(target, false, false, &answer(body, &[]));
        assert_eq!(shown("/x", &list(7, 5)), shown("/x", &list(8, 5)));
        assert_ne!(shown("/x", &list(7, 5)), shown("/x", &list(7, 6)));
        // Neither an RV before the one asked for, nor another one than that.
        for pinned in [
            "/x?resourceVersion=8",
            "/x?resourceVersion=7&limit=1",
            "/x?resourceVersion=7&resourceVersionMatch=Exact",
        ] {
            assert_ne!(
                shown(pinned, &list(7, 5)),
                shown(pinned, &list(8, 5)),
                "{pinned}"
            );
        }
        let bookmark = |rv| {
            format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{rv}"}}}}}}"#)
        };
        let streamed = |body: &str| comparable("/x", true, false, &answer(body, &[]));
        assert_eq!(streamed(&bookmark(1)), streamed(&bookmark(2)));
        assert_ne!(streamed(&bookmark(1)), streamed(r#"{"type":"ADDED"}"#));
        let expired =
            |rv| format!(r#"{{"kind":"Status","message":"too old resource version: 1 ({rv})"}}"#);
        assert_eq!(shown("/x", &expired(1)), shown("/x", &expired(22)));
    }

    #[test]
    fn only_what_may_differ_is_left_out_of_headers() {
        let shown = |is_own, headers: &[(&'static str, &str)]| {
            comparable("/x", false, is_own, &answer("", headers))
        };
        let id = "x-kubernetes-pf-flowschema-uid";
        assert_eq!(shown(true, &[(id, "a")]), shown(true, &[]));
        assert_ne!(shown(false, &[(id, "a")]), shown(false, &[]));
        assert_ne!(shown(false, &[(id, "a")]), shown(false, &[(id, "b")]));
        assert_eq!(
            shown(false, &[("date", "a")]),
            shown(false, &[("date", "b")])
        );
        assert_ne!(shown(true, &[("date", "a")]), shown(true, &[]));
        assert_ne!(shown(true, &[("warning", "a")]), shown(true, &[]));
        assert_eq!(shown(true, &[("content-length", "0")]), shown(true, &[]));
    }
}
