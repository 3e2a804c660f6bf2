//! Tests of aggregated and older discovery against a server with few resources.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Definition, Discovery, DiscoveryChanges, NotCacheable, RestMapper};
use crate::api::{
    GroupVersionResource, Object, ObjectKey, ObjectValues, Resource, ResourceVersion,
};
use crate::body::{Body, full};
use crate::upstream::tests::support::TestServer;

const VERBS: [&str; 3] = ["get", "list", "watch"];

/// The discovery documents that the test's server offers.
#[derive(Clone, Copy, PartialEq)]
struct Offers {
    aggregated: bool,
    api_services: bool,
    definitions: bool,
}

const ALL: Offers = Offers {
    aggregated: true,
    api_services: true,
    definitions: true,
};

fn gvr(group: &str, version: &str, resource: &str) -> GroupVersionResource {
    GroupVersionResource::new(group, version, resource)
}

fn aggregated_resource(plural: &str, kind: &str, singular: &str, short: &[&str]) -> Value {
    json!({
        "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind },
        "scope": "Namespaced", "singularResource": singular, "shortNames": short, "verbs": VERBS,
        "subresources": [{ "subresource": "status", "responseKind": { "kind": kind } }],
    })
}

fn aggregated(path: &str) -> Value {
    let items = match path {
        "/api" => json!([{ "metadata": {}, "versions": [{ "version": "v1", "resources": [
            aggregated_resource("pods", "Pod", "pod", &["po"]),
            aggregated_resource("events", "Event", "event", &["ev"]),
            { "resource": "bindings", "responseKind": { "kind": "Binding" },
              "scope": "Namespaced", "verbs": ["create"] },
        ] }] }]),
        _ => json!([
            { "metadata": { "name": "apps" }, "versions": [{ "version": "v1", "resources": [
                aggregated_resource("deployments", "Deployment", "deployment", &["deploy"]),
            ] }] },
            { "metadata": { "name": "ex.io" }, "versions": [
                { "version": "v2", "resources": [aggregated_resource("foos", "Foo", "foo", &[])] },
                { "version": "v1", "resources": [aggregated_resource("foos", "Foo", "foo", &[])] },
            ] },
            { "metadata": { "name": "metrics.k8s.io" }, "versions": [
                { "version": "v1", "resources": [aggregated_resource("pods", "Metrics", "", &[])] },
            ] },
            { "metadata": { "name": "broken.io" }, "versions": [
                { "version": "v1", "freshness": "Stale" },
            ] },
        ]),
    };
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": items })
}

fn legacy_resource(plural: &str, kind: &str, singular: &str, short: &[&str]) -> Value {
    json!({ "name": plural, "singularName": singular, "namespaced": true, "kind": kind,
            "verbs": VERBS, "shortNames": short })
}

fn legacy(path: &str) -> Option<Value> {
    let resources = match path {
        "/api" => return Some(json!({ "kind": "APIVersions", "versions": ["v1"] })),
        "/apis" => {
            let group = |name: &str, versions: &[&str], preferred: &str| {
                let version = |version: &&str| json!({ "groupVersion": "", "version": version });
                let versions: Vec<_> = versions.iter().map(version).collect();
                json!({ "name": name, "versions": versions,
                        "preferredVersion": { "version": preferred } })
            };
            return Some(json!({ "kind": "APIGroupList", "groups": [
                group("apps", &["v1"], "v1"),
                group("ex.io", &["v1", "v2"], "v2"),
                group("metrics.k8s.io", &["v1"], "v1"),
                group("broken.io", &["v1", "v2", "gone"], "v1"),
            ] }));
        }
        "/api/v1" => json!([
            legacy_resource("pods", "Pod", "pod", &["po"]),
            { "name": "pods/status", "singularName": "", "namespaced": true, "kind": "Pod",
              "verbs": ["get"] },
            legacy_resource("events", "Event", "event", &["ev"]),
            { "name": "bindings", "singularName": "", "namespaced": true, "kind": "Binding",
              "verbs": ["create"] },
        ]),
        "/apis/apps/v1" => {
            json!([legacy_resource(
                "deployments",
                "Deployment",
                "deployment",
                &["deploy"]
            )])
        }
        "/apis/ex.io/v2" | "/apis/ex.io/v1" => json!([legacy_resource("foos", "Foo", "foo", &[])]),
        "/apis/metrics.k8s.io/v1" => json!([legacy_resource("pods", "Metrics", "", &[])]),
        _ => return None,
    };
    Some(json!({ "kind": "APIResourceList", "resources": resources }))
}

fn api_services() -> Value {
    json!({ "items": [
        { "spec": { "version": "v1", "service": null } },
        { "spec": { "group": "apps", "version": "v1" } },
        { "spec": { "group": "metrics.k8s.io", "version": "v1",
                    "service": { "namespace": "kube-system", "name": "metrics-server" } } },
    ] })
}

/// The CustomResourceDefinitions in two pages; the first page's token returns the second.
fn definitions(query: &str) -> Value {
    if !query.contains("continue=next%2B") {
        let other = json!({ "metadata": { "uid": "o", "generation": 1 }, "spec": {
            "group": "other.io", "names": { "plural": "others", "kind": "Other" },
            "versions": [{ "name": "v1", "served": true }] } });
        let named = |plural: &str, accepted: Value| {
            json!({ "metadata": {}, "spec": {
            "group": "other.io",
            "names": { "plural": plural, "kind": "Thing", "listKind": "Things" },
            "versions": [{ "name": "v1", "served": true }] },
            "status": { "acceptedNames": accepted } })
        };
        let items = [
            other,
            named("things", json!({ "plural": "", "kind": "" })),
            named(
                "refused",
                json!({ "kind": "Thing", "listKind": "ThingSet" }),
            ),
        ];
        return json!({ "metadata": { "continue": "next+" }, "items": items });
    }
    json!({ "metadata": {}, "items": [{
        "metadata": { "uid": "u", "generation": 3, "name": "foos.ex.io" },
        "spec": { "group": "ex.io", "names": { "plural": "foos", "kind": "Foo", "listKind": "FooList" },
                  "versions": [
            { "name": "v2", "served": true, "schema": { "openAPIV3Schema": { "type": "object" } },
              "selectableFields": [{ "jsonPath": ".spec.color" }] },
            { "name": "v1", "served": false },
        ] },
    }] })
}

fn answer(request: &Request<Incoming>, offers: Offers) -> Response<Body> {
    let path = request.uri().path();
    let accept = request.headers()["accept"].to_str().expect("text");
    let discovers = matches!(path, "/api" | "/apis") && offers.aggregated;
    let found = match path {
        "/apis/apiregistration.k8s.io/v1/apiservices" if !offers.api_services => Err(403),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" if !offers.definitions => {
            Err(403)
        }
        "/apis/apiregistration.k8s.io/v1/apiservices" => Ok(api_services()),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => {
            Ok(definitions(request.uri().query().unwrap_or_default()))
        }
        "/version" => Ok(json!({ "major": "1", "gitVersion": "v1.36.2" })),
        "/apis/broken.io/v1" => Err(503),
        "/apis/broken.io/v2" => Ok(json!("no document")),
        path if discovers && accept.contains("g=apidiscovery.k8s.io;v=v2;") => Ok(aggregated(path)),
        path => legacy(path).ok_or(404),
    };
    let media_type = if discovers {
        "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
    } else {
        "application/json"
    };
    let response = Response::builder().header("content-type", media_type);
    match found {
        Ok(document) => response.body(full(document.to_string())),
        Err(code) => response.status(code).body(full("refused")),
    }
    .expect("a response")
}

async fn discover(offers: Offers) -> RestMapper {
    let server =
        TestServer::plain(move |request| std::future::ready(answer(&request, offers))).await;
    let client = server.client().await;
    let discovered = Discovery::new(client).fetch(|| None).await;
    discovered.expect("discovered")
}

#[tokio::test]
async fn both_discovery_forms_give_the_same_resources() {
    let aggregated = discover(ALL).await;
    let legacy = discover(Offers {
        aggregated: false,
        ..ALL
    })
    .await;
    let names: Vec<_> = aggregated
        .resources()
        .map(|found| found.gvr.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "pods.v1",
            "events.v1",
            "bindings.v1",
            "deployments.v1.apps",
            "foos.v2.ex.io",
            "foos.v1.ex.io",
            "pods.v1.metrics.k8s.io"
        ]
    );
    let pods = aggregated.resource(&gvr("", "v1", "pods")).expect("pods");
    assert_eq!((pods.kind.as_str(), pods.namespaced), ("Pod", true));
    assert_eq!(pods.verbs, VERBS);
    let all = |mapper: &RestMapper| mapper.resources().cloned().collect::<Vec<_>>();
    assert_eq!(all(&aggregated), all(&legacy));
}

#[tokio::test]
async fn resources_are_removed_only_by_a_successful_answer() {
    for (aggregated, known) in [(true, &["v2", "gone"][..]), (false, &["gone"])] {
        let after = discover(Offers { aggregated, ..ALL }).await;
        let known = known
            .iter()
            .map(|version| gvr("broken.io", version, "foos"));
        let known: Vec<_> = known.collect();
        let all = ["gone", "v1", "v2"].map(|version| Resource {
            gvr: gvr("broken.io", version, "foos"),
            kind: "Foo".into(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        });
        let before = RestMapper::new(all.to_vec(), None, None);
        let mut removed = RestMapper::changes(&before, &after).removed;
        removed.sort_by(|a, b| b.version.cmp(&a.version));
        assert_eq!(removed, known, "aggregated: {aggregated}");
    }
}

#[tokio::test]
async fn resources_are_found_by_every_spelling() {
    let mapper = discover(ALL).await;
    for (name, found) in [
        ("pods", "pods.v1"),
        ("po", "pods.v1"),
        ("Pod", "pods.v1"),
        ("pods.v1", "pods.v1"),
        ("deployments", "deployments.v1.apps"),
        ("deploy.apps", "deployments.v1.apps"),
        ("deployments.v1.apps", "deployments.v1.apps"),
        ("foo", "foos.v2.ex.io"),
        ("foos.ex.io", "foos.v2.ex.io"),
        ("foos.v1.ex.io", "foos.v1.ex.io"),
        ("pods.metrics.k8s.io", "pods.v1.metrics.k8s.io"),
        ("metrics", "pods.v1.metrics.k8s.io"),
    ] {
        let resource = mapper.find(name).expect(name);
        assert_eq!(resource.gvr.to_string(), found, "{name}");
    }
    for (name, message) in [
        (
            "deploymnets",
            "the API server has no resource \"deploymnets\"; did you mean deployments?",
        ),
        ("zebras", "the API server has no resource \"zebras\""),
        ("pods.v2", "the API server has no resource \"pods.v2\""),
    ] {
        let unknown = mapper.find(name).expect_err(name);
        assert!(unknown.to_string().starts_with(message), "{unknown}");
    }
}

#[tokio::test]
async fn cacheability_depends_on_which_documents_are_readable() {
    let readable = |api_services, definitions| Offers {
        api_services,
        definitions,
        ..ALL
    };
    let perhaps = Err(NotCacheable::PerhapsAggregated);
    for (offers, foos, metrics) in [
        (ALL, Ok(()), Err(NotCacheable::Aggregated)),
        (readable(true, false), Ok(()), Err(NotCacheable::Aggregated)),
        (readable(false, true), Ok(()), perhaps),
        (readable(false, false), perhaps, perhaps),
    ] {
        let mapper = discover(offers).await;
        for (resource, expected) in [
            (gvr("", "v1", "pods"), Ok(())),
            (gvr("apps", "v1", "deployments"), Ok(())),
            (gvr("", "v1", "events"), Ok(())),
            (gvr("", "v1", "bindings"), Err(NotCacheable::Verbs)),
            (gvr("", "v1", "nothing"), Err(NotCacheable::Unknown)),
            (gvr("ex.io", "v2", "foos"), foos),
            (gvr("metrics.k8s.io", "v1", "pods"), metrics),
        ] {
            assert_eq!(mapper.cacheable(&resource), expected, "{resource}");
        }
        let custom = offers.definitions || offers.api_services;
        assert_eq!(mapper.is_custom(&gvr("ex.io", "v2", "foos")), custom);
        assert!(!mapper.is_custom(&gvr("", "v1", "pods")));
    }
}

#[tokio::test]
async fn custom_resources_have_selectable_paths() {
    let mapper = discover(ALL).await;
    let paths = mapper.selectable_json_paths(&gvr("ex.io", "v2", "foos"));
    assert_eq!(paths, Some([".spec.color".to_owned()].as_slice()));
    assert_eq!(mapper.selectable_json_paths(&gvr("", "v1", "pods")), None);
    assert!(
        mapper.is_custom(&gvr("other.io", "v1", "others")),
        "the first page's resources are known too"
    );
}

#[tokio::test]
async fn custom_resources_name_the_kind_of_their_lists() {
    let mapper = discover(ALL).await;
    for (gvr, expected) in [
        (gvr("ex.io", "v2", "foos"), None),
        (gvr("other.io", "v1", "others"), None),
        (gvr("other.io", "v1", "things"), Some("Things")),
        (gvr("other.io", "v1", "refused"), Some("ThingSet")),
        (gvr("", "v1", "pods"), None),
    ] {
        assert_eq!(mapper.list_kind(&gvr), expected, "{gvr}");
    }
}

/// A server whose discovery documents have a tag. Sends the path of each request to `requests`, and
/// the status of its answer.
async fn tagging_server(requests: mpsc::UnboundedSender<(String, u16)>) -> TestServer {
    TestServer::plain(move |request| {
        let path = request.uri().path().to_owned();
        let tag = HeaderValue::from_static("\"1\"");
        let mut response = answer(&request, ALL);
        if request.headers().get(IF_NONE_MATCH) == Some(&tag) {
            response = Response::new(full(""));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else if path == "/apis" {
            response.headers_mut().insert(ETAG, tag);
        }
        requests
            .send((path, response.status().as_u16()))
            .expect("the test runs");
        std::future::ready(response)
    })
    .await
}

#[tokio::test]
async fn what_has_not_changed_is_not_sent_again() {
    let (sender, mut requests) = mpsc::unbounded_channel();
    let server = tagging_server(sender).await;
    let mut discovery = Discovery::new(server.client().await);
    let first = discovery.fetch(|| None).await.expect("discovered");
    let mut seen = || {
        let mut seen: Vec<_> = std::iter::from_fn(|| requests.try_recv().ok()).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let requested = |rows: &[(&str, u16)]| -> Vec<_> {
        let rows = rows.iter();
        rows.map(|(path, status)| ((*path).to_owned(), *status))
            .collect()
    };
    let whole = [("/api", 200), ("/apis", 200), (crds, 200), (services, 200)];
    assert_eq!(seen(), requested(&whole));

    let decode = |definitions: &Value| {
        let items = definitions["items"].as_array().expect("a list").iter();
        let decode = |item: &Value| {
            // Discovery has all versions of these definitions.
            let item = item.to_string().replace("false", "true");
            // The form in which a cache stores objects of built-in kinds.
            let body = Bytes::copy_from_slice(&item.as_bytes()[1..]);
            let key = ObjectKey::new(None, "a");
            let values = ObjectValues::default();
            let version = ResourceVersion(1);
            Definition::decode(&Object::new(key, version, &values, body))
        };
        items
            .map(|item| Arc::new(decode(item).expect("a definition")))
            .collect::<Vec<_>>()
    };
    let pages = [definitions(""), definitions("continue=next%2B")];
    let all: Vec<_> = pages.iter().flat_map(decode).collect();
    let foos = decode(&pages[1]);
    assert_eq!(foos.len(), 1);
    let second = discovery.fetch(|| Some(all)).await.expect("discovered");
    // These definitions serve a version that those of the API server do not.
    let expected = DiscoveryChanges {
        changed: vec![gvr("ex.io", "v1", "foos")],
        ..DiscoveryChanges::default()
    };
    assert_eq!(RestMapper::changes(&first, &second), expected);
    let changed = [("/api", 200), ("/apis", 304), (services, 200)];
    assert_eq!(seen(), requested(&changed));

    // The definition of a resource is missing.
    let third = discovery
        .fetch(|| Some(Vec::new()))
        .await
        .expect("discovered");
    assert!(RestMapper::changes(&first, &third).is_empty());
    assert!(third.is_custom(&gvr("ex.io", "v2", "foos")));
    let changed = [("/api", 200), ("/apis", 304), (crds, 200), (services, 200)];
    assert_eq!(seen(), requested(&changed));
}

#[tokio::test]
async fn reads_the_server_version() {
    let server = TestServer::plain(|request| std::future::ready(answer(&request, ALL))).await;
    let version = Discovery::version(&server.client().await).await;
    assert_eq!(version.expect("a version"), "v1.36.2");
}
