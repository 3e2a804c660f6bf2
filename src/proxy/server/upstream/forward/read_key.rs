//! What two forwarded reads must have in common to share an answer.

use http::header::HeaderName;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use kubefan_core::body::Body;
use kubefan_core::{body, upstream};

use crate::server::request::{RequestInfo, Verb};
use crate::traces::{TRACEPARENT, TRACESTATE};

/// Request headers on which the answer to a URL depends. A shared call has no other headers.
const VARYING_HEADERS: [HeaderName; 5] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ORIGIN,
    // The user agent determines whether JSON is indented.
    header::USER_AGENT,
    header::IF_NONE_MATCH,
];
/// The header with the ID of a request in the API server's audit log.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Headers that identify a request, and that a call for this request alone has.
const OWN_HEADERS: [HeaderName; 3] = [AUDIT_ID, TRACEPARENT, TRACESTATE];
/// The answer to a request with one of these headers is not shared.
const UNSHAREABLE_HEADERS: [HeaderName; 5] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Everything that two reads must have in common to share an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReadKey {
    path_and_query: PathAndQuery,
    headers: [Option<HeaderValue>; 5],
}

impl ReadKey {
    /// Returns the key of `request`. Returns `None` if its answer can't be shared: it is not a GET
    /// or LIST of complete objects or of a document (but of a log, for example), or has a body, or
    /// has a header that makes its answer unique.
    ///
    /// The caller checks that the API server itself has the objects or the document. An aggregated
    /// server may evaluate any header of the request.
    pub(super) fn of(request: &Request<Body>, info: &RequestInfo) -> Option<Self> {
        let headers = request.headers();
        let is_of_objects = matches!(info.verb, Verb::Get | Verb::List);
        let is_read = *request.method() == Method::GET
            && (is_of_objects || !info.is_resource_request)
            && info.subresource.is_empty()
            && !upstream::is_upgrade(headers)
            && http_body::Body::is_end_stream(request.body());
        let is_unshareable = UNSHAREABLE_HEADERS
            .iter()
            .any(|name| headers.contains_key(name));
        let path_and_query = request.uri().path_and_query()?;
        (is_read && !is_unshareable).then(|| Self {
            path_and_query: path_and_query.clone(),
            headers: VARYING_HEADERS.map(|name| headers.get(name).cloned()),
        })
    }

    /// Makes the request for callers with this key. It has `headers` and those of the key, and no
    /// others, because they belong to one caller (`Cookie`).
    pub(super) fn request(&self, headers: HeaderMap) -> Request<Body> {
        let mut request = Request::new(body::empty());
        *request.uri_mut() = self.path_and_query.clone().into();
        *request.headers_mut() = headers;
        let varying = VARYING_HEADERS.into_iter().zip(self.headers.clone());
        let varying = varying.filter_map(|(name, value)| Some((name, value?)));
        request.headers_mut().extend(varying);
        request
    }
}

/// Returns those of `headers` that a call for their request alone has, beside those of its key.
pub(super) fn own_headers(headers: &HeaderMap) -> HeaderMap {
    let lines = OWN_HEADERS.into_iter().flat_map(|name| {
        let values = headers.get_all(&name).iter().cloned();
        values.map(move |value| (name.clone(), value))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(url: &str, lines: &[(&str, &str)]) -> Option<ReadKey> {
        key_with_body(url, lines, body::empty())
    }

    fn key_with_body(url: &str, lines: &[(&str, &str)], body: Body) -> Option<ReadKey> {
        let mut request = Request::get(url);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let request = request.body(body).expect("a request");
        let query = request.uri().query().unwrap_or_default();
        let info = RequestInfo::parse(request.method(), request.uri().path(), query);
        ReadKey::of(&request, &info)
    }

    #[test]
    fn callers_with_equal_reads_share_whatever_else_they_send() {
        let pods = key("/api/v1/pods?limit=5", &[("accept", "application/json")]);
        assert!(pods.is_some());
        for (url, lines, is_equal) in [
            (
                "http://localhost:8001/api/v1/pods?limit=5",
                vec![("accept", "application/json"), ("cookie", "a=b")],
                true,
            ),
            (
                "/api/v1/pods?limit=5",
                vec![("accept", "application/json"), ("user-agent", "curl/8")],
                false,
            ),
            ("/api/v1/pods?limit=5", vec![], false),
            (
                "/api/v1/pods?limit=6",
                vec![("accept", "application/json")],
                false,
            ),
        ] {
            assert_eq!(key(url, &lines) == pods, is_equal, "{url} {lines:?}");
        }
    }

    #[test]
    fn a_shared_request_has_only_the_headers_of_its_key() {
        let key = key(
            "/api/v1/pods?limit=5",
            &[
                ("accept", "application/json"),
                ("accept-encoding", "gzip"),
                ("cookie", "session=1"),
                ("x-tenant", "blue"),
                ("accept-language", "de"),
                ("host", "localhost:8001"),
            ],
        );
        let key = key.expect("a key");
        let sent = [
            ("audit-id", "id"),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("x-tenant", "blue"),
        ];
        let sent = sent.map(|(name, value)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        let of_key = ["accept", "accept-encoding"];
        let of_caller = [&of_key[..], &["audit-id", "tracestate"]].concat();
        for (headers, expected, states) in [
            (HeaderMap::new(), &of_key[..], 0),
            (own_headers(&HeaderMap::from_iter(sent)), &of_caller[..], 2),
        ] {
            let request = key.request(headers);
            assert_eq!(request.uri(), "/api/v1/pods?limit=5");
            let names = request.headers().keys().map(HeaderName::as_str);
            let expected: BTreeSet<_> = expected.iter().copied().collect();
            assert_eq!(names.collect::<BTreeSet<_>>(), expected);
            let found = request.headers().get_all("tracestate").iter();
            assert_eq!(found.count(), states);
        }
    }

    #[test]
    fn reads_that_cannot_be_shared_have_no_key() {
        assert!(key("/version", &[]).is_some(), "a document");
        for (url, lines) in [
            ("/api/v1/pods?watch=1", vec![]),
            ("/api/v1/namespaces/a/pods/b/log", vec![]),
            ("/api/v1/pods", vec![("range", "bytes=0-1")]),
            ("/api/v1/pods", vec![("if-match", "\"x\"")]),
        ] {
            assert_eq!(key(url, &lines), None, "{url} {lines:?}");
        }
        let with_body = key_with_body("/api/v1/pods", &[], body::full("{}"));
        assert_eq!(with_body, None, "a request with a body");
    }
}
