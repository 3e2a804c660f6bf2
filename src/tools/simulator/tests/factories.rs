//! Factories: which informers are shared, when they start again, and when they end.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::client::Body;
use kubefan::shared_informer::{Change, Changes, Config, Factory, IndexError};
use kubefan_core::api::{GroupVersionResource, Selection, Status};
use kubefan_core::informer::{Hooks, Informer, InformerSet, LiveRestMapper, StartError};
use kubefan_core::shutdown::{Outcome, Shutdown};
use kubefan_core::upstream::Client;
use kubefan_core::{informer, shutdown};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, service_fn};

use super::map;
use crate::simulator::ApiServer;

const MINUTE: Duration = Duration::from_secs(60);

/// A factory, and the parts that the factory does not expose.
struct Started {
    factory: Factory,
    informers: InformerSet,
    shutdown: Shutdown,
}

async fn start(client: kube::Client, config: informer::Config) -> Started {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = Client::from(client);
    let discovered = LiveRestMapper::discover(client.clone()).await;
    let mapper = Arc::new(discovered.expect("discovery"));
    let informers = InformerSet::new(client, config, shutdown.clone());
    let (live, all) = (Arc::clone(&mapper), informers.clone());
    shutdown.spawn_background(async move { live.run(all).await });
    Started {
        factory: Factory::new(informers.clone(), mapper, shutdown.clone()),
        informers,
        shutdown,
    }
}

impl Started {
    /// Returns the running caches of config maps. The factory also has a cache of definitions.
    fn caches(&self) -> Vec<Arc<Informer>> {
        let mut all = self.informers.all();
        all.retain(|informer| informer.resource().gvr == maps());
        all
    }
}

fn maps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

/// Returns a client of `server` that gets 403 for config maps while the value is true.
fn forbidding(server: &ApiServer, is_forbidden: &Arc<Mutex<bool>>) -> kube::Client {
    let (client, is_forbidden) = (server.kube_client(), Arc::clone(is_forbidden));
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let is_refused = request.uri().path().ends_with("/configmaps") && *is_forbidden.lock();
        async move {
            if is_refused {
                let status = Status::failure(403, "Forbidden", "configmaps is forbidden");
                let mut response = Response::new(Body::from(serde_json::to_vec(&status)?));
                *response.status_mut() = StatusCode::FORBIDDEN;
                return Ok(response);
            }
            Ok::<_, BoxError>(client.send(request).await?)
        }
    });
    kube::Client::new(service, "default")
}

/// Returns the next change, as the name of the object with `+`, `~` or `-`.
async fn next(changes: &mut Changes<ConfigMap>) -> String {
    let change = timeout(10 * MINUTE, changes.next()).await;
    let change = change.expect("in time").expect("the informer runs");
    let mark = match &change {
        Change::Added { .. } => '+',
        Change::Updated { .. } => '~',
        Change::Deleted(_) => '-',
    };
    let name = change.object().metadata.name.clone();
    format!("{mark}{}", name.expect("a name"))
}

#[tokio::test(start_paused = true)]
async fn there_is_one_informer_of_a_type_and_selection() {
    let server = ApiServer::start().await.expect("a port");
    let hooks = Hooks::default().with_transform(|_, _| {});
    let of_all = informer::Config {
        hooks: hooks.clone(),
        ..informer::Config::default()
    };
    let started = start(server.kube_client(), of_all).await;
    let factory = &started.factory;
    let first = factory.informer::<ConfigMap>(Config::default());
    let first = first.expect("an informer");
    first
        .add_index("none", |_| Vec::new())
        .expect("a new index");
    // The factory's own hooks make no other informer.
    let again = factory.informer::<ConfigMap>(Config {
        hooks,
        ..Config::default()
    });
    let again = again.expect("an informer");
    let exists = IndexError::Exists("none".to_owned());
    assert_eq!(again.add_index("none", |_| Vec::new()), Err(exists));
    // A different selection makes a different informer, which uses the existing cache.
    let narrow = factory.informer::<ConfigMap>(Config {
        selection: Selection {
            namespace: Some("default".to_owned()),
            ..Selection::default()
        },
        ..Config::default()
    });
    let narrow = narrow.expect("an informer");
    narrow
        .add_index("none", |_| Vec::new())
        .expect("a new index");
    assert!(factory.wait_for_cache_sync().await);
    assert!(first.has_synced() && again.has_synced() && narrow.has_synced());
    assert_eq!(started.caches().len(), 1);
    // A factory forgets an informer after the informer's last user.
    drop((first, again));
    let new = factory.informer::<ConfigMap>(Config::default());
    new.expect("an informer")
        .add_index("none", |_| Vec::new())
        .expect("a new index");
}

#[tokio::test(start_paused = true)]
async fn an_informer_starts_again_after_its_cache_was_closed() {
    let server = ApiServer::start().await.expect("a port");
    let started = start(server.kube_client(), informer::Config::default()).await;
    for name in ["kept", "deleted"] {
        server.put(&map(name, "1")).expect("it is created");
    }
    let informer = started.factory.informer::<ConfigMap>(Config::default());
    let informer = informer.expect("an informer");
    let mut changes = informer.changes();
    assert_eq!(next(&mut changes).await, "+deleted");
    assert_eq!(next(&mut changes).await, "+kept");
    let closed = started.caches();
    started.informers.stop(&maps());
    for informer in &closed {
        informer.reader().closed().await;
    }
    server
        .delete::<ConfigMap>(Some("default"), "deleted")
        .expect("it exists");
    server.put(&map("kept", "2")).expect("it is replaced");
    server.put(&map("new", "1")).expect("it is created");
    assert_eq!(informer.lister().list().len(), 2, "the last state before");
    assert_eq!(next(&mut changes).await, "-deleted");
    assert_eq!(next(&mut changes).await, "~kept");
    assert_eq!(next(&mut changes).await, "+new");
    assert_eq!(informer.lister().list().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reason_not_to_start_is_told_once() {
    let server = ApiServer::start().await.expect("a port");
    let is_forbidden = Arc::new(Mutex::new(true));
    let client = forbidding(&server, &is_forbidden);
    let started = start(client, informer::Config::default()).await;
    let told: Arc<Mutex<Vec<StartError>>> = Arc::default();
    let telling = Arc::clone(&told);
    let informer = started.factory.informer::<ConfigMap>(Config {
        on_start_error: Arc::new(move |error| telling.lock().push(*error)),
        ..Config::default()
    });
    let informer = informer.expect("an informer");
    sleep(10 * MINUTE).await;
    assert_eq!(*told.lock(), [StartError::Forbidden]);
    assert!(!informer.has_synced());
    *is_forbidden.lock() = false;
    assert!(
        timeout(10 * MINUTE, informer.synced())
            .await
            .expect("in time")
    );
    // The reason is reported again, because the informer was ready in between.
    *is_forbidden.lock() = true;
    started.informers.stop(&maps());
    sleep(10 * MINUTE).await;
    assert_eq!(*told.lock(), [StartError::Forbidden; 2]);
}

#[tokio::test(start_paused = true)]
async fn an_informer_without_users_is_stopped_when_it_was_idle() {
    let server = ApiServer::start().await.expect("a port");
    let idle_timeout = 3 * MINUTE;
    let config = informer::Config {
        idle_timeout,
        ..informer::Config::default()
    };
    let started = start(server.kube_client(), config).await;
    let informer = started.factory.informer::<ConfigMap>(Config::default());
    let informer = informer.expect("an informer");
    assert!(informer.synced().await);
    sleep(60 * MINUTE).await;
    let [cache] = started.caches().try_into().ok().expect("one cache");
    assert!(informer.has_synced(), "it has a user");
    drop(informer);
    let began = Instant::now();
    timeout(60 * MINUTE, cache.reader().closed())
        .await
        .expect("it is stopped");
    assert!(began.elapsed() >= idle_timeout, "{:?}", began.elapsed());
    assert!(began.elapsed() <= 2 * idle_timeout, "{:?}", began.elapsed());
    assert!(started.caches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_users_end_with_a_drain() {
    let server = ApiServer::start().await.expect("a port");
    let is_forbidden = Arc::new(Mutex::new(true));
    let client = forbidding(&server, &is_forbidden);
    let started = start(client, informer::Config::default()).await;
    let maps = started.factory.informer::<ConfigMap>(Config {
        on_start_error: Arc::new(|_| {}),
        ..Config::default()
    });
    let maps = maps.expect("an informer");
    let secrets = started.factory.informer::<Secret>(Config::default());
    let secrets = secrets.expect("an informer");
    assert!(secrets.synced().await);
    let mut changes = secrets.changes();
    let factory = started.factory.clone();
    let waiting = tokio::spawn(async move { factory.wait_for_cache_sync().await });
    let ended = tokio::spawn(async move { changes.next().await.is_none() });
    sleep(MINUTE).await;
    assert!(!waiting.is_finished() && !ended.is_finished());
    assert_eq!(started.shutdown.drain().await, Outcome::Drained);
    let waited = timeout(MINUTE, waiting).await.expect("in time");
    assert!(!waited.expect("no panic"), "one has no list");
    assert!(
        timeout(MINUTE, ended)
            .await
            .expect("in time")
            .expect("no panic")
    );
    assert!(!maps.synced().await);
}
