//! Features that the fault proxy hides, so that it behaves like an older API server or like an
//! extension API server.

use http::header::ACCEPT;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode};

use crate::support::proxies::replies::{Reply, plain};

const METADATA: &str = "as=PartialObjectMetadata";
const UNACCEPTABLE: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406}"#;
const FORBIDDEN: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]},"code":422}"#;

/// A feature that the fault proxy hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingFeature {
    /// PartialObjectMetadata in protobuf is not offered: 406, unless `Accept` has another type.
    MetadataProtobuf,
    /// PartialObjectMetadata is not offered in any format: 406, unless `Accept` has another type.
    Metadata,
    /// `sendInitialEvents` and `resourceVersionMatch` are ignored.
    WatchListIgnored,
    /// A request with `sendInitialEvents` gets 422.
    WatchListRejected,
}

impl MissingFeature {
    /// Removes the hidden feature from the request, or returns the error answer that an API server
    /// without the feature gives.
    pub(super) fn answer(self, parts: &mut Parts) -> Option<Reply> {
        match self {
            Self::MetadataProtobuf => accept_only(parts, |kind| {
                kind.contains(METADATA) && kind.contains("protobuf")
            }),
            Self::Metadata => accept_only(parts, |kind| kind.contains(METADATA)),
            Self::WatchListIgnored => {
                forget_initial_events(parts);
                None
            }
            Self::WatchListRejected => {
                let query = parts.uri.query().unwrap_or_default();
                let is_watch_list = query.contains("sendInitialEvents=");
                is_watch_list.then(|| plain(StatusCode::UNPROCESSABLE_ENTITY, FORBIDDEN))
            }
        }
    }
}

fn accept_only(parts: &mut Parts, unknown: impl Fn(&str) -> bool) -> Option<Reply> {
    let accept = parts.headers.get(ACCEPT)?.to_str().ok()?;
    let known: Vec<&str> = accept.split(',').filter(|kind| !unknown(kind)).collect();
    if known.is_empty() {
        return Some(plain(StatusCode::NOT_ACCEPTABLE, UNACCEPTABLE));
    }
    let known = HeaderValue::from_str(&known.join(",")).expect("a part of a header's value");
    parts.headers.insert(ACCEPT, known);
    None
}

fn forget_initial_events(parts: &mut Parts) {
    let Some((path, query)) = parts
        .uri
        .path_and_query()
        .and_then(|all| all.as_str().split_once('?'))
    else {
        return;
    };
    let unknown = ["sendInitialEvents=", "resourceVersionMatch="];
    if !query.contains(unknown[0]) {
        return;
    }
    let known = query
        .split('&')
        .filter(|part| !unknown.iter().any(|name| part.starts_with(name)));
    let rest = format!("{path}?{}", known.collect::<Vec<_>>().join("&"));
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.path_and_query = Some(PathAndQuery::try_from(rest).expect("a part of a path"));
    parts.uri = uri.try_into().expect("a shorter query");
}
