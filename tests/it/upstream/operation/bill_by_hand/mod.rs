//! The bill with real clients, by hand: bad clients beside a good one, what is saved beside what
//! the same clients cost the API server directly, and many users. Each test prints a table. Run
//! them with a release build on a machine that is otherwise idle. They take about ten minutes:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/dist/kubefan cargo test --profile dist --package kubefan-cli \
//!     --test it upstream::operation::bill_by_hand -- --ignored --nocapture --test-threads=1
//! ```
//!
//! The clients are in this process, so it is built in the profile `dist`, too.

mod bad_clients;
mod many_users;
mod programs;
mod saved;

use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::kubefan::Kubefan;

/// How long something may take that is not measured.
const LIMIT: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The number of objects that are created concurrently.
const WRITERS: usize = 16;

/// Returns the page `name` of the admin API.
async fn page(kubefan: &Kubefan, name: &str) -> Value {
    let path = format!("/admin/v1/{name}");
    kubefan.admin().get(&path).await.ok().json()
}

/// Gives the users of a group the right to read all ConfigMaps.
async fn permit(server: &ApiServer, group: &str) {
    let role = json!({
        "metadata": { "name": group },
        "rules": [{
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch"],
        }],
    });
    let binding = json!({
        "metadata": { "name": group },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": group,
        },
        "subjects": [{ "kind": "Group", "name": group }],
    });
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("{RBAC}/{kind}");
        server.client().create(&path, &object).await.ok();
    }
}

/// Creates a namespace with these ConfigMaps.
async fn fill(server: &ApiServer, namespace: &str, objects: impl Iterator<Item = Value>) {
    let client = &server.client();
    let metadata = json!({ "metadata": { "name": namespace } });
    client.create("/api/v1/namespaces", &metadata).await.ok();
    let path = &format!("/api/v1/namespaces/{namespace}/configmaps");
    let created = objects.map(|object| async move {
        client.create(path, &object).await.ok();
    });
    stream::iter(created)
        .buffer_unordered(WRITERS)
        .collect::<()>()
        .await;
}

/// Returns the ConfigMap `object-NUMBER` with a text of `length` bytes. Its label `app` has the
/// value `app`.
fn config_map(number: usize, app: &str, length: usize) -> Value {
    json!({
        "metadata": { "name": format!("object-{number}"), "labels": { "app": app } },
        "data": { "text": "x".repeat(length) },
    })
}

/// Changes the text of the ConfigMap at `path`, once in `period`, until `end`. The text has a
/// number and `length` bytes.
async fn write(client: Client, path: String, length: usize, period: Duration, end: Instant) {
    let mut clock = interval(period);
    let mut number = 0_u64;
    while Instant::now() < end {
        clock.tick().await;
        number += 1;
        let text = format!("{number}{}", "x".repeat(length));
        let change = json!({ "data": { "text": text } });
        client.merge(&path, &change).await.ok();
    }
}

/// Reads `path` until a cache has answered.
async fn is_cached(client: &Client, path: &str) {
    eventually(path, LIMIT, async || {
        let answer = client.get(path).await.is(200)?;
        let status = answer.header("cache-status").unwrap_or_default();
        let is_hit = status.contains("hit");
        is_hit.then_some(()).ok_or_else(|| status.to_owned())
    })
    .await;
}
