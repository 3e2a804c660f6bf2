//! The allowed differences between the API server's and kubefan's answers to one request, each with
//! its reason. Everything else must be equal byte by byte.
//!
//! Headers: [`HEADERS`] lists the allowed differences. The order of headers is not compared, nor is
//! the case of their names, which HTTP/1.1 ignores and HTTP/2 does not have.
//!
//! Bodies: [`comparable`](crate::support::comparable) lists the allowed differences;
//! [`version_of_list`] decides which version a list may have. In addition:
//!
//! - A watch that differs is sent once more with a longer `timeoutSeconds`, because on a busy
//!   machine the events may take longer than a second. For the same reason, a case whose proof or
//!   answer came too late is compared once more, alone.
//! - Ages in the cells of Tables are masked, because the two Tables are printed at different times.
//! - Compressed bodies are decompressed first, so the compression level does not matter.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::support::clients::client::Answer;
use crate::support::comparable::{ListVersion, decoded, events, frames, object, protobuf, yaml};
use crate::support::normalise::mask_ages;
use crate::upstream::differential::table::parameter;

/// How a header of the two answers may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedDifference {
    /// Both answers must have the header, with any value.
    AnyValue,
    /// The header may be absent from answers that kubefan did not forward.
    ForwardedOnly,
    /// The header may be absent from either answer, and may have any value.
    Any,
}

const HEADERS: [(&str, AllowedDifference, &str); 10] = [
    (
        "date",
        AllowedDifference::AnyValue,
        "the two answers are given at different times",
    ),
    (
        "last-modified",
        AllowedDifference::AnyValue,
        "only OpenAPI has it: the time at which the API server last generated the document",
    ),
    (
        "x-kubernetes-pf-flowschema-uid",
        AllowedDifference::ForwardedOnly,
        "the id of the API server's request queue; an answer from the cache has none",
    ),
    (
        "x-kubernetes-pf-prioritylevel-uid",
        AllowedDifference::ForwardedOnly,
        "the id of the queue's priority level; an answer from the cache has none",
    ),
    (
        "x-kubefan-proof",
        AllowedDifference::Any,
        "only kubefan sends it: how it proved that an answer is the most recent state",
    ),
    (
        "cache-status",
        AllowedDifference::Any,
        "only kubefan sends it: how it made the answer",
    ),
    (
        "content-length",
        AllowedDifference::Any,
        "framing of the body, which the client checks; a server sets it if it knows the length",
    ),
    (
        "transfer-encoding",
        AllowedDifference::Any,
        "framing of the body, which the client checks",
    ),
    (
        "content-security-policy",
        AllowedDifference::Any,
        "only kubefan sends it, with answers of proxied services, pods and nodes",
    ),
    (
        "connection",
        AllowedDifference::Any,
        "belongs to the connection, not to the answer",
    ),
];

/// Returns the comparable text of an answer: status, headers and body, with the allowed differences
/// masked. `is_own` is true if kubefan did not forward the request.
pub(super) fn comparable(target: &str, is_watch: bool, is_own: bool, answer: &Answer) -> String {
    let mut headers = Vec::new();
    for (name, value) in &answer.headers {
        let rule = HEADERS.iter().find(|(known, ..)| name == known);
        let value = String::from_utf8_lossy(value.as_bytes());
        match rule.map(|(_, may, _)| may) {
            Some(AllowedDifference::Any) => {}
            Some(AllowedDifference::ForwardedOnly) if is_own => {}
            Some(AllowedDifference::AnyValue) => headers.push(format!("{name}: (any)")),
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
            read.unwrap_or_else(|error| panic!("{target}: invalid gzip: {error}"));
            &inflated
        }
        _ => &answer.body[..],
    };
    let media = answer.header("content-type").unwrap_or_default();
    let text = String::from_utf8_lossy(body);
    let list = version_of_list(target);
    match is_watch {
        _ if media.contains("protobuf") && is_watch => frames(body),
        _ if media.contains("protobuf") => protobuf(body, list),
        true => mask_table_ages(&events(&text)),
        false if media.contains("yaml") => mask_table_ages(&yaml(&text, list)),
        false => {
            // Only lists have these parameters.
            let is_list = ["limit=", "Selector="]
                .iter()
                .any(|name| target.contains(name));
            mask_table_ages(&object(&text, list, is_list))
        }
    }
}

/// Returns the versions that the list of a request for `target` may have.
fn version_of_list(target: &str) -> ListVersion {
    // Discovery's lists have no resourceVersion.
    let path = target.split('?').next().unwrap_or_default();
    let segments = path.trim_matches('/').split('/').count();
    let is_discovery = segments < 3 + usize::from(path.starts_with("/apis"));
    if is_discovery || is_pinned(target) {
        return ListVersion::Pinned;
    }
    let clients = parameter(target, "resourceVersion").unwrap_or_default();
    ListVersion::NotBelow(clients.parse().unwrap_or_default())
}

/// Returns true if the request determines the exact resourceVersion of its list.
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

fn mask_table_ages(text: &str) -> String {
    const KINDS: [&str; 3] = [r#""kind":"Table""#, r#""kind": "Table""#, "\nkind: Table\n"];
    if KINDS.iter().any(|kind| text.contains(kind)) {
        mask_ages(text)
    } else {
        text.to_owned()
    }
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
    fn only_allowed_differences_are_masked_in_bodies() {
        let shown = |target: &str, body: &str| comparable(target, false, false, &answer(body, &[]));
        assert_eq!(
            shown("/api/v1/x", &list(7, 5)),
            shown("/api/v1/x", &list(8, 5))
        );
        assert_ne!(
            shown("/api/v1/x", &list(7, 5)),
            shown("/api/v1/x", &list(7, 6))
        );
        // The version 7 is too old for the first request, and differs from the exact version that
        // the other requests determine.
        for pinned in [
            "/api/v1/x?resourceVersion=8",
            "/api/v1/x?resourceVersion=7&limit=1",
            "/api/v1/x?resourceVersion=7&resourceVersionMatch=Exact",
        ] {
            assert_ne!(
                shown(pinned, &list(7, 5)),
                shown(pinned, &list(8, 5)),
                "{pinned}"
            );
        }
    }

    #[test]
    fn only_allowed_differences_are_masked_in_headers() {
        let shown = |is_own, headers: &[(&'static str, &str)]| {
            comparable("/api/v1/x", false, is_own, &answer("", headers))
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
