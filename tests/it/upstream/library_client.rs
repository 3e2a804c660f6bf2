//! The library with one client for caches and writes, made from a kubeconfig or from a
//! `kube::Client`, against a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use kubefan::api::ResourceVersion;
use kubefan::shared_informer::{Config, Factory};
use kubefan::shutdown::Shutdown;
use kubefan::upstream::{Client, ClientConfig};
use kubefan::{informer, shutdown};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::programs::apiserver::{ApiServer, shared};

const STEP: Duration = Duration::from_secs(30);

async fn kube_client(server: &ApiServer) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig("admin")).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    kube::Client::try_from(config.expect("a config")).expect("a client")
}

/// Writes with `writer`, and reads each write from an informer of `source`.
async fn reads_its_own_writes(source: impl Into<Client>, writer: kube::Client, namespace: &str) {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let started = Factory::start(source, informer::Config::default(), shutdown.clone());
    let factory = started.await.expect("discovery");
    let maps = factory.informer::<ConfigMap>(Config::default());
    let maps = maps.expect("an informer");
    let synced = timeout(STEP, maps.synced()).await;
    assert!(synced.expect("in time"));
    let api = Api::<ConfigMap>::namespaced(writer, namespace);
    let lister = maps.lister();
    let cached = async |written: &ConfigMap| {
        let version: ResourceVersion = written
            .resource_version()
            .expect("a version")
            .parse()
            .expect("a number");
        assert!(lister.wait_for(version, Instant::now() + STEP).await);
        let found = lister.get(Some(namespace), "written");
        found.expect("a config map").map(|found| (*found).clone())
    };
    let new = json!({ "metadata": { "name": "written" }, "data": { "round": "0" } });
    let new = serde_json::from_value(new).expect("a config map");
    let written = api.create(&PostParams::default(), &new).await;
    let written = written.expect("it is created");
    assert_eq!(cached(&written).await, Some(written));
    let params = PatchParams::default();
    for round in 1..=5 {
        let patch = Patch::Merge(json!({ "data": { "round": round.to_string() } }));
        let patched = api.patch("written", &params, &patch).await;
        let patched = patched.expect("it is patched");
        assert_eq!(cached(&patched).await, Some(patched));
    }
    let missing = api.get("missing").await.expect_err("there is none");
    assert!(matches!(missing, kube::Error::Api(status) if status.code == 404));
    shutdown.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn informers_of_a_kube_client_show_its_writes() {
    let server = shared();
    let namespace = server.namespace("kube-client").await;
    let client = kube_client(server).await;
    reads_its_own_writes(client.clone(), client, &namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_kubeconfigs_client_also_writes() {
    let server = shared();
    let namespace = server.namespace("to-kube").await;
    let config = ClientConfig {
        kubeconfig: Some(server.kubeconfig("admin")),
        ..ClientConfig::default()
    };
    let client = Client::connect(config).await.expect("a client");
    let writer = client.to_kube();
    reads_its_own_writes(client, writer, &namespace).await;
}
