//! A program with the library that has exactly the rights of its informers.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use kubefan::api::GroupVersionResource;
use kubefan::shared_informer::{Config, Factory};
use kubefan::shutdown::Shutdown;
use kubefan::upstream::{Client, ClientConfig};
use kubefan::{informer, shutdown};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, READER, private};

const STEP: Duration = Duration::from_secs(60);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PARCELS: &str = "/apis/rights.kubefan.io/v1/namespaces/default/parcels";

/// Allows the user `reader` to list and watch Pods and parcels, and nothing else.
async fn grant(server: &ApiServer) {
    let admin = server.client();
    let role = json!({
        "metadata": { "name": "controller" },
        "rules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"] },
            { "apiGroups": ["rights.kubefan.io"], "resources": ["parcels"], "verbs": ["list", "watch"] },
        ],
    });
    let path = format!("{RBAC}/clusterroles");
    admin.create(&path, &role).await.ok();
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "controller" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "controller" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "reader" }],
    });
    let path = format!("{RBAC}/clusterrolebindings");
    admin.create(&path, &binding).await.ok();
}

fn definition() -> Value {
    json!({
        "metadata": { "name": "parcels.rights.kubefan.io" },
        "spec": {
            "group": "rights.kubefan.io", "scope": "Namespaced",
            "names": { "plural": "parcels", "singular": "parcel", "kind": "Parcel" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_program_needs_only_list_and_watch_of_what_it_names() {
    let server = private().await;
    grant(&server).await;
    let program = server.client().as_token(READER);
    for path in [SERVICES, DEFINITIONS, "/api/v1/configmaps"] {
        assert_eq!(program.get(path).await.status, 403, "{path}");
    }
    let config = ClientConfig {
        kubeconfig: Some(server.kubeconfig("reader")),
        ..ClientConfig::default()
    };
    let client = Client::connect(config).await.expect("a client");
    let shutdown = Shutdown::new(shutdown::Config::default());
    let started = Factory::start(client, informer::Config::default(), shutdown.clone());
    let factory = started.await.expect("discovery");
    let pods = factory.informer::<Pod>(Config::default());
    assert!(pods.expect("an informer").synced().await);

    // The definition comes later.
    let parcels = GroupVersionResource::new("rights.kubefan.io", "v1", "parcels");
    let early = factory.informer_of::<DynamicObject>(&parcels, Config::default());
    assert!(early.is_err(), "there is no such resource yet");
    let mut waiting = Box::pin(factory.wait_for_resource(&parcels));
    let early = timeout(Duration::ZERO, &mut waiting).await;
    assert!(early.is_err(), "there is no such resource yet");
    server
        .client()
        .create(DEFINITIONS, &definition())
        .await
        .ok();
    let waited = timeout(STEP, waiting).await;
    waited.expect("in time").expect("it can be cached");
    let informer = factory.informer_of::<DynamicObject>(&parcels, Config::default());
    let informer = informer.expect("an informer");
    let synced = timeout(STEP, informer.synced()).await;
    assert!(synced.expect("in time"));
    let object = json!({
        "apiVersion": "rights.kubefan.io/v1", "kind": "Parcel", "metadata": { "name": "first" },
    });
    eventually("the parcel", STEP, async || {
        let made = server.client().create(PARCELS, &object).await;
        let is_there = made.status == 201 || made.status == 409;
        is_there
            .then_some(())
            .ok_or_else(|| made.status.to_string())
    })
    .await;
    let lister = informer.lister();
    eventually("the cached parcel", STEP, async || {
        let found = lister.get(Some("default"), "first");
        let found = found.map_err(|error| error.to_string())?;
        found.map(drop).ok_or_else(|| "it is missing".to_owned())
    })
    .await;
    shutdown.drain().await;
}
