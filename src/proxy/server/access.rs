//! Asks whether callers may make their requests, and remembers what answers show about that.

use http::header::WARNING;
use http::{HeaderValue, Response, StatusCode};
use kubefan_core::body::Body;

use super::decide::{Plan, Read};
use super::request::RequestInfo;
use crate::identity::{AccessControl, Attributes, Caller, KnownCaller, Verdict};

/// Returns the attributes of the read that `info` describes.
pub(super) fn attributes(info: &RequestInfo) -> Attributes {
    let attributes = Attributes {
        verb: info.verb.as_str().to_owned(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        ..Attributes::default()
    };
    let (fields, labels) = (&info.field_selector, &info.label_selector);
    attributes.with_selectors(fields.as_deref(), labels.as_deref())
}

/// The warning with answers that an older decision allowed.
const STALE: HeaderValue = HeaderValue::from_static(
    "299 - \"the API server does not answer, so kubefan has read this by an older permission\"",
);

/// Returns `response`. If `verdict` is an older decision, adds the warning about that.
pub(super) fn warned(mut response: Response<Body>, verdict: Option<Verdict>) -> Response<Body> {
    if verdict == Some(Verdict::Stale) {
        response.headers_mut().append(WARNING, STALE);
    }
    response
}

/// Returns whether a cache may answer the `read` of `caller`. For a GET, the API server is usually
/// not asked: forwarding the GET costs it no more than the question.
pub(super) async fn verdict(
    access: &AccessControl,
    info: &RequestInfo,
    caller: &Caller,
    read: &Read,
) -> Verdict {
    let caller = match caller {
        Caller::Trusted => return Verdict::Allowed,
        Caller::Known(caller) => caller,
        _ => return Verdict::NotAllowed,
    };
    let attributes = attributes(info);
    match read.plan {
        Plan::Get { .. } => access
            .remembered(caller, &attributes)
            .await
            .unwrap_or(Verdict::NotAllowed),
        // Boxed, so that the futures of GETs are short.
        _ => Box::pin(access.may_read(caller, &attributes)).await,
    }
}

/// Forgets what is remembered for the token of `caller` if the API server's answer to its request
/// has `status` 401.
pub(super) fn learn_token(
    access: &AccessControl,
    caller: &KnownCaller,
    info: &RequestInfo,
    status: StatusCode,
) {
    if status == StatusCode::UNAUTHORIZED && !info.is_proxied() {
        access.not_accepted(caller);
    }
}

/// Returns true if the API server's answer with `status` shows that it has authorized the GET that
/// `info` describes.
pub(super) fn is_proof(info: &RequestInfo, status: StatusCode) -> bool {
    info.is_get_of_object() && status == StatusCode::OK
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn attributes_are_those_of_the_request_info() {
        let url = "/apis/apps/v1/namespaces/n/deployments";
        let query = "watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx";
        let info = RequestInfo::parse(&Method::GET, url, query);
        let found = attributes(&info);
        let expected = Attributes {
            verb: "watch".to_owned(),
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "n".to_owned(),
            name: "x".to_owned(),
            ..Attributes::default()
        };
        assert_eq!(found.without_selectors(), expected);
        assert!(found.has_selectors());
    }

    #[test]
    fn only_a_successful_get_of_an_object_is_a_proof() {
        for (path, query, status, expected) in [
            ("/api/v1/namespaces/n/pods/p", "", 200, true),
            ("/api/v1/namespaces/n", "", 200, true),
            ("/api/v1/namespaces/n/pods/p", "", 404, false),
            ("/api/v1/namespaces/n/pods/p", "", 403, false),
            ("/api/v1/namespaces/n/pods/p/status", "", 200, false),
            ("/api/v1/namespaces/n/pods", "", 200, false),
            ("/api/v1/namespaces/n/pods", "watch=1", 200, false),
        ] {
            let info = RequestInfo::parse(&Method::GET, path, query);
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_proof(&info, status), expected, "{path}?{query} {status}");
        }
    }
}
