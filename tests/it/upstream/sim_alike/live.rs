//! Compares open watches of the simulator and of the API server while objects change.

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::twins::as_new;
use super::wording::{Names, without_columns};
use super::{LIMIT, PARTIAL, TABLE, difference};
use crate::support::clients::client::Client;
use crate::support::cluster::define_widgets;
use crate::support::poll::within;
use crate::support::programs::apiserver::shared;
use crate::support::programs::sim::Sim;

const WIDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstream/widgets.yaml");
/// The watches to compare: the resource's plural, and the selector as a part of the query.
const WATCHES: [(&str, &str); 8] = [
    ("configmaps", ""),
    ("configmaps", "&labelSelector=color%3Dred"),
    ("configmaps", "&labelSelector=color%20notin%20(red)"),
    ("configmaps", "&fieldSelector=metadata.name!%3Dfirst"),
    ("pods", ""),
    ("pods", "&fieldSelector=status.phase%3DRunning"),
    ("widgets", ""),
    ("widgets", "&fieldSelector=spec.color%3Dred"),
];

/// The API server (index 0) and the simulator (index 1), with their names for common objects.
struct Pair {
    clients: [Client; 2],
    names: [Names; 2],
    namespace: String,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn live_changes_are_sent_alike() {
    let server = shared();
    define_widgets(server).await;
    let sim = Sim::start(&["--crd", WIDGETS]).await;
    let namespace = server.namespace("live").await;
    let own = json!({ "metadata": { "name": namespace } });
    let clients = [server.client(), sim.client()];
    clients[1].create("/api/v1/namespaces", &own).await.ok();
    let mut pair = Pair {
        clients,
        names: [Names::default(), Names::default()],
        namespace,
    };
    pair.create("configmaps", colored("first", "red")).await;
    let mut streams = Vec::new();
    for (plural, selector) in WATCHES {
        for accept in ["application/json", TABLE, PARTIAL] {
            let what = format!("{plural}{selector} {accept}");
            streams.push((what, pair.watch(plural, selector, accept).await));
        }
    }
    pair.change().await;
    let mut events = 0;
    for (what, [wanted, got]) in streams {
        let wanted = within(&what, LIMIT, up_to_the_last(wanted)).await;
        let got = within(&what, LIMIT, up_to_the_last(got)).await;
        let wanted = without_columns(&pair.names[0].body(&wanted, true));
        let got = without_columns(&pair.names[1].body(&got, true));
        assert!(wanted == got, "{what}\n{}", difference(&wanted, &got));
        println!("same     {:3} events of {what}", got.lines().count());
        events += got.lines().count();
    }
    assert!(events > 100, "{events}");
}

impl Pair {
    fn path(&self, plural: &str) -> String {
        let root = match plural {
            "widgets" => "/apis/example.kubefan.io/v1",
            _ => "/api/v1",
        };
        format!("{root}/namespaces/{}/{plural}", self.namespace)
    }

    /// Opens a watch at both servers, from their current versions.
    async fn watch(&self, plural: &str, selector: &str, accept: &str) -> [Incoming; 2] {
        let path = self.path(plural);
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().expect("a header value"));
        let open = async |client: &Client| {
            let list = client.get(&format!("{path}?limit=1")).await.ok().json();
            let from = list["metadata"]["resourceVersion"].as_str();
            let from = from.expect("a version");
            let path = format!("{path}?watch=1&resourceVersion={from}{selector}");
            let response = client.open(Method::GET, &path, &headers, Bytes::new());
            let response = response.await.expect("a response");
            assert_eq!(response.status(), 200, "{path}");
            response.into_body()
        };
        [open(&self.clients[0]).await, open(&self.clients[1]).await]
    }

    /// Creates the object at the API server, and the result with its defaults in the simulator.
    async fn create(&mut self, plural: &str, object: Value) {
        let path = self.path(plural);
        let real = self.clients[0].create(&path, &object).await.ok().json();
        let simulated = self.clients[1]
            .create(&path, &as_new(&real))
            .await
            .ok()
            .json();
        let name = object["metadata"]["name"].as_str().expect("a name");
        for (names, object) in self.names.iter_mut().zip([real, simulated]) {
            let uid = object["metadata"]["uid"].as_str().expect("a uid");
            names.record_names(uid, name);
        }
    }

    async fn merge(&self, path: &str, change: Value) {
        for client in &self.clients {
            client.merge(path, &change).await.ok();
        }
    }

    /// Changes objects so that they enter and leave every selector. At the end, creates objects
    /// with names that start with `last-`. Every selector matches one of them.
    async fn change(&mut self) {
        let maps = self.path("configmaps");
        self.create("configmaps", colored("second", "blue")).await;
        self.create("configmaps", colored("third", "red")).await;
        let colors = [
            ("first", "blue"),
            ("third", "green"),
            ("first", "red"),
            ("second", "red"),
        ];
        for (name, color) in colors {
            let change = json!({ "metadata": { "labels": { "color": color } } });
            self.merge(&format!("{maps}/{name}"), change).await;
        }
        let (first, data) = (format!("{maps}/first"), json!({ "data": { "text": null } }));
        self.merge(&first, data).await;
        for name in ["first", "second"] {
            for client in &self.clients {
                client.delete(&format!("{maps}/{name}")).await.ok();
            }
        }
        for color in ["red", "green"] {
            let last = format!("last-{color}");
            self.create("configmaps", colored(&last, color)).await;
        }
        for (name, color) in [("one", "blue"), ("two", "red")] {
            self.create("widgets", widget(name, color)).await;
            let path = format!("{}/{name}", self.path("widgets"));
            for color in ["red", "green"] {
                self.merge(&path, json!({ "spec": { "color": color } }))
                    .await;
            }
        }
        self.create("widgets", widget("last-red", "red")).await;
        for name in ["one", "last-one"] {
            let containers = json!([{ "name": "c", "image": "example.com/c" }]);
            let pod = json!({ "metadata": { "name": name }, "spec": { "containers": containers } });
            self.create("pods", pod).await;
            let path = format!("{}/{name}/status", self.path("pods"));
            for phase in ["Running", "Failed"] {
                self.merge(&path, json!({ "status": { "phase": phase } }))
                    .await;
            }
        }
    }
}

fn colored(name: &str, color: &str) -> Value {
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": { "name": name, "labels": { "all": "yes", "color": color } },
        "data": { "text": "<é&\u{2028}>" },
    })
}

fn widget(name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "example.kubefan.io/v1", "kind": "Widget",
        "metadata": { "name": name }, "spec": { "color": color, "size": 1 },
    })
}

/// Returns the frames of a stream up to the first frame with an object that has
/// a name starting with `last-`.
async fn up_to_the_last(mut body: Incoming) -> Vec<u8> {
    let mut text = Vec::new();
    loop {
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let mut from = 0;
        for (end, _) in ends {
            let line = String::from_utf8_lossy(&text[from..=end]);
            if line.contains("\"name\":\"last-") {
                text.truncate(end + 1);
                return text;
            }
            from = end + 1;
        }
        let frame = body.frame().await.expect("a last object").expect("a frame");
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
}
