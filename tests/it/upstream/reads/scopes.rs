//! Caches of some objects of a resource, as the configuration limits them: reads that
//! select only cached objects are answered, all others are forwarded, and both are
//! answered as by the API server.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format};
use crate::support::outcomes::request_count;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ApiServer, READER, shared};
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(60);

/// Starts a kubefan with this text as its configuration file. Its environment has `NODE_NAME`.
async fn kubefan(server: &ApiServer, user: &str, text: &str, node: &str) -> Kubefan {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kubefan.yaml");
    fs::write(&path, text).expect("a written file");
    let path = path.to_str().expect("UTF-8");
    let kubeconfig = server.kubeconfig(user);
    let environment = [("NODE_NAME", node)];
    Kubefan::start_with_environment(&kubeconfig, &["--config", path], &environment).await
}

/// Sends the GET to both, and checks that the answers are equal, and
/// which side gave kubefan's answer.
async fn same(direct: &Client, kubefan: &Kubefan, verb: &str, path: &str, expected: &str) {
    let count = async || {
        let metrics = kubefan.metrics().await;
        ["cache", "forwarded"].map(|outcome| request_count(&metrics, outcome, verb))
    };
    let before = count().await;
    let through = kubefan.client().get(path).await;
    let [cache, forwarded] = count().await;
    let by = match [cache - before[0], forwarded - before[1]] {
        [1.0, 0.0] => "cache",
        [0.0, 1.0] => "forwarded",
        other => panic!("{path}: {other:?}"),
    };
    assert_eq!(by, expected, "{path}");
    let direct = direct.get(path).await;
    assert_eq!(through.status, direct.status, "{path}");
    // The versions of lists differ if other tests write in between.
    let comparable = |body: &Bytes| {
        let mut body: serde_json::Value = serde_json::from_slice(body).expect("JSON");
        if body.get("items").is_some() {
            body["metadata"] = json!(null);
        }
        body
    };
    assert_eq!(
        comparable(&through.body),
        comparable(&direct.body),
        "{path}"
    );
}

fn pod(name: &str, node: &str) -> serde_json::Value {
    let container = json!({ "name": "main", "image": "none" });
    json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [container] } })
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_node_caches_its_pods_and_forwards_reads_of_others() {
    let server = shared();
    let direct = server.client();
    let namespace = server.namespace("node-scope").await;
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let node = format!("{namespace}-here");
    for (name, node) in [("a", node.as_str()), ("b", "elsewhere"), ("c", &node)] {
        direct.create(&pods, &pod(name, node)).await.ok();
    }
    let text = "cache:\n  resources:\n    - {resource: pods, fieldSelector: spec.nodeName=$(NODE_NAME)}\n    \
                - {resource: nodes, fieldSelector: metadata.name=$(NODE_NAME), onDemand: true}\n  \
                never: [configmaps]\n";
    let kubefan = kubefan(server, "admin", text, &node).await;
    let metrics = kubefan.metrics().await;
    let objects = format!(
        "kubefan_cache_objects{{group=\"\",version=\"v1\",resource=\"pods\",format=\"json\",\
         namespace=\"\",field_selector=\"spec.nodeName={node}\"}} 2\n"
    );
    assert!(metrics.contains(&objects), "{metrics}");
    let ready = kubefan.admin().get("/readyz?verbose").await;
    let ready = String::from_utf8_lossy(&ready.body).into_owned();
    let line = format!("[+]pods.v1 json fields spec.nodeName={node}: 2 objects");
    assert!(ready.contains(&line), "{ready}");

    let here = format!("fieldSelector=spec.nodeName%3D{node}");
    for (verb, path, expected) in [
        ("list", format!("/api/v1/pods?{here}"), "cache"),
        (
            "list",
            format!("/api/v1/pods?{here}&resourceVersion=0"),
            "cache",
        ),
        ("list", format!("{pods}?{here},metadata.name%3Da"), "cache"),
        (
            "list",
            format!("{pods}?{here}&labelSelector=nosuch"),
            "cache",
        ),
        ("list", pods.clone(), "forwarded"),
        ("list", format!("{pods}?resourceVersion=0"), "forwarded"),
        (
            "list",
            format!("{pods}?fieldSelector=spec.nodeName!%3D{node}"),
            "forwarded",
        ),
        (
            "list",
            format!("{pods}?fieldSelector=metadata.name%3Da"),
            "forwarded",
        ),
        ("get", format!("{pods}/a?resourceVersion=0"), "cache"),
        // The cache does not know whether these exist.
        ("get", format!("{pods}/b?resourceVersion=0"), "forwarded"),
        (
            "get",
            format!("{pods}/nosuch?resourceVersion=0"),
            "forwarded",
        ),
        ("get", format!("{pods}/a"), "forwarded"),
        (
            "list",
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            "forwarded",
        ),
    ] {
        same(&direct, &kubefan, verb, &path, expected).await;
    }
    // A read after a write sees the write. Proofs are of the cached objects.
    for number in 0..5 {
        let name = format!("after-{number}");
        direct.create(&pods, &pod(&name, &node)).await.ok();
        same(
            &direct,
            &kubefan,
            "list",
            &format!("{pods}?{here}"),
            "cache",
        )
        .await;
        direct
            .delete(&format!("{pods}/{name}?gracePeriodSeconds=0"))
            .await
            .ok();
        same(
            &direct,
            &kubefan,
            "list",
            &format!("{pods}?{here}"),
            "cache",
        )
        .await;
    }
}

/// The reader may read only config maps of one namespace, so nothing
/// else is asked of the API server.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watches_of_a_scope_get_what_enters_and_leaves_it_as_directly() {
    let server = shared();
    let direct = server.client();
    let namespace = server.namespace("label-scope").await;
    let other = server.namespace("label-scope").await;
    for namespace in [&namespace, &other] {
        let verbs = ["get", "list", "watch"];
        server
            .allow_reader(namespace, &verbs, &["configmaps"])
            .await;
    }
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let side = |name: &str, side: &str, tier: &str| json!({ "metadata": { "name": name, "labels": { "side": side, "tier": tier } } });
    let first = direct
        .create(&path, &side("first", "a", "x"))
        .await
        .ok()
        .json();
    let from = first["metadata"]["resourceVersion"]
        .as_str()
        .expect("an RV")
        .to_owned();
    let write = async |round: usize| {
        let name = format!("second-{round}");
        let object = format!("{path}/{name}");
        direct.create(&path, &side(&name, "b", "x")).await.ok();
        for (to, tier) in [
            ("a", "x"),
            ("a", "y"),
            ("a", "x"),
            ("b", "x"),
            ("a", "y"),
            ("a", "x"),
        ] {
            direct.merge(&object, &side(&name, to, tier)).await.ok();
        }
        direct.delete(&object).await.ok();
    };
    // The first events are in no log when kubefan starts: a bridge has them.
    write(0).await;
    let text = format!(
        "cache:\n  resources:\n    - resource: configmaps\n      namespaces: [{namespace}, {other}]\n      \
         labelSelector: side in (a,c)\n"
    );
    let kubefan = kubefan(server, "reader", &text, "").await;
    let reader = server.client().as_token(READER);
    same(
        &reader,
        &kubefan,
        "list",
        &format!("{path}?labelSelector=side%3Da"),
        "cache",
    )
    .await;
    same(
        &reader,
        &kubefan,
        "list",
        &format!("{path}?labelSelector=side"),
        "forwarded",
    )
    .await;
    let mut writes = 1;
    for format in [Format::Json, Format::Protobuf] {
        for (selector, events) in [("side%3Da", 7), ("side%3Da,tier%3Dx", 6)] {
            let watch = format!("{path}?watch=1&resourceVersion={from}&labelSelector={selector}");
            let open = async |client: Client| client.watch(&watch, format).await.expect("a stream");
            let mut streams = [open(direct.clone()).await, open(kubefan.client()).await];
            write(writes).await;
            writes += 1;
            for _ in 0..writes * events {
                let [expected, found] = &mut streams;
                let expected = within(&watch, STEP, expected.next_frame()).await;
                let expected = expected.expect("a stream").expect("an event");
                let found = within(&watch, STEP, found.next_frame()).await;
                let found = found.expect("a stream").expect("an event");
                assert_eq!(found, expected, "{watch}");
                assert!(!matches!(found.0, Event::Error { .. }), "{found:?}");
            }
        }
    }
    let metrics = kubefan.metrics().await;
    assert_eq!(
        request_count(&metrics, "forwarded", "watch"),
        0.0,
        "{metrics}"
    );
}
