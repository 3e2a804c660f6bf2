//! A controller that writes through the API server and reads from an informer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request as HttpRequest, StatusCode, Uri};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use kubefan::controller::{Action, Controller, Request};
use kubefan::manager::Manager;
use kubefan::shared_informer::{Change, Config, Factory};
use kubefan_core::shutdown::{Outcome, Shutdown};
use kubefan_core::{informer, shutdown};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use tower::{BoxError, service_fn};

use super::map;
use crate::simulator::{ApiServer, RequestFault, WatchFault};

const STEP: Duration = Duration::from_secs(600);

/// The requests that a program has sent, and the status of each answer.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Method, Uri, StatusCode)>>>);

/// The number of opened watches of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Watches {
    /// Watches that begin with all objects.
    listing: usize,
    /// Watches that continue at a resource version.
    resumed: usize,
}

impl Log {
    /// Returns a client of `server` that logs its requests.
    fn client(&self, server: &ApiServer) -> kube::Client {
        let (client, log) = (server.kube_client(), self.clone());
        let service = service_fn(move |request: HttpRequest<Body>| {
            let (client, log) = (client.clone(), log.clone());
            let (method, uri) = (request.method().clone(), request.uri().clone());
            async move {
                let response = client.send(request).await?;
                log.0.lock().push((method, uri, response.status()));
                Ok::<_, BoxError>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the requests that were answered with 500.
    fn failed(&self) -> Vec<String> {
        let log = self.0.lock();
        let failed = log
            .iter()
            .filter(|(_, _, status)| *status == StatusCode::INTERNAL_SERVER_ERROR);
        failed
            .map(|(method, uri, _)| format!("{method} {}", uri.path()))
            .collect()
    }

    /// Returns the watches of config maps, and those of secrets.
    fn watches(&self) -> [Watches; 2] {
        ["/api/v1/configmaps", "/api/v1/secrets"].map(|path| {
            let log = self.0.lock();
            let queries = log
                .iter()
                .filter(|(method, uri, _)| method == Method::GET && uri.path() == path)
                .map(|(_, uri, _)| uri.query().unwrap_or_default());
            let watches = queries.filter(|query| query.contains("watch=true"));
            let (listing, resumed): (Vec<_>, Vec<_>) =
                watches.partition(|query| query.contains("sendInitialEvents=true"));
            Watches {
                listing: listing.len(),
                resumed: resumed.len(),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_keeps_its_objects_through_faults() {
    let server = ApiServer::start().await.expect("a port");
    let shutdown = Shutdown::new(shutdown::Config::default());
    let log = Log::default();
    let client = log.client(&server);
    let started = Factory::start(
        client.clone(),
        informer::Config::default(),
        shutdown.clone(),
    );
    let factory = started.await.expect("discovery");
    let maps = factory.informer::<ConfigMap>(Config::default());
    let maps = maps.expect("an informer");
    let secrets = factory.informer::<Secret>(Config::default());
    let mut secrets = secrets.expect("an informer").changes();
    let lister = maps.lister();
    // Each config map gets a secret with a copy of its data.
    let reconcile = move |request: Request| {
        let namespace = request.namespace.clone().unwrap_or_default();
        let found = lister.get(Some(&namespace), &request.name);
        let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
        async move {
            let Some(map) = found.expect("a config map") else {
                return Ok(Action::Done);
            };
            let mut secret = Secret::default();
            secret.metadata.name = Some(request.name.clone());
            secret.string_data.clone_from(&map.data);
            let created = secrets.create(&PostParams::default(), &secret).await;
            created.map(|_| Action::Done)
        }
    };
    let controller = Controller::new("secrets", &maps, shutdown.clone());
    let manager = Manager::new(shutdown.clone())
        .with_factory(factory)
        .add(controller, reconcile);
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let run = tokio::spawn(manager.run(async move { stopped.notified().await }));
    let mut next = async || {
        let change = timeout(STEP, secrets.next()).await.expect("in time");
        match change.expect("the informer runs") {
            Change::Added { object, .. } => object.metadata.name.clone().expect("a name"),
            change => panic!("{change:?}"),
        }
    };

    server.put(&map("first", "1")).expect("it is created");
    assert_eq!(next().await, "first");
    server.faults().fail_requests(RequestFault::ServerError, 1);
    server.put(&map("retried", "1")).expect("it is created");
    assert_eq!(next().await, "retried");
    let created = "POST /api/v1/namespaces/default/secrets";
    assert_eq!(log.failed(), [created], "the fault");
    let opened = |listing, resumed| [Watches { listing, resumed }; 2];
    assert_eq!(log.watches(), opened(1, 0));
    server.faults().fail_watches(WatchFault::Drop);
    server.put(&map("resumed", "1")).expect("it is created");
    assert_eq!(next().await, "resumed");
    assert_eq!(log.watches(), opened(1, 1), "each watch broke once");
    server.compact();
    server.faults().fail_watches(WatchFault::Gone);
    server.put(&map("relisted", "1")).expect("it is created");
    assert_eq!(next().await, "relisted");
    assert_eq!(log.watches(), opened(2, 1), "each watch got a 410");

    stop.notify_one();
    assert_eq!(run.await.expect("no panic"), Ok(()));
    assert_eq!(shutdown.drain().await, Outcome::Drained);
    let stored: Secret = server.get(Some("default"), "first").expect("a secret");
    let expected = BTreeMap::from([("value".to_owned(), "1".to_owned())]);
    assert_eq!(stored.string_data, Some(expected));
}
