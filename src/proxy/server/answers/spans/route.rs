//! The path of a request without its names, for traces.

use http::Method;

use crate::server::answers::record::Record;
use crate::server::request::{RequestInfo, Verb};

/// The subresources that are shown. Clients can write anything in their place.
const SUBRESOURCES: [&str; 14] = [
    "approval",
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "finalize",
    "log",
    "portforward",
    "proxy",
    "resize",
    "scale",
    "status",
    "token",
];
/// The paths that are shown as they are.
const DOCUMENTS: [&str; 9] = [
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
];

/// Returns the method as the semantic conventions of HTTP write it. Clients can make up others.
pub(super) fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "_OTHER",
    }
}

/// Returns the path with placeholders for names, such as
/// `/api/v1/namespaces/{namespace}/pods/{name}`. `None` for a resource that the API server does not
/// have, and for other paths that clients can make up.
pub(super) fn route(record: &Record) -> Option<String> {
    let info = &*record.arrival.info;
    if info.is_resource_request {
        record.resource.as_ref().map(|_| of_resource(info))
    } else {
        of_document(&info.path)
    }
}

fn of_resource(info: &RequestInfo) -> String {
    let mut route = match info.group.as_str() {
        "" => format!("/api/{}", info.version),
        group => format!("/apis/{group}/{}", info.version),
    };
    if info.watch_path {
        route.push_str("/watch");
    } else if info.verb == Verb::Proxy {
        route.push_str("/proxy");
    }
    // The name of a namespace is also the namespace of the request.
    let is_namespace = info.group.is_empty() && info.resource == "namespaces";
    if !info.namespace.is_empty() && !is_namespace {
        route.push_str("/namespaces/{namespace}");
    }
    route.push('/');
    route.push_str(&info.resource);
    // The name in a request for a collection is from a selector.
    let is_collection = matches!(info.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    if !info.name.is_empty() && (info.watch_path || !is_collection) {
        route.push_str("/{name}");
    }
    match info.subresource.as_str() {
        "" => {}
        known if SUBRESOURCES.contains(&known) => {
            route.push('/');
            route.push_str(known);
        }
        _ => route.push_str("/{subresource}"),
    }
    if !info.rest.is_empty() {
        route.push_str("/{path}");
    }
    route
}

fn of_document(path: &str) -> Option<String> {
    if DOCUMENTS.contains(&path) {
        return Some(path.to_owned());
    }
    let segments: Vec<_> = path.trim_matches('/').split('/').collect();
    let route = match segments[..] {
        ["api", _] => "/api/{version}",
        ["apis", _] => "/apis/{group}",
        ["apis", _, _] => "/apis/{group}/{version}",
        ["openapi", "v3", ..] => "/openapi/v3/{path}",
        _ => return None,
    };
    Some(route.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_of_paths() {
        for (target, expected) in [
            ("/api/v1/pods?limit=1", Some("/api/v1/pods")),
            (
                "/api/v1/namespaces/secret/pods/secret",
                Some("/api/v1/namespaces/{namespace}/pods/{name}"),
            ),
            (
                "/api/v1/namespaces/secret/pods?fieldSelector=metadata.name%3Dsecret",
                Some("/api/v1/namespaces/{namespace}/pods"),
            ),
            (
                "/api/v1/namespaces/secret/pods/secret/log",
                Some("/api/v1/namespaces/{namespace}/pods/{name}/log"),
            ),
            (
                "/api/v1/namespaces/secret/pods/secret/secret",
                Some("/api/v1/namespaces/{namespace}/pods/{name}/{subresource}"),
            ),
            (
                "/api/v1/namespaces/secret/pods/secret/proxy/secret",
                Some("/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}"),
            ),
            (
                "/api/v1/namespaces/secret",
                Some("/api/v1/namespaces/{name}"),
            ),
            (
                "/api/v1/namespaces/secret/status",
                Some("/api/v1/namespaces/{name}/status"),
            ),
            ("/api/v1/nodes/secret", Some("/api/v1/nodes/{name}")),
            (
                "/apis/apps/v1/namespaces/secret/deployments/secret/scale",
                Some("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"),
            ),
            (
                "/api/v1/watch/namespaces/secret/pods/secret",
                Some("/api/v1/watch/namespaces/{namespace}/pods/{name}"),
            ),
            (
                "/api/v1/proxy/namespaces/secret/services/secret",
                Some("/api/v1/proxy/namespaces/{namespace}/services/{name}"),
            ),
            ("/version", Some("/version")),
            ("/apis/secret/v1", Some("/apis/{group}/{version}")),
            ("/openapi/v3/apis/secret/v1", Some("/openapi/v3/{path}")),
            ("/secret", None),
            ("/", None),
        ] {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let info = RequestInfo::parse(&Method::GET, path, query);
            let found = match info.is_resource_request {
                true => Some(of_resource(&info)),
                false => of_document(&info.path),
            };
            assert_eq!(found.as_deref(), expected, "{target}");
        }
    }
}
