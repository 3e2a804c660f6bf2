//! The examples that need an API server, run as their users run them.

use serde_json::json;

use crate::support::programs::apiserver::shared;
use crate::support::programs::example::Example;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn pod_watcher_prints_the_pods_and_their_changes() {
    let server = shared();
    let namespace = server.namespace("pod-watcher").await;
    let kubeconfig = server.kubeconfig("admin");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let mut example = Example::start("pod_watcher", &["--kubeconfig", kubeconfig]);
    let synced = example.line("the first list", |line| line.starts_with("synced with "));
    synced.await;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({
        "metadata": { "name": "watched" },
        "spec": {
            "nodeName": "pod-watcher-node",
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "none" }],
        },
    });
    server.client().create(&path, &pod).await.ok();
    let added = format!("added {namespace}/watched Pending");
    let on_node = "1 pods are on pod-watcher-node";
    // The handlers are called independently.
    let first = example.line("the pod", |line| line == added || line == on_node);
    let rest = match first.await == added {
        true => on_node.to_owned(),
        false => added,
    };
    example.line("the other handler", |line| line == rest).await;
    let pod = format!("{path}/watched?gracePeriodSeconds=0");
    server.client().delete(&pod).await.ok();
    let deleted = format!("deleted {namespace}/watched");
    let deleted = example.line("its deletion", |line| line.starts_with(&deleted));
    deleted.await;
    assert!(example.end("TERM").success());
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn metadata_only_counts_the_objects_of_a_namespace() {
    let server = shared();
    let namespace = server.namespace("metadata-only").await;
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    let create = async |name: &str| {
        let object = json!({ "metadata": { "name": name }, "stringData": { "key": "value" } });
        server.client().create(&path, &object).await.ok();
    };
    create("first").await;
    let kubeconfig = server.kubeconfig("admin");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let mut example = Example::start("metadata_only", &["--kubeconfig", kubeconfig, "secret"]);
    let mut count = async |line: &str| {
        let wanted = format!("{line}, {namespace} has ");
        let found = example.line(line, |line| line.starts_with(&wanted));
        let found = found.await;
        found[wanted.len()..].parse::<usize>().expect("a number")
    };
    assert_eq!(count(&format!("added {namespace}/first")).await, 1);
    create("second").await;
    assert_eq!(count(&format!("added {namespace}/second")).await, 2);
    server.client().delete(&format!("{path}/first")).await.ok();
    assert_eq!(count(&format!("deleted {namespace}/first")).await, 1);
    assert!(example.end("TERM").success());
}
