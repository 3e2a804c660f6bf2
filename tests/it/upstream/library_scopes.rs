//! The scopes of the library's informers against a real API server: what their caches hold.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kubefan::api::{GroupVersionResource, Selection};
use kubefan::informer::{Hooks, InformerSet, LiveRestMapper, ObjectContent};
use kubefan::manager::Manager;
use kubefan::shared_informer::{Config, Factory, SharedInformer};
use kubefan::shutdown::Shutdown;
use kubefan::upstream::{Client, ClientConfig};
use kubefan::{informer, shutdown};
use serde_json::json;
use tokio::time::timeout;

use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, shared};

const STEP: Duration = Duration::from_secs(30);

/// Creates a factory with informers that stop soon after their last user. Returns the
/// factory, and the caches below it.
async fn factory(server: &ApiServer, user: &str, shutdown: &Shutdown) -> (Factory, InformerSet) {
    let config = ClientConfig {
        kubeconfig: Some(server.kubeconfig(user)),
        ..ClientConfig::default()
    };
    let client = Client::connect(config).await.expect("a client");
    let mapper = LiveRestMapper::discover(client.clone()).await;
    let config = informer::Config {
        idle_timeout: Duration::from_millis(100),
        ..informer::Config::default()
    };
    let informers = InformerSet::new(client, config, shutdown.clone());
    let mapper = Arc::new(mapper.expect("discovery"));
    let factory = Factory::new(informers.clone(), mapper, shutdown.clone());
    (factory, informers)
}

fn config(selection: Selection) -> Config {
    Config {
        selection,
        ..Config::default()
    }
}

/// Returns the names of the objects that the informer shows when it has synced.
async fn names<K>(informer: &SharedInformer<K>) -> Vec<String>
where
    K: kube::Resource + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let synced = timeout(STEP, informer.synced()).await;
    assert!(synced.expect("in time"));
    let objects = informer.lister().list();
    objects.iter().map(|object| object.name_any()).collect()
}

/// Returns the keys of all objects in each running cache, sorted.
fn cached(informers: &InformerSet) -> Vec<Vec<String>> {
    let keys = |informer: Arc<informer::Informer>| {
        let snapshot = informer.reader().snapshot().expect("a list");
        let everything = Selection::default();
        let objects = snapshot.list(&everything, None);
        objects.map(|object| object.key.to_string()).collect()
    };
    let mut cached: Vec<Vec<String>> = informers.all().into_iter().map(keys).collect();
    cached.sort_unstable();
    cached
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn caches_hold_only_what_their_informers_select() {
    let server = shared();
    let namespace = server.namespace("scopes").await;
    let base = format!("/api/v1/namespaces/{namespace}");
    for (resource, name, label, kind) in [
        ("configmaps", "a", "x", ""),
        ("configmaps", "b", "y", ""),
        ("configmaps", "c", "x", ""),
        ("secrets", "plain", "x", "Opaque"),
        ("secrets", "special", "x", "example.com/special"),
    ] {
        let mut object = json!({ "metadata": { "name": name, "labels": { "app": label } } });
        if resource == "secrets" {
            object["type"] = kind.into();
        }
        let path = format!("{base}/{resource}");
        server.client().create(&path, &object).await.ok();
    }
    let shutdown = Shutdown::new(shutdown::Config::default());
    let (factory, informers) = factory(server, "admin", &shutdown).await;
    let select = |resource: &str, labels: &str, fields: &str| {
        let gvr = GroupVersionResource::new("", "v1", resource);
        let selection = factory.selection(&gvr, Some(&namespace), labels, fields);
        config(selection.expect("selectors"))
    };
    let key = |name: &str| format!("{namespace}/{name}");

    let x = factory.informer::<ConfigMap>(select("configmaps", "app=x", ""));
    let x = x.expect("an informer");
    assert_eq!(names(&x).await, ["a", "c"]);
    assert_eq!(cached(&informers), [[key("a"), key("c")]]);
    // This selection is contained in the first one, so this informer reads
    // from the first informer's cache.
    let a = factory.informer::<ConfigMap>(select("configmaps", "app=x", "metadata.name=a"));
    let a = a.expect("an informer");
    assert_eq!(names(&a).await, ["a"]);
    assert_eq!(informers.all().len(), 1);

    let special = factory.informer::<Secret>(select("secrets", "", "type=example.com/special"));
    let special = special.expect("an informer");
    assert_eq!(names(&special).await, ["special"]);
    assert_eq!(
        cached(&informers),
        [vec![key("a"), key("c")], vec![key("special")]]
    );

    let gvr = GroupVersionResource::new("", "v1", "configmaps");
    let metadata = factory.metadata_informer(&gvr, select("configmaps", "app=y", ""));
    let metadata = metadata.expect("an informer");
    assert_eq!(names(&metadata).await, ["b"]);
    let mut all = informers.all().into_iter();
    let cache = all.find(|informer| informer.content() == ObjectContent::Metadata);
    let cache = cache.expect("a cache of metadata");
    let labelled = cache.scope().labels.to_string();
    assert_eq!(labelled, "app=y");

    // Each cache ends after its last user.
    drop((x, special, metadata, cache, all));
    eventually("one cache", STEP, async || match informers.all().len() {
        1 => Ok(()),
        count => Err(format!("{count} caches")),
    })
    .await;
    assert_eq!(names(&a).await, ["a"]);
    drop(a);
    eventually("no cache", STEP, async || match informers.all().len() {
        0 => Ok(()),
        count => Err(format!("{count} caches")),
    })
    .await;
    shutdown.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_rights_for_some_namespaces_are_enough_for_their_informers() {
    let server = shared();
    let mut namespaces = Vec::new();
    for name in ["scopes-first", "scopes-second"] {
        let namespace = server.namespace(name).await;
        let verbs = ["get", "list", "watch"];
        server
            .allow_reader(&namespace, &verbs, &["configmaps"])
            .await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let object = json!({ "metadata": { "name": name, "labels": { "app": "scopes" } } });
        server.client().create(&path, &object).await.ok();
        namespaces.push(namespace);
    }
    let shutdown = Shutdown::new(shutdown::Config::default());
    let (factory, informers) = factory(server, "reader", &shutdown).await;
    let gvr = GroupVersionResource::new("", "v1", "configmaps");
    let selection = factory.selection(&gvr, None, "app=scopes", "");
    let config = config(selection.expect("selectors"));
    let namespaces: Vec<_> = namespaces.iter().map(String::as_str).collect();
    let of_namespaces = factory.informers_in::<ConfigMap>(&namespaces, &config);
    let of_namespaces = of_namespaces.expect("informers");
    assert_eq!(names(&of_namespaces[0]).await, ["scopes-first"]);
    assert_eq!(names(&of_namespaces[1]).await, ["scopes-second"]);
    assert_eq!(informers.all().len(), 2);
    shutdown.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_informer_with_a_transform_has_a_cache_of_its_own() {
    let server = shared();
    let namespace = server.namespace("transform").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({ "metadata": { "name": "map" }, "data": { "large": "x", "small": "y" } });
    server.client().create(&path, &object).await.ok();
    let shutdown = Shutdown::new(shutdown::Config::default());
    let (factory, informers) = factory(server, "admin", &shutdown).await;
    let of = |hooks: &Hooks| {
        let selection = Selection {
            namespace: Some(namespace.clone()),
            ..Selection::default()
        };
        let hooks = hooks.clone();
        let config = Config {
            hooks,
            ..config(selection)
        };
        factory.informer::<ConfigMap>(config).expect("an informer")
    };
    let keys = async |informer: &SharedInformer<ConfigMap>| {
        assert_eq!(names(informer).await, ["map"]);
        let found = informer.lister().get(Some(&namespace), "map");
        let map = found.expect("a config map").expect("is there");
        map.data
            .iter()
            .flatten()
            .map(|(key, _)| key.clone())
            .collect::<Vec<_>>()
    };
    let small = Hooks::default().with_transform(|resource, object| {
        assert_eq!(resource.kind, "ConfigMap");
        if let Some(data) = object["data"].as_object_mut() {
            data.remove("large");
        }
    });
    let (transformed, whole) = (of(&small), of(&Hooks::default()));
    assert_eq!(keys(&transformed).await, ["small"]);
    assert_eq!(keys(&whole).await, ["large", "small"]);
    assert_eq!(informers.all().len(), 2);
    assert_eq!(keys(&of(&small)).await, ["small"]);
    assert_eq!(informers.all().len(), 2);

    // The caches have separate metrics in the registry of a manager.
    let manager = Manager::new(shutdown.clone());
    let manager = manager
        .with_factory(factory.clone())
        .with_factory(factory.clone());
    let (_, metrics) = manager.registry().render();
    let of_caches = metrics.lines().filter(|line| {
        let is_meant = line.starts_with("kubefan_cache_objects{");
        is_meant && line.contains(&format!("namespace=\"{namespace}\""))
    });
    let transformed = |line: &str| line.contains(",transform=\"1\"");
    let (own, shared): (Vec<_>, Vec<_>) = of_caches.partition(|line| transformed(line));
    assert!(own.len() == 1 && shared.len() == 1, "{metrics}");
    assert!(
        own[0].ends_with("} 1") && shared[0].ends_with("} 1"),
        "{own:?}, {shared:?}"
    );
    let registry = manager.registry().clone();
    drop(manager);
    let (_, metrics) = registry.render();
    assert!(!metrics.contains("kubefan_cache_objects"), "{metrics}");
    shutdown.drain().await;
}
