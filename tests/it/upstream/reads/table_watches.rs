//! Compares the events of open watches of Tables from kubefan's cache with those from the API
//! server: of objects that appear, change, leave a selection, come back and disappear.

use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::printed_tables::{LIMIT, SCHEDULED_BY, TABLE, printed, table};
use crate::support::clients::client::Client;
use crate::support::cluster::{create_patiently, define_widgets};
use crate::support::normalise::mask_ages;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, private};
use crate::support::programs::kubefan::Kubefan;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const INCLUDES: [&str; 4] = [
    "",
    "&includeObject=None",
    "&includeObject=Metadata",
    "&includeObject=Object",
];
/// The object with the deletion that is the last event of every watch.
const LAST: &str = "followed";

/// A collection, a body for its objects, and the status that makes a field selector match.
struct Watched {
    path: String,
    body: Value,
    selectors: Vec<&'static str>,
}

/// A watch of a Table.
struct TableWatch {
    target: String,
    body: Incoming,
    buffer: BytesMut,
    /// The events so far, without what may differ.
    events: Vec<String>,
}

impl TableWatch {
    /// Opens a watch. If `is_cached` is true, kubefan's cache must answer it.
    async fn open(client: &Client, target: &str, is_cached: bool) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("accept", TABLE);
        let opened = client.open(Method::GET, target, &headers, Bytes::new());
        let response = opened.await.expect("a watch");
        assert_eq!(response.status(), 200, "{target}");
        let is_forwarded = response.headers().contains_key(SCHEDULED_BY);
        assert_eq!(is_forwarded, !is_cached, "{target}");
        Self {
            target: target.to_owned(),
            body: response.into_body(),
            buffer: BytesMut::new(),
            events: Vec::new(),
        }
    }

    /// Returns the next event. Only the first event has columns.
    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return serde_json::from_slice(&line).expect("an event");
            }
            let frame = self.body.frame().await;
            let frame = frame.unwrap_or_else(|| panic!("{} has ended", self.target));
            let frame = frame.expect("the connection lasts");
            self.buffer.extend(frame.into_data().expect("no trailers"));
        }
    }

    /// Reads until an event of `kind` for the row `name`; any row if it is empty.
    async fn read_until(&mut self, kind: &str, name: &str) {
        let target = self.target.clone();
        let read = async {
            loop {
                let event = self.next().await;
                let row = &event["object"]["rows"][0];
                let is_end = event["type"] == kind && (name.is_empty() || row["cells"][0] == name);
                // Besides the one that ends the initial events, bookmarks come at any time.
                if event["type"] != "BOOKMARK" || is_end {
                    self.events.push(shown(event));
                }
                if is_end {
                    return;
                }
            }
        };
        within(&format!("{target}: {kind} {name}"), LIMIT, read).await;
    }
}

/// Formats an event without ages and columns: an API server sends the columns again if another
/// stream needs them for this event. A bookmark is also without its version.
fn shown(mut event: Value) -> String {
    let is_bookmark = event["type"] == "BOOKMARK";
    let table = &mut event["object"];
    table["columnDefinitions"] = Value::Null;
    if is_bookmark {
        table["metadata"] = Value::Null;
        table["rows"][0]["object"]["metadata"]["resourceVersion"] = Value::Null;
    }
    mask_ages(&event.to_string())
}

async fn write(client: &Client, watched: &Watched) {
    let path = &watched.path;
    let create = async |name: &str, app: &str| {
        let mut object = watched.body.clone();
        object["metadata"] = json!({ "name": name, "labels": { "app": app } });
        create_patiently(client, path, &object).await;
    };
    let label = async |name: &str, app: &str| {
        let change = json!({ "metadata": { "labels": { "app": app } } });
        client.merge(&format!("{path}/{name}"), &change).await.ok();
    };
    let delete = async |name: &str| {
        let own = format!("{path}/{name}?gracePeriodSeconds=0");
        client.delete(&own).await.ok();
    };
    create("other", "b").await;
    create("joining", "b").await;
    label("joining", "a").await;
    // Each of these leaves selections that have it, or joins others.
    label(LAST, "b").await;
    label(LAST, "a").await;
    label("before", "b").await;
    if path.ends_with("pods") {
        for phase in ["Running", "Failed", "Running"] {
            let status = json!({ "status": { "phase": phase } });
            let own = format!("{path}/{LAST}/status");
            client.merge(&own, &status).await.ok();
        }
    }
    delete("other").await;
    delete("joining").await;
    delete("before").await;
    delete(LAST).await;
}

async fn collections(server: &ApiServer, namespace: &str) -> Vec<Watched> {
    let definition = json!({
        "metadata": { "name": "watched.tables.kubefan.test" },
        "spec": {
            "group": "tables.kubefan.test", "scope": "Namespaced",
            "names": { "plural": "watched", "kind": "Watched" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "additionalPrinterColumns": [
                    { "name": "App", "type": "string", "jsonPath": ".metadata.labels.app" },
                    { "name": "Sizes", "type": "string", "jsonPath": ".spec.sizes", "priority": 1 },
                    { "name": "Since", "type": "date", "jsonPath": ".spec.since" },
                    { "name": "Ready", "type": "boolean", "jsonPath": ".spec.none" },
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    });
    let client = server.client();
    client.create(DEFINITIONS, &definition).await.ok();
    let custom = format!("/apis/tables.kubefan.test/v1/namespaces/{namespace}/watched");
    eventually(&custom, LIMIT, async || client.get(&custom).await.is(200)).await;
    let common = [
        "",
        "&labelSelector=app%3Da",
        "&fieldSelector=metadata.name%3Dfollowed",
    ];
    let core = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let pod = json!({ "spec": { "containers": [{ "name": "main", "image": "example.com/web" }] } });
    let mut of_pods = common.to_vec();
    of_pods.push("&fieldSelector=status.phase%3DRunning");
    vec![
        Watched {
            path: core("pods"),
            body: pod,
            selectors: of_pods,
        },
        Watched {
            path: core("configmaps"),
            body: json!({ "data": { "a": "b" } }),
            selectors: common.to_vec(),
        },
        Watched {
            path: custom,
            body: json!({
                "apiVersion": "tables.kubefan.test/v1", "kind": "Watched",
                "spec": { "sizes": [1, "two", { "v": 3 }], "since": "2020-01-02T03:04:05Z" },
            }),
            selectors: common.to_vec(),
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn open_watches_of_tables_get_the_same_events() {
    let server = private().await;
    let direct = server.client();
    let namespace = server.namespace("tables").await;
    let collections = collections(&server, &namespace).await;
    for Watched { path, body, .. } in &collections {
        for name in ["before", LAST] {
            let mut object = body.clone();
            object["metadata"] = json!({ "name": name, "labels": { "app": "a" } });
            create_patiently(&direct, path, &object).await;
        }
        if path.ends_with("pods") {
            let status = json!({ "status": { "phase": "Running" } });
            let own = format!("{path}/{LAST}/status");
            direct.merge(&own, &status).await.ok();
        }
    }
    let kubefan = Kubefan::start(&server, &[]).await;
    let through = kubefan.client();
    let mut pairs = Vec::new();
    for Watched {
        path, selectors, ..
    } in &collections
    {
        printed(&through, path).await;
        let list = table(&direct, path).await.json();
        let version = list["metadata"]["resourceVersion"].as_str();
        let after = format!("&resourceVersion={}", version.expect("a version"));
        let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        for start in [initial, "&resourceVersion=0", &after] {
            for selector in selectors {
                for include in INCLUDES {
                    let target = format!(
                        "{path}?watch=1&allowWatchBookmarks=true{start}{selector}{include}"
                    );
                    let wanted = TableWatch::open(&direct, &target, false);
                    let got = TableWatch::open(&through, &target, true);
                    let (mut wanted, mut got) = tokio::join!(wanted, got);
                    // The initial events have no order.
                    let count = initial_events(path, selector, start);
                    for watch in [&mut wanted, &mut got] {
                        for _ in 0..count {
                            watch.read_until("ADDED", "").await;
                        }
                        watch.events.sort();
                        if start == initial {
                            watch.read_until("BOOKMARK", "").await;
                        }
                    }
                    pairs.push((deletions(selector), wanted, got));
                }
            }
        }
    }
    assert_eq!(pairs.len(), (4 + 3 + 3) * 3 * INCLUDES.len());
    join_all(collections.iter().map(|watched| write(&direct, watched))).await;
    let ended = pairs
        .into_iter()
        .map(async |(deletions, mut wanted, mut got)| {
            for _ in 0..deletions {
                let ends = [&mut wanted, &mut got].map(|watch| watch.read_until("DELETED", LAST));
                join_all(ends).await;
            }
            (wanted, got)
        });
    let mut events = 0;
    for (wanted, got) in join_all(ended).await {
        assert_eq!(got.events, wanted.events, "{}", wanted.target);
        events += wanted.events.len();
    }
    assert!(events > 1_000, "{events}");
    let metrics = kubefan.metrics().await;
    assert!(!metrics.contains("result=\"different\""), "{metrics}");
}

/// Counts how often the last object leaves a selection or is deleted.
fn deletions(selector: &str) -> usize {
    let may_leave = selector.contains("labelSelector") || selector.contains("phase");
    1 + usize::from(may_leave)
}

/// Returns how many objects a watch begins with.
fn initial_events(path: &str, selector: &str, start: &str) -> usize {
    let is_later = start.starts_with("&resourceVersion=") && start != "&resourceVersion=0";
    match selector {
        _ if is_later => 0,
        "" | "&labelSelector=app%3Da" => 2,
        _ => {
            assert!(selector.contains("name") || path.ends_with("pods"));
            1
        }
    }
}

/// The aggregator sends the columns with each event, and the API server with the first one.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_event_has_the_columns_that_the_api_server_sends() {
    let server = private().await;
    let kubefan = Kubefan::start(&server, &["--all"]).await;
    let namespace = server.namespace("columns").await;
    let admin = server.client();
    let mut paths: Vec<_> = [
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        DEFINITIONS,
    ]
    .map(str::to_owned)
    .into();
    define_widgets(&server).await;
    for watched in collections(&server, &namespace).await {
        for name in ["one", "two"] {
            let mut object = watched.body.clone();
            object["metadata"] = json!({ "name": name });
            create_patiently(&admin, &watched.path, &object).await;
        }
        paths.push(watched.path);
    }
    let through = kubefan.client();
    printed(&through, &paths[0]).await;
    let mut repeating = Vec::new();
    for path in &paths {
        let target = format!("{path}?watch=1&resourceVersion=0");
        let columns = async |client: &Client, is_cached: Option<bool>| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", TABLE);
            let opened = client.open(Method::GET, &target, &headers, Bytes::new());
            let response = opened.await.expect("a watch");
            let is_forwarded = response.headers().contains_key(SCHEDULED_BY);
            assert!(is_cached.is_none_or(|is_cached| is_cached != is_forwarded));
            let mut watch = TableWatch {
                target: target.clone(),
                body: response.into_body(),
                buffer: BytesMut::new(),
                events: Vec::new(),
            };
            let mut found = Vec::new();
            for _ in 0..2 {
                let event = within(&target, LIMIT, watch.next()).await;
                found.push(event["object"]["columnDefinitions"].is_array());
            }
            found
        };
        let direct = columns(&admin, None).await;
        let is_first = path == &paths[0];
        let found = columns(&through, is_first.then_some(true)).await;
        assert_eq!(found, direct, "{path}");
        if direct[1] {
            repeating.push(path);
        }
    }
    assert_eq!(repeating, [&paths[0]]);
}
