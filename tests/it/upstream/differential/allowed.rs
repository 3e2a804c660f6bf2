//! What two answers to one request may differ in: all of it is here, each with its reason.
//! Everything else must be the same, to the byte.
//!
//! Headers: see [`HEADERS`]. The case of their names, which HTTP/1.1 ignores and HTTP/2 lacks,
//! and their order are not looked at.
//!
//! Bodies: what [`comparable`](crate::support::comparable) leaves out, of which a request says what
//! version its list may have ([`version_of_list`]), and
//!
//! - *What does not fit into a second*: a watch that differs is asked for once more, with more time.
//! - *Ages* in the cells of Tables: the two are printed one after the other.
//! - *Compression level*: what is compressed is compared after it was inflated.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::support::clients::client::Answer;
use crate::support::comparable::ListVersion;
use crate::support::comparable::decoded;
use crate::support::comparable::events;
use crate::support::comparable::frames;
use crate::support::comparable::object;
use crate::support::comparable::protobuf;
use crate::support::comparable::yaml;
use crate::support::normalise::mask_ages;
use crate::upstream::differential::table::parameter;

/// How a header may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedDifference {
    /// In its value; both must have it.
    AnyValue,
    /// By being absent from what kubefan answered itself.
    ForwardedOnly,
    /// In every way.
    Any,
}

const HEADERS: [(&str, AllowedDifference, &str); 8] = [
    ("date", AllowedDifference::AnyValue, "two moments"),
    (
        "last-modified",
        AllowedDifference::AnyValue,
        "OpenAPI's alone: the moment at which the API server last had to print it anew",
    ),
    (
        "x-kubernetes-pf-flowschema-uid",
        AllowedDifference::ForwardedOnly,
        "an id of the queue that the API server let the request through; the cache has none",
    ),
    (
        "x-kubernetes-pf-prioritylevel-uid",
        AllowedDifference::ForwardedOnly,
        "likewise",
    ),
    (
        "x-kubefan-proof",
        AllowedDifference::Any,
        "kubefan's alone: how an answer from the cache was proven to be the most recent state",
    ),
    (
        "content-length",
        AllowedDifference::Any,
        "framing, which the client checks: the server sets it where it knows it",
    ),
    (
        "transfer-encoding",
        AllowedDifference::Any,
        "framing likewise",
    ),
    (
        "connection",
        AllowedDifference::Any,
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
            read.unwrap_or_else(|error| panic!("{target}: no gzip: {error}"));
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
        false => mask_table_ages(&object(&text, list)),
    }
}

/// Which version the list that `target` asks for may have.
fn version_of_list(target: &str) -> ListVersion {
    // Discovery has lists of another make, without an RV.
    let path = target.split('?').next().unwrap_or_default();
    let segments = path.trim_matches('/').split('/').count();
    let is_discovery = segments < 3 + usize::from(path.starts_with("/apis"));
    if is_discovery || is_pinned(target) {
        return ListVersion::Pinned;
    }
    let clients = parameter(target, "resourceVersion").unwrap_or_default();
    ListVersion::NotBelow(clients.parse().unwrap_or_default())
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
        // Neither an RV before the one asked for, nor another one than that.
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
