//! The library's shared informers against a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use kubefan::api::{GroupVersionResource, ResourceVersion, Selection};
use kubefan::shared_informer::{Change, Changes, Config, Factory, Storage};
use kubefan::shutdown::Shutdown;
use kubefan::upstream::{Client, ClientConfig};
use kubefan::{informer, shutdown};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, shared};

const STEP: Duration = Duration::from_secs(30);

/// Creates a factory of informers of `server`, like a program with the library.
async fn factory(server: &ApiServer, shutdown: &Shutdown) -> Factory {
    let config = ClientConfig {
        kubeconfig: Some(server.kubeconfig("admin")),
        ..ClientConfig::default()
    };
    let client = Client::connect(config).await.expect("a client");
    let started = Factory::start(client, informer::Config::default(), shutdown.clone());
    started.await.expect("discovery")
}

async fn next<K: serde::de::DeserializeOwned>(changes: &mut Changes<K>) -> Change<K> {
    let change = timeout(STEP, changes.next()).await;
    change
        .expect("a change in time")
        .expect("the informer runs")
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_program_shares_informers_and_reads_its_own_writes() {
    let server = shared();
    let namespace = server.namespace("library").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let shutdown = Shutdown::new(shutdown::Config::default());
    let factory = factory(server, &shutdown).await;
    let config = |storage| Config {
        selection: Selection {
            namespace: Some(namespace.clone()),
            ..Selection::default()
        },
        storage,
        ..Config::default()
    };
    let of = |storage| {
        factory
            .informer::<ConfigMap>(config(storage))
            .expect("an informer")
    };
    let (bytes, decoded) = (of(Storage::Bytes), of(Storage::Decoded));
    let key = |map: &ConfigMap| {
        map.data
            .iter()
            .flat_map(|data| data.keys().cloned())
            .collect()
    };
    bytes.add_index("keys", key).expect("a new index");
    assert!(
        timeout(STEP, factory.wait_for_cache_sync())
            .await
            .expect("in time")
    );
    for number in 0..3 {
        let name = format!("map-{number}");
        let object = json!({ "metadata": { "name": name }, "data": { (name.clone()): "x" } });
        let written = server.client().create(&path, &object).await.ok().json();
        let version = written["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(|version| version.parse().ok());
        let version = ResourceVersion(version.expect("a version"));
        for informer in [&bytes, &decoded] {
            let lister = informer.lister();
            assert!(lister.wait_for(version, Instant::now() + STEP).await);
            let found = lister.get(Some(&namespace), &name).expect("a config map");
            assert_eq!(found.expect("is there").metadata.name, Some(name.clone()));
        }
        // The factory returns the existing informer, with its index.
        let again = of(Storage::Bytes).lister();
        assert_eq!(again.by_index("keys", &name).expect("is an index").len(), 1);
    }
    let mut changes = decoded.changes();
    let mut names = Vec::new();
    while names.len() < 3 {
        let change = next(&mut changes).await;
        let name = change.object().metadata.name.clone();
        // A controller may have made another config map.
        names.extend(name.filter(|name| name.starts_with("map-")));
    }
    assert_eq!(names, ["map-0", "map-1", "map-2"]);
    server.client().delete(&format!("{path}/map-1")).await.ok();
    let deleted = loop {
        if let Change::Deleted(deleted) = next(&mut changes).await {
            break deleted;
        }
    };
    assert!(deleted.is_final_state_known);
    assert_eq!(deleted.object.metadata.name.as_deref(), Some("map-1"));
    shutdown.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_informer_of_a_custom_resource_survives_a_new_definition() {
    let server = shared();
    let direct = server.client();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let path = "/apis/library.kubefan.io/v1/visitors";
    let visitors = GroupVersionResource::new("library.kubefan.io", "v1", "visitors");
    let shutdown = Shutdown::new(shutdown::Config::default());
    let factory = factory(server, &shutdown).await;
    let informer = || factory.informer_of::<DynamicObject>(&visitors, Config::default());
    let error = informer().err().expect("there is no such resource yet");
    assert_eq!(
        error.to_string(),
        "there can be no informer of visitors.v1.library.kubefan.io"
    );
    direct.create(definitions, &definition()).await.ok();
    eventually("the resource", STEP, async || {
        informer().map_err(|error| error.to_string()).map(drop)
    })
    .await;
    let informer = informer().expect("an informer");
    let mut changes = informer.changes();
    for life in ["first", "second"] {
        let object = json!({
            "apiVersion": "library.kubefan.io/v1", "kind": "Visitor",
            "metadata": { "name": life },
        });
        eventually("an object", STEP, async || {
            direct.create(path, &object).await.is(201)
        })
        .await;
        let added = next(&mut changes).await;
        assert!(matches!(added, Change::Added { .. }), "{added:?}");
        assert_eq!(added.object().metadata.name.as_deref(), Some(life));
        let types = added
            .object()
            .types
            .as_ref()
            .map(|types| types.kind.as_str());
        assert_eq!(types, Some("Visitor"));
        let definition_path = format!("{definitions}/visitors.library.kubefan.io");
        direct.delete(&definition_path).await.ok();
        eventually("no resource", STEP, async || direct.get(path).await.is(404)).await;
        if life == "first" {
            direct.create(definitions, &definition()).await.ok();
            // If the watch ended before the deletion of the object, the next
            // cache reports the deletion.
            let deleted = next(&mut changes).await;
            assert!(matches!(deleted, Change::Deleted(_)), "{deleted:?}");
            assert_eq!(deleted.object().metadata.name.as_deref(), Some(life));
        }
    }
    shutdown.drain().await;
}

fn definition() -> Value {
    json!({
        "metadata": { "name": "visitors.library.kubefan.io" },
        "spec": {
            "group": "library.kubefan.io", "scope": "Cluster",
            "names": { "plural": "visitors", "singular": "visitor", "kind": "Visitor" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    })
}
