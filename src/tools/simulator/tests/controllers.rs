//! A controller that writes through the API server and reads from an informer.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use kubefan::controller::{Action, Controller, Request};
use kubefan::manager::Manager;
use kubefan::shared_informer::{Change, Config, Factory};
use kubefan_core::shutdown::{Outcome, Shutdown};
use kubefan_core::{informer, shutdown};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::map;
use crate::simulator::{ApiServer, RequestFault, WatchFault};

const STEP: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn a_controller_keeps_its_objects_through_faults() {
    let server = ApiServer::start().await.expect("a port");
    let shutdown = Shutdown::new(shutdown::Config::default());
    let client = server.kube_client();
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
    // Each config map gets a secret with the same data.
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
    let stop = std::sync::Arc::new(Notify::new());
    let stopped = std::sync::Arc::clone(&stop);
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
    server.faults().fail_watches(WatchFault::Drop);
    server.put(&map("resumed", "1")).expect("it is created");
    assert_eq!(next().await, "resumed");
    server.compact();
    server.faults().fail_watches(WatchFault::Gone);
    server.put(&map("relisted", "1")).expect("it is created");
    assert_eq!(next().await, "relisted");

    stop.notify_one();
    assert_eq!(run.await.expect("no panic"), Ok(()));
    assert_eq!(shutdown.drain().await, Outcome::Drained);
    let stored: Secret = server.get(Some("default"), "first").expect("a secret");
    let expected = BTreeMap::from([("value".to_owned(), "1".to_owned())]);
    assert_eq!(stored.string_data, Some(expected));
}
