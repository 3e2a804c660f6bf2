//! Finds out which document a request is for, and what its representation depends on.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use kubefan_core::api::should_indent;
use kubefan_core::body::Body;
use kubefan_core::upstream;

use super::acceptable;
use crate::server::request::RequestInfo;

/// Longest URL and longest header, in bytes, of a request for a remembered document.
const MAX_TEXT: usize = 512;
/// A request with one of these headers wants something other than the complete document, or gets
/// headers that no other request may get. `If-Modified-Since` is not in this list: kubectl sends it
/// for documents without an `ETag`, and a server may ignore it.
const UNUSUAL_HEADERS: [HeaderName; 5] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_UNMODIFIED_SINCE,
    header::ORIGIN,
];
/// The media types in which the API server has these documents. The API server itself refuses other
/// media types.
const MEDIA_TYPES: [&str; 13] = [
    "*/*",
    "application/*",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/openapi.v2.json",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+gzip",
    "application/com.github.proto-openapi.spec.v2.v1.0+gzip",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    "text/plain",
];

/// The index of the documents of OpenAPI v3.
pub(super) const OPENAPI_V3: &str = "/openapi/v3";

/// A document and its representation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct DocumentKey {
    pub(super) path: String,
    accept: Option<HeaderValue>,
    accept_encoding: Option<HeaderValue>,
    /// True if JSON is indented, as for curl and browsers.
    is_indented: bool,
}

/// The parameter `hash`. With it, clients ask for a certain version of an OpenAPI v3 document.
pub(super) type VersionHash = Option<String>;

impl DocumentKey {
    /// Returns the document and the version that `request` asks for. Returns `None` for other
    /// requests, and for requests that only the API server understands. `is_native(group, version)`
    /// says whether the API server itself serves these resources: an aggregated server may evaluate
    /// any header of the request.
    pub(super) fn of(
        request: &Request<Body>,
        info: &RequestInfo,
        is_native: impl Fn(&str, &str) -> bool,
    ) -> Option<(Self, VersionHash)> {
        let headers = request.headers();
        let is_plain_get = *request.method() == Method::GET
            && !info.is_resource_request
            && !upstream::is_upgrade(headers)
            && http_body::Body::is_end_stream(request.body())
            && !UNUSUAL_HEADERS
                .iter()
                .any(|name| headers.contains_key(name));
        let path = request.uri().path();
        is_document(path, is_native).then_some(())?;
        let accept = only(headers, &header::ACCEPT)?;
        let accept_encoding = only(headers, &header::ACCEPT_ENCODING)?;
        // JSON is indented for programs such as curl and browsers.
        let user_agent = headers.get(header::USER_AGENT);
        let user_agent = user_agent.and_then(|value| value.to_str().ok());
        let is_understood = accept.as_ref().is_none_or(is_known);
        (is_plain_get && is_understood).then_some(())?;
        let hash = version_hash(path, request.uri().query())?;
        let key = Self {
            path: path.to_owned(),
            accept,
            accept_encoding,
            is_indented: should_indent(None, false, user_agent.unwrap_or_default()),
        };
        Some((key, hash))
    }

    /// Returns true for the index of OpenAPI v3.
    pub(super) fn is_openapi_index(&self) -> bool {
        self.path == OPENAPI_V3
    }

    /// Returns true if the request is for a document of OpenAPI v3, not the index, and accepts
    /// `format` only.
    pub(super) fn is_openapi_in(&self, format: &HeaderValue) -> bool {
        let is_document = self.path.starts_with(OPENAPI_V3) && !self.is_openapi_index();
        is_document && self.accept.as_ref() == Some(format)
    }

    /// Returns how well the document of `other`, which has `headers`, fits a request with this key:
    /// less is better. Returns `None` if it is another document, or has a form that the request
    /// does not accept.
    pub(super) fn place_of(&self, other: &Self, headers: &HeaderMap) -> Option<(usize, bool)> {
        if self.path != other.path {
            return None;
        }
        let (accept, encodings) = (self.accept.as_ref(), self.accept_encoding.as_ref());
        let place = acceptable::place_in(accept, encodings, headers)?;
        Some((place, self.is_indented != other.is_indented))
    }

    /// Returns the bytes that the key holds.
    pub(super) fn len(&self) -> usize {
        let values = self.accept.iter().chain(&self.accept_encoding);
        self.path.len() + values.map(HeaderValue::len).sum::<usize>()
    }
}

/// Returns true if `path` names a document of the API server itself. The document of a group and
/// version may be that of an aggregated server.
fn is_document(path: &str, is_native: impl Fn(&str, &str) -> bool) -> bool {
    let segments: Vec<_> = path.split('/').collect();
    let ["", segments @ ..] = &segments[..] else {
        return false;
    };
    if segments.iter().any(|segment| !is_plain(segment)) {
        return false;
    }
    let is_of_discovery = |segments: &[&str]| match segments {
        ["api" | "apis"] | ["api", _] | ["apis", _] => true,
        ["apis", group, version] => is_native(group, version),
        _ => false,
    };
    match segments {
        ["version"] | ["openapi", "v2" | "v3"] | ["openapi", "v3", "version"] => true,
        ["openapi", "v3", rest @ ..] => is_of_discovery(rest),
        _ => is_of_discovery(segments),
    }
}

/// Returns true if the API server reads the segment unchanged.
fn is_plain(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(is_plain)
}

/// Returns the parameter `hash`, which only documents of OpenAPI v3 have. The outer `None` means
/// that the URL is long, or has parameters other than `hash` and `timeout`. These documents ignore
/// `timeout`.
fn version_hash(path: &str, query: Option<&str>) -> Option<VersionHash> {
    let query = query.unwrap_or_default();
    let mut found = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=')? {
            ("timeout", _) => {}
            ("hash", hash) if found.is_none() && path.starts_with(OPENAPI_V3) => {
                found = Some(hash.to_owned());
            }
            _ => return None,
        }
    }
    (path.len() + query.len() <= MAX_TEXT).then_some(found)
}

/// Returns the value of a header. The outer `None` means that the header is repeated or long.
#[expect(clippy::option_option, reason = "a missing header is not a wrong one")]
fn only(headers: &HeaderMap, name: &HeaderName) -> Option<Option<HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    let is_short = first.is_none_or(|value| value.len() <= MAX_TEXT);
    (is_short && values.next().is_none()).then(|| first.cloned())
}

/// Returns true if all media types of an `Accept` header are in [`MEDIA_TYPES`].
fn is_known(accept: &HeaderValue) -> bool {
    let Ok(text) = accept.to_str() else {
        return false;
    };
    text.split(',').all(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default();
        let media_type = media_type.trim().to_ascii_lowercase();
        MEDIA_TYPES.contains(&media_type.as_str())
    })
}

#[cfg(test)]
mod tests {
    use kubefan_core::body;

    use super::*;

    fn key(url: &str, lines: &[(&str, &str)]) -> Option<(DocumentKey, VersionHash)> {
        let mut request = Request::get(url);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let request = request.body(body::empty()).expect("a request");
        let query = request.uri().query().unwrap_or_default();
        let info = RequestInfo::parse(request.method(), request.uri().path(), query);
        DocumentKey::of(&request, &info, |group, _| group == "apps")
    }

    #[test]
    fn documents_of_the_api_server_are_remembered_and_nothing_else() {
        for (url, expected) in [
            ("/api", true),
            ("/apis", true),
            ("/api/v1", true),
            ("/apis/apps", true),
            ("/apis/apps/v1?timeout=32s", true),
            ("/apis/metrics.k8s.io", true),
            ("/apis/metrics.k8s.io/v1beta1", false),
            ("/version", true),
            ("/openapi/v2?timeout=32s", true),
            ("/openapi/v3", true),
            ("/openapi/v3/api", true),
            ("/openapi/v3/api/v1?hash=AB12", true),
            ("/openapi/v3/apis/apps/v1?hash=AB12", true),
            ("/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=AB12", false),
            ("/openapi/v3/version", true),
            ("/openapi/v3/.well-known/openid-configuration", false),
            ("/openapi/v3/", false),
            ("/apis/", false),
            ("/apis//", false),
            ("/apis/apps/..", false),
            ("/apis/%61pps/v1", false),
            ("/version?pretty=1", false),
            ("/version?hash=AB12", false),
            ("/openapi/v3/api/v1?hash=AB12&hash=CD", false),
            ("/api/v1/pods", false),
            ("/healthz", false),
            ("/", false),
        ] {
            assert_eq!(key(url, &[]).is_some(), expected, "{url}");
        }
    }

    #[test]
    fn requests_with_conditions_and_unknown_media_types_are_not_for_a_document() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;q=0.5";
        for (name, value, expected) in [
            ("accept", "application/json, */*", true),
            ("accept", aggregated, true),
            ("accept", "application/vnd.kubernetes.protobuf", true),
            ("accept", "application/json, image/png", false),
            ("accept-encoding", "gzip", true),
            ("if-none-match", "\"x\"", true),
            ("range", "bytes=0-1", false),
            ("if-match", "\"x\"", false),
            ("if-modified-since", "Mon, 01 Jan 2024 00:00:00 GMT", true),
            ("origin", "http://localhost", false),
        ] {
            let key = key("/apis", &[(name, value)]);
            assert_eq!(key.is_some(), expected, "{name}: {value}");
        }
        let repeated = [("accept", "application/json"), ("accept", "*/*")];
        assert_eq!(key("/apis", &repeated), None);
        assert_eq!(key("/apis", &[("accept", &"*/*,".repeat(200))]), None);
    }

    #[test]
    fn representations_differ_by_all_that_changes_their_bytes() {
        let plain = key("/openapi/v3/api/v1?hash=A&timeout=32s", &[]);
        assert_eq!(plain, key("/openapi/v3/api/v1?hash=A", &[("cookie", "c")]));
        for (url, lines) in [
            ("/openapi/v3/api/v1?hash=B", &[][..]),
            ("/openapi/v3/api/v1", &[]),
            ("/openapi/v3/api/v1?hash=A", &[("accept", "*/*")]),
            ("/openapi/v3/api/v1?hash=A", &[("accept-encoding", "gzip")]),
            ("/openapi/v3/api/v1?hash=A", &[("user-agent", "curl/8.0")]),
        ] {
            assert_ne!(plain, key(url, lines), "{url} {lines:?}");
        }
    }
}
