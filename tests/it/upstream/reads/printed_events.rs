//! Tables of Events, and what kubectl prints of them.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::printed_tables::{is_cached, table};
use crate::support::clients::client::{Answer, Client};
use crate::support::events::{collections, create_event, event, fill_caches};
use crate::support::normalise::normalise;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::{CommandOutput, Kubectl};
use crate::support::programs::kubefan::Kubefan;
use crate::upstream::differential::comparable_body;

const LIMIT: Duration = Duration::from_secs(60);
const ANY: [&str; 2] = ["--freshness", "any"];
const COMMANDS: [&str; 10] = [
    "get events",
    "get events -o wide",
    "get events -o yaml",
    "get events --field-selector involvedObject.name=web",
    "get events --field-selector type!=Normal,source=kubelet",
    "get events --sort-by=.metadata.name --chunk-size=2",
    "get events.events.k8s.io --field-selector regarding.name=web",
    "get event failed",
    "events --for pod/web",
    "describe pod web",
];

/// Creates a pod and Events about it and about another object. Returns the paths of both groups.
async fn fill_namespace(server: &ApiServer, namespace: &str) -> [String; 2] {
    let client = server.client();
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/web" }] },
    });
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let uid = client.create(&pods, &pod).await.ok().json()["metadata"]["uid"].take();
    let [core, newer] = collections(namespace);
    for (name, kind, change) in [
        ("pulled", "Normal", json!({ "count": 1 })),
        (
            "failed",
            "Warning",
            json!({ "count": 3, "reason": "BackOff" }),
        ),
        ("plain", "Normal", json!({ "source": { "host": "n1" } })),
    ] {
        let mut made = event(namespace, name, "web");
        made["involvedObject"]["uid"] = uid.clone();
        made["involvedObject"]["fieldPath"] = json!("spec.containers{main}");
        made["type"] = json!(kind);
        made["firstTimestamp"] = json!("2026-01-01T00:00:00Z");
        made["lastTimestamp"] = json!("2026-01-01T00:10:00Z");
        let changes = change.as_object().expect("an object").clone();
        made.as_object_mut().expect("an object").extend(changes);
        client.create(&core, &made).await.ok();
    }
    create_event(&client, namespace, "other", "y").await;
    let scheduled = json!({
        "metadata": { "name": "scheduled" }, "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Binding", "reason": "Scheduled", "note": "a node was found", "type": "Normal",
        "reportingController": "scheduler", "reportingInstance": "scheduler-0",
        "regarding": { "kind": "Pod", "namespace": namespace, "name": "web", "uid": uid },
        "series": { "count": 2, "lastObservedTime": "2026-01-01T00:10:00.000000Z" },
    });
    client.create(&newer, &scheduled).await.ok();
    [core, newer]
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn tables_of_events_equal_the_api_servers() {
    let server = shared();
    let namespace = server.namespace("event-tables").await;
    let [core, newer] = fill_namespace(server, &namespace).await;
    let kubefan = Kubefan::start(server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    fill_caches(&through, &namespace).await;
    printed(&through, &core).await;
    for query in [
        "",
        "&includeObject=None",
        "&includeObject=Object",
        "&limit=2",
        "&fieldSelector=involvedObject.name%3Dweb",
        "&fieldSelector=source%3Dkubelet",
    ] {
        let target = format!("{core}?resourceVersion=0{query}");
        let got = table(&through, &target).await;
        assert!(is_cached(&got), "{target}");
        assert_same(&target, &got, &table(&direct, &target).await);
    }
    // kubefan prints no Tables of the newer group.
    let target = format!("{newer}?resourceVersion=0");
    let got = table(&through, &target).await;
    assert!(!is_cached(&got), "{target}");
    assert_same(&target, &got, &table(&direct, &target).await);
}

/// Reads Tables at version 0 until kubefan answers one from its cache.
async fn printed(through: &Client, path: &str) {
    let target = format!("{path}?resourceVersion=0");
    eventually(&target, LIMIT, async || {
        match is_cached(&table(through, &target).await) {
            true => Ok(()),
            false => Err("forwarded"),
        }
    })
    .await;
}

fn assert_same(target: &str, got: &Answer, wanted: &Answer) {
    let rows = wanted.json()["rows"].as_array().map_or(0, Vec::len);
    assert!(rows > 1, "{target}: {rows} rows");
    assert_eq!(
        comparable_body(target, got),
        comparable_body(target, wanted),
        "{target}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kubectl_prints_events_as_from_the_api_server() {
    let server = shared();
    let namespace = server.namespace("kubectl-events").await;
    let [core, _] = fill_namespace(server, &namespace).await;
    let kubectl = |kubeconfig: &Path| Kubectl::new(server.assets(), kubeconfig, &namespace);
    let direct = kubectl(&server.kubeconfig("admin"));
    let mut wanted = Vec::new();
    for command in COMMANDS {
        let output = shown(&direct, command).await;
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
        wanted.push(output);
    }
    let policies: [&[&str]; 2] = [&[], &ANY];
    for flags in policies {
        let kubefan = Kubefan::start(server, flags).await;
        let through = kubectl(&kubefan.kubeconfig(&User::Anonymous));
        // The first round finds no cache, the second one filled caches.
        for round in 0..2 {
            let before = cached_lists(&kubefan).await;
            for (command, wanted) in COMMANDS.iter().zip(&wanted) {
                let got = shown(&through, command).await;
                assert_eq!(got, *wanted, "{command} with {flags:?} in round {round}");
            }
            let cached = cached_lists(&kubefan).await - before;
            assert!(
                cached >= 6.0 || flags.is_empty() || round == 0,
                "{cached} lists came from the cache"
            );
            fill_caches(&kubefan.client(), &namespace).await;
            printed(&kubefan.client(), &core).await;
        }
    }
}

async fn cached_lists(kubefan: &Kubefan) -> f64 {
    request_count(&kubefan.metrics().await, "cache", "list")
}

/// Runs a command, and masks in its output what differs between two runs.
async fn shown(kubectl: &Kubectl, command: &str) -> CommandOutput {
    let arguments: Vec<_> = command.split(' ').map(str::to_owned).collect();
    let output = kubectl.run(&arguments).await;
    CommandOutput {
        stdout: normalise(&output.stdout, &[]),
        stderr: normalise(&output.stderr, &[]),
        code: output.code,
    }
}
