//! Table tests of [`RequestInfo::parse`].

use http::Method;
use proptest::prelude::*;

use super::{RequestInfo, Verb};

/// Verb, group/version, namespace, resource, name and subresource of a parsed request.
type ParsedRequest = (String, String, String, String, String, String);

fn parsed(method: &Method, url: &str) -> Option<ParsedRequest> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let info = RequestInfo::parse(method, path, query);
    info.is_resource_request.then(|| {
        let version = format!("{}/{}", info.group, info.version);
        let RequestInfo {
            verb,
            namespace,
            resource,
            name,
            subresource,
            ..
        } = info;
        (
            verb.as_str().to_owned(),
            version,
            namespace,
            resource,
            name,
            subresource,
        )
    })
}

fn assert_parsed(method: Method, url: &str, expected: [&str; 6]) {
    let [a, b, c, d, e, f] = expected.map(str::to_owned);
    assert_eq!(
        parsed(&method, url),
        Some((a, b, c, d, e, f)),
        "{method} {url}"
    );
}

#[test]
fn reads_every_form_of_path() {
    for (url, expected) in [
        ("/api/v1/pods", ["list", "/v1", "", "pods", "", ""]),
        (
            "/apis/apps/v1/deployments",
            ["list", "apps/v1", "", "deployments", "", ""],
        ),
        ("/api/v1/pods?watch=1", ["watch", "/v1", "", "pods", "", ""]),
        (
            "/api/v1/pods?watch=true",
            ["watch", "/v1", "", "pods", "", ""],
        ),
        ("/api/v1/pods?watch=", ["watch", "/v1", "", "pods", "", ""]),
        ("/api/v1/pods?watch", ["watch", "/v1", "", "pods", "", ""]),
        (
            "/api/v1/pods?watch=anything",
            ["watch", "/v1", "", "pods", "", ""],
        ),
        (
            "/api/v1/pods?watch=FALSE",
            ["list", "/v1", "", "pods", "", ""],
        ),
        (
            "/api/v1/pods?watch=0&watch=1",
            ["list", "/v1", "", "pods", "", ""],
        ),
        (
            "/api/v1/namespaces/BAD_NS/pods",
            ["list", "/v1", "BAD_NS", "pods", "", ""],
        ),
        (
            "/api/v1/namespaces/x/pods?watch=1",
            ["watch", "/v1", "x", "pods", "", ""],
        ),
        (
            "/api/v1/namespaces/x/pods/p",
            ["get", "/v1", "x", "pods", "p", ""],
        ),
        (
            "/api/v1/namespaces/x/pods/p?watch=true",
            ["get", "/v1", "x", "pods", "p", ""],
        ),
        (
            "/api/v1/namespaces/x/pods/p/log",
            ["get", "/v1", "x", "pods", "p", "log"],
        ),
        (
            "/api/v1/nodes/n/proxy/a/b",
            ["get", "/v1", "", "nodes", "n", "proxy"],
        ),
        ("/api/v1/watch/pods", ["watch", "/v1", "", "pods", "", ""]),
        (
            "/api/v1/watch/namespaces/x/pods",
            ["watch", "/v1", "x", "pods", "", ""],
        ),
        (
            "/api/v1/watch/namespaces/x/pods/p",
            ["watch", "/v1", "x", "pods", "p", ""],
        ),
        (
            "/api/v1/watch/namespaces/x",
            ["watch", "/v1", "x", "namespaces", "x", ""],
        ),
        (
            "/api/v1/proxy/nodes/n/a/b",
            ["proxy", "/v1", "", "nodes", "n", ""],
        ),
        (
            "/api/v1/namespaces",
            ["list", "/v1", "", "namespaces", "", ""],
        ),
        (
            "/api/v1/namespaces/x",
            ["get", "/v1", "x", "namespaces", "x", ""],
        ),
        (
            "/api/v1/namespaces/x/status",
            ["get", "/v1", "x", "namespaces", "x", "status"],
        ),
        (
            "/api/v1/namespaces/x/finalize",
            ["get", "/v1", "x", "namespaces", "x", "finalize"],
        ),
        (
            "/api/v1/namespaces/x/pods/",
            ["list", "/v1", "x", "pods", "", ""],
        ),
        ("//api/v1/pods//", ["list", "/v1", "", "pods", "", ""]),
        ("/api/v1//pods", ["get", "/v1", "", "", "pods", ""]),
        (
            "/api/v1/namespaces//pods",
            ["list", "/v1", "", "pods", "", ""],
        ),
        (
            "/api/v1/namespaces/x//pods",
            ["get", "/v1", "x", "", "pods", ""],
        ),
        (
            "/api/v1/namespaces/a%20b/pods/%C3%A9",
            ["get", "/v1", "a b", "pods", "é", ""],
        ),
        ("/api/v1/pods%2Fp", ["get", "/v1", "", "pods", "p", ""]),
    ] {
        assert_parsed(Method::GET, url, expected);
    }
}

#[test]
fn reads_every_method() {
    for (method, url, verb) in [
        (Method::HEAD, "/api/v1/pods", "list"),
        (Method::HEAD, "/api/v1/namespaces/x/pods/p", "get"),
        (Method::POST, "/api/v1/namespaces/x/pods", "create"),
        (Method::PUT, "/api/v1/namespaces/x/pods/p", "update"),
        (Method::PATCH, "/api/v1/namespaces/x/pods/p", "patch"),
        (Method::DELETE, "/api/v1/namespaces/x/pods/p", "delete"),
        (
            Method::DELETE,
            "/api/v1/namespaces/x/pods",
            "deletecollection",
        ),
        (Method::OPTIONS, "/api/v1/pods", ""),
        (Method::POST, "/api/v1/watch/pods", "watch"),
    ] {
        let info = RequestInfo::parse(&method, url, "");
        assert_eq!(
            (info.is_resource_request, info.verb.as_str()),
            (true, verb),
            "{method} {url}"
        );
    }
}

#[test]
fn other_paths_have_their_method_as_verb() {
    for url in [
        "",
        "/",
        "/healthz",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/api/v1/watch",
        "/api/v1/proxy/",
        "/apis/apps/v1/watch",
        "/openapi/v3/apis/apps/v1",
        "/version/a/b/c",
    ] {
        let info = RequestInfo::parse(&Method::GET, url, "watch=1");
        let expected = RequestInfo {
            verb: Verb::Get,
            path: url.to_owned(),
            ..RequestInfo::default()
        };
        assert_eq!(info, expected, "{url}");
        assert_eq!(info.gvr(), None);
    }
}

#[test]
fn takes_the_name_from_the_field_selector() {
    for (query, verb, name) in [
        ("fieldSelector=metadata.name=p", "list", "p"),
        ("watch=1&fieldSelector=metadata.name%3Dp", "watch", "p"),
        (
            "fieldSelector=metadata.name==p,spec.nodeName=n",
            "list",
            "p",
        ),
        ("fieldSelector=metadata.name=q,metadata.name=p", "list", "p"),
        ("fieldSelector=metadata.name!=p", "list", ""),
        ("fieldSelector=metadata.name=", "list", ""),
        ("fieldSelector=metadata.name=..", "list", ""),
        ("fieldSelector=metadata.name=a/b", "list", ""),
        ("fieldSelector=metadata.name=a%25b", "list", ""),
        (
            "fieldSelector=metadata.name=p&limit=abc&watch=1",
            "watch",
            "",
        ),
        (
            "fieldSelector=metadata.name=p&labelSelector=,&watch=false",
            "list",
            "",
        ),
    ] {
        let info = RequestInfo::parse(&Method::GET, "/api/v1/namespaces/x/pods", query);
        assert_eq!(
            (info.verb.as_str(), info.name.as_str()),
            (verb, name),
            "{query}"
        );
        assert!(info.field_selector.is_some(), "{query}");
    }
}

#[test]
fn omits_selectors_for_verbs_that_do_not_select() {
    let query = "labelSelector=a%3Db&fieldSelector=metadata.name=p";
    for (method, path, shown) in [
        (Method::GET, "/api/v1/pods", true),
        (Method::DELETE, "/api/v1/namespaces/x/pods", true),
        (Method::GET, "/api/v1/watch/pods", false),
        (Method::GET, "/api/v1/namespaces/x/pods/p", false),
        (Method::POST, "/api/v1/namespaces/x/pods", false),
    ] {
        let info = RequestInfo::parse(&method, path, query);
        let selectors = (
            info.label_selector.as_deref(),
            info.field_selector.as_deref(),
        );
        let expected = if shown {
            (Some("a=b"), Some("metadata.name=p"))
        } else {
            (None, None)
        };
        assert_eq!(selectors, expected, "{method} {path}");
    }
}

#[test]
fn recognises_watch_paths_and_trailing_segments() {
    let info = RequestInfo::parse(&Method::GET, "/api/v1/watch/namespaces/x/pods/p", "");
    assert!(info.watch_path);
    let info = RequestInfo::parse(&Method::GET, "/api/v1/pods", "watch=1");
    assert!(!info.watch_path);
    let info = RequestInfo::parse(&Method::GET, "/api/v1/nodes/n/proxy/a/b", "");
    assert_eq!(info.rest, ["a", "b"]);
    assert_eq!(info.path, "/api/v1/nodes/n/proxy/a/b");
    let gvr = info.gvr().map(|gvr| gvr.to_string());
    assert_eq!(gvr.as_deref(), Some("nodes.v1"));
}

proptest! {
    #[test]
    fn never_panics(path in ".*", query in ".*") {
        RequestInfo::parse(&Method::GET, &path, &query);
    }

    #[test]
    fn never_panics_near_real_urls(
        segments in prop::collection::vec(
            prop::sample::select(vec![
                "api", "apis", "v1", "watch", "proxy", "namespaces", "x", "pods", "status", "", "%2F", "%",
            ]),
            0..8,
        ),
        query in "(watch|fieldSelector|limit|&|=|metadata\\.name|%3D|,|\\\\|1){0,8}",
    ) {
        RequestInfo::parse(&Method::GET, &format!("/{}", segments.join("/")), &query);
    }
}

#[test]
fn answers_of_nodes_pods_and_services_are_proxied() {
    for (path, expected) in [
        ("/api/v1/namespaces/n/services/s/proxy", true),
        (
            "/api/v1/namespaces/n/services/http:s:web/proxy/index.html",
            true,
        ),
        ("/api/v1/namespaces/n/pods/p/proxy/a/b", true),
        ("/api/v1/namespaces/n/pods/p/%70roxy/", true),
        ("/api/v1/namespaces/n/pods/p//proxy/", true),
        ("/api/v1/nodes/n/proxy/logs/", true),
        ("/api/v1/proxy/namespaces/n/pods/p/", true),
        ("/api/v1/namespaces/n/pods/p", false),
        ("/api/v1/namespaces/n/pods/p/log", false),
        ("/openapi/v3/proxy", false),
    ] {
        let info = RequestInfo::parse(&Method::GET, path, "");
        assert_eq!(info.is_proxied(), expected, "{path}");
    }
}
