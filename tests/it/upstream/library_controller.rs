//! The library's controllers against a real API server: finalizers, and the example
//! `namespace_configmap` as a program, with restarts and two candidates for its Lease.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kubefan::controller::{Action, Finalize, FinalizerError, finalizer};
use kubefan::upstream;
use kubefan::upstream::ClientConfig;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, private, shared};
use crate::support::programs::example::built;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::process::Process;

const STEP: Duration = Duration::from_secs(30);
/// A Lease of 15 s, which is seen up to 4.4 s after the start, and taken up to 4.4 s after its end.
const TAKEOVER: Duration = Duration::from_secs(60);
const EXAMPLE: &str = "namespace_configmap";
const NAME: &str = "kubefan-example";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/kubefan-example";

fn start(program: &Path, server: &ApiServer) -> Process {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(server.kubeconfig("admin"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Process::start(command.stderr(Stdio::null()), None)
}

/// Sends SIGTERM, and expects exit code 0.
fn stop(mut process: Process) {
    process.signal("TERM");
    let status = process.wait(STEP).expect("it ends after SIGTERM");
    assert_eq!(status.code(), Some(0));
}

/// Changes labels of a namespace; `null` removes one.
async fn label(client: &Client, namespace: &str, labels: Value) {
    let change = json!({ "metadata": { "labels": labels } });
    let path = format!("/api/v1/namespaces/{namespace}");
    client.merge(&path, &change).await.ok();
}

fn map_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{NAME}")
}

/// Waits until the ConfigMap has the data `expected`, and the data of the
/// labels that all namespaces have.
async fn has_map(client: &Client, namespace: &str, mut expected: Value, limit: Duration) {
    expected[NAME] = "true".into();
    expected["kubernetes.io.metadata.name"] = namespace.into();
    eventually("the config map", limit, async || {
        let map = client.get(&map_path(namespace)).await.is(200)?.json();
        match map["data"] == expected {
            true => Ok(()),
            false => Err(format!("{} is not {expected}", map["data"])),
        }
    })
    .await;
}

async fn has_no_map(client: &Client, namespace: &str, limit: Duration) {
    eventually("no config map", limit, async || {
        client.get(&map_path(namespace)).await.is(404)
    })
    .await;
}

async fn holder(client: &Client) -> String {
    let lease = client.get(LEASE).await.ok().json();
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.unwrap_or_default().to_owned()
}

#[test]
fn the_config_map_example_refuses_unknown_arguments() {
    let program = built(EXAMPLE);
    for arguments in [
        vec!["--kubeconfig=other"],
        vec!["--context", "other"],
        vec!["other"],
    ] {
        let mut command = Command::new(&program);
        let command = command.args(&arguments).env("KUBECONFIG", "/dev/null");
        let output = command.output().expect("the example runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(
            error.contains("usage: namespace_configmap"),
            "{arguments:?}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_config_map_example_follows_labels_through_restarts_and_elections() {
    let server = shared();
    let direct = server.client();
    let program = tokio::task::block_in_place(|| built(EXAMPLE));
    let a = server.namespace("example").await;
    let b = server.namespace("example").await;
    let on = json!({ "kubefan-example": "true", "example.com/team": "blue" });
    label(&direct, &a, on.clone()).await;
    let blue = json!({ "example.com.team": "blue" });
    let green = json!({ "example.com.team": "green" });

    let mut first = start(&program, server);
    has_map(&direct, &a, blue.clone(), TAKEOVER).await;
    has_no_map(&direct, &b, Duration::ZERO).await;
    label(&direct, &b, on.clone()).await;
    has_map(&direct, &b, blue.clone(), STEP).await;
    label(&direct, &a, json!({ "example.com/team": "green" })).await;
    has_map(&direct, &a, green.clone(), STEP).await;
    // Changes of the map by others are undone.
    direct.delete(&map_path(&a)).await.ok();
    has_map(&direct, &a, green.clone(), STEP).await;
    let foreign = json!({ "data": { "foreign": "yes" } });
    direct.merge(&map_path(&a), &foreign).await.ok();
    has_map(&direct, &a, green.clone(), STEP).await;
    label(&direct, &b, json!({ "kubefan-example": null })).await;
    has_no_map(&direct, &b, STEP).await;

    // Changes while the program is dead are found at the next start.
    first.kill();
    label(&direct, &a, json!({ "kubefan-example": "false" })).await;
    label(&direct, &b, on).await;
    let dead = holder(&direct).await;
    let second = start(&program, server);
    has_map(&direct, &b, blue.clone(), TAKEOVER).await;
    has_no_map(&direct, &a, STEP).await;
    let leader = holder(&direct).await;
    assert_ne!(leader, dead);

    // The second candidate waits, and takes over when the first one ends.
    let third = start(&program, server);
    stop(second);
    label(&direct, &a, json!({ "kubefan-example": "true" })).await;
    has_map(&direct, &a, green, STEP).await;
    assert_ne!(holder(&direct).await, leader);
    stop(third);
    assert_eq!(holder(&direct).await, "", "the lease is given back");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_config_map_example_works_through_the_kubefan_of_its_kubeconfig() {
    // The shared API server has other candidates for the Lease.
    let server = private().await;
    let direct = server.client();
    let namespace = server.namespace("through").await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let program = tokio::task::block_in_place(|| built(EXAMPLE));
    let mut command = Command::new(program);
    command.env("KUBECONFIG", kubefan.kubeconfig(&User::Anonymous));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let process = Process::start(command.stderr(Stdio::null()), None);
    let on = |team: &str| json!({ "kubefan-example": "true", "example.com/team": team });
    for team in ["blue", "green"] {
        label(&direct, &namespace, on(team)).await;
        let data = json!({ "example.com.team": team });
        has_map(&direct, &namespace, data, TAKEOVER).await;
    }
    direct.delete(&map_path(&namespace)).await.ok();
    let data = json!({ "example.com.team": "green" });
    has_map(&direct, &namespace, data, STEP).await;
    label(&direct, &namespace, json!({ "kubefan-example": "no" })).await;
    has_no_map(&direct, &namespace, STEP).await;
    assert_ne!(holder(&direct).await, "");
    stop(process);
    assert_eq!(holder(&direct).await, "", "the lease is given back");
    let metrics = kubefan.metrics().await;
    for (outcome, verb, least) in [
        ("cache", "watch", 2.0),
        ("forwarded", "create", 3.0),
        ("forwarded", "update", 2.0),
        ("forwarded", "delete", 1.0),
    ] {
        let count = request_count(&metrics, outcome, verb);
        assert!(count >= least, "{outcome} {verb}: {count}");
    }
}

const FINALIZER: &str = "kubefan.io/test";

/// Reconciles `map`, and returns what was to be done.
async fn finalize(
    api: &Api<ConfigMap>,
    map: ConfigMap,
) -> Result<&'static str, FinalizerError<io::Error>> {
    let mut done = "nothing";
    let reconcile = |step: Finalize<ConfigMap>| {
        done = match &step {
            Finalize::Apply(map) => {
                let finalizers = map.metadata.finalizers.as_ref().expect("it was added");
                assert!(finalizers.contains(&FINALIZER.to_owned()));
                "apply"
            }
            Finalize::Cleanup(_) => "cleanup",
        };
        async { Ok::<_, io::Error>(Action::Done) }
    };
    finalizer(api, FINALIZER, map, reconcile).await?;
    Ok(done)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_finalizer_holds_an_object_until_its_cleanup() {
    let server = shared();
    let namespace = server.namespace("finalizer").await;
    let config = ClientConfig {
        kubeconfig: Some(server.kubeconfig("admin")),
        ..ClientConfig::default()
    };
    let client = upstream::Client::connect(config).await.expect("a client");
    let api = Api::<ConfigMap>::namespaced(client.to_kube(), &namespace);
    let get = async || api.get_opt("map").await.expect("an answer");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("map".to_owned());
    map.metadata.finalizers = Some(vec!["kubefan.io/other".to_owned()]);
    let created = api.create(&PostParams::default(), &map).await;
    let created = created.expect("the map is created");

    assert_eq!(
        finalize(&api, created.clone()).await.expect("added"),
        "apply"
    );
    // A reconcile of an old version changes nothing.
    let refused = finalize(&api, created).await.expect_err("a conflict");
    let is_conflict =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 409);
    assert!(
        matches!(&refused, FinalizerError::Add(error) if is_conflict(error)),
        "{refused:?}"
    );
    let present = get().await.expect("it is there");
    let both = ["kubefan.io/other", FINALIZER].map(str::to_owned);
    assert_eq!(present.metadata.finalizers.as_deref(), Some(&both[..]));
    assert_eq!(finalize(&api, present).await.expect("present"), "apply");

    let deleted = api.delete("map", &DeleteParams::default()).await;
    deleted.expect("the deletion begins");
    let deleting = get().await.expect("the finalizer holds it");
    assert_eq!(finalize(&api, deleting).await.expect("removed"), "cleanup");
    let mut rest = get().await.expect("the other finalizer holds it");
    assert_eq!(rest.metadata.finalizers.as_deref(), Some(&both[..1]));
    assert_eq!(finalize(&api, rest.clone()).await.expect("done"), "nothing");
    // If the object is gone at the removal, the cleanup was successful.
    rest.metadata.finalizers = None;
    let last = api.replace("map", &PostParams::default(), &rest).await;
    let mut last = last.expect("the other finalizer is removed");
    assert!(get().await.is_none());
    last.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    assert_eq!(finalize(&api, last).await.expect("gone"), "cleanup");
}
