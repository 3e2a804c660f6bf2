//! Tests of managers on fake sources and a fake Lease, in paused time.

use std::future::{Future, pending};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kubefan_core::shutdown::{Outcome as Drained, Shutdown};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Error, Manager};
use crate::controller;
use crate::controller::tests::support::{Calls, Fake, Outcome, map, shutdown};
use crate::controller::{Action, Controller, Request};
use crate::leader_election::tests::store::FakeStore;
use crate::leader_election::{Config, InvalidConfig, LeaseRecord, NotReleased};

const SECOND: Duration = Duration::from_secs(1);

fn config(identity: &str) -> Config {
    Config {
        identity: identity.to_owned(),
        ..Config::default()
    }
}

/// Returns a manager with the controller `test` of config maps, as the candidate `identity`.
fn manager(
    maps: &Fake<ConfigMap>,
    calls: &Calls,
    store: &FakeStore,
    identity: &str,
    shutdown: &Shutdown,
) -> Manager {
    let controller = Controller::new("test", &maps.informer, shutdown.clone());
    Manager::new(shutdown.clone())
        .with_leader_election(store.clone(), config(identity))
        .add(controller, calls.clone())
}

fn spawn(
    manager: Manager,
    stop: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(manager.run(stop))
}

fn holder(store: &FakeStore) -> String {
    store
        .record()
        .map(|record| record.holder)
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn caches_come_before_the_election_and_controllers_after_it() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    maps.source.hold();
    maps.source.add(&map("a", 1)).unwrap();
    let manager = manager(&maps, &calls, &store, "me", &shutdown());
    let health = manager.health();
    spawn(manager, pending());
    tokio::time::sleep(60 * SECOND).await;
    assert!(store.calls().is_empty(), "no candidate without caches");
    assert!(!health.readyz().is_ok());
    let other = LeaseRecord {
        holder: "other".to_owned(),
        lease_duration: Some(15 * SECOND),
        acquired_at: None,
        renewed_at: None,
        transitions: 0,
    };
    store.put(Some(other));
    maps.source.release();
    tokio::time::sleep(10 * SECOND).await;
    assert!(health.readyz().is_ok(), "a candidate is ready");
    assert!(calls.all().is_empty(), "no reconcile without the lease");
    calls.until(1).await;
    assert_eq!(holder(&store), "me");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_given_back_after_the_last_reconcile() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    calls.take(15 * SECOND);
    maps.source.add(&map("a", 1)).unwrap();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let manager = manager(&maps, &calls, &store, "me", &shutdown());
    let run = spawn(manager, async move { stopped.notified().await });
    calls.until(1).await;
    stop.notify_one();
    tokio::time::sleep(14 * SECOND).await;
    assert_eq!((holder(&store).as_str(), calls.running()), ("me", 1));
    assert_eq!(run.await.unwrap(), Ok(()));
    assert_eq!((holder(&store).as_str(), calls.running()), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_the_reconciles_before_it_can_be_taken() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    calls.take(3_600 * SECOND);
    maps.source.add(&map("a", 1)).unwrap();
    let first = manager(&maps, &calls, &store, "first", &shutdown());
    let health = first.health();
    let run = spawn(first, pending());
    calls.until(1).await;
    store.set_down(true);
    let began = Instant::now();
    assert_eq!(run.await.unwrap(), Err(Error::LeaseLost));
    assert!(began.elapsed() <= 10 * SECOND, "{:?}", began.elapsed());
    assert!(!health.healthz().is_ok());
    // The reconcile was dropped, so it does not end.
    store.set_down(false);
    let (others, second) = (Calls::default(), shutdown());
    spawn(
        manager(&maps, &others, &store, "second", &second),
        pending(),
    );
    others.until(1).await;
    assert!(began.elapsed() >= 15 * SECOND, "{:?}", began.elapsed());
    tokio::time::sleep(7_200 * SECOND).await;
    assert_eq!((calls.running(), calls.all().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_second_manager_takes_over() {
    let (maps, store) = (Fake::new(), FakeStore::default());
    let (first, second) = (Calls::default(), Calls::default());
    maps.source.add(&map("a", 1)).unwrap();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let leader = manager(&maps, &first, &store, "first", &shutdown());
    let leader = spawn(leader, async move { stopped.notified().await });
    first.until(1).await;
    let next = manager(&maps, &second, &store, "second", &shutdown());
    spawn(next, pending());
    tokio::time::sleep(60 * SECOND).await;
    assert!(second.all().is_empty());
    stop.notify_one();
    assert_eq!(leader.await.unwrap(), Ok(()));
    let began = Instant::now();
    second.until(1).await;
    assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
    assert_eq!(first.all().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_fails_stops_the_others_and_gives_the_lease_back() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    let other = Fake::<ConfigMap>::new();
    let shutdown = shutdown();
    let failing = Controller::new("failing", &other.informer, shutdown.clone());
    calls.take(2 * SECOND);
    calls.script("a", &[Outcome::Error]);
    maps.source.add(&map("a", 1)).unwrap();
    let manager = manager(&maps, &calls, &store, "me", &shutdown);
    let run = spawn(manager.add(failing, Calls::default()), pending());
    calls.until(1).await;
    other.end();
    let expected = controller::Error::InformerEnded {
        controller: "failing".to_owned(),
        resource: "configmaps".to_owned(),
    };
    assert_eq!(run.await.unwrap(), Err(Error::Controller(expected)));
    assert_eq!((calls.running(), calls.all().len()), (0, 1));
    assert_eq!(holder(&store), "");
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_until_the_lease_is_given_back() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    maps.source.add(&map("a", 1)).unwrap();
    let shutdown = shutdown();
    let run = spawn(manager(&maps, &calls, &store, "me", &shutdown), pending());
    calls.until(1).await;
    store.delay(3 * SECOND);
    assert_eq!(shutdown.drain().await, Drained::Drained);
    assert_eq!(run.await.unwrap(), Ok(()));
    assert_eq!(holder(&store), "");
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_the_lease_back_after_reconciles_that_do_not_end() {
    for stop_timeout in [None, Some(3_600 * SECOND)] {
        let (maps, calls, store) = (
            Fake::<ConfigMap>::new(),
            Calls::default(),
            FakeStore::default(),
        );
        calls.take(7_200 * SECOND);
        maps.source.add(&map("a", 1)).unwrap();
        let shutdown = shutdown();
        let mut controller = Controller::new("test", &maps.informer, shutdown.clone());
        if let Some(stop_timeout) = stop_timeout {
            controller = controller.with_stop_timeout(stop_timeout);
        }
        let manager = Manager::new(shutdown.clone())
            .with_leader_election(store.clone(), config("me"))
            .add(controller, calls.clone());
        let run = spawn(manager, pending());
        calls.until(1).await;
        store.delay(SECOND);
        assert_eq!(shutdown.drain().await, Drained::Drained);
        let ended = run.await.unwrap();
        let is_unfinished = matches!(
            ended,
            Err(Error::Controller(controller::Error::Unfinished {
                reconciles: 1,
                running: 0,
                ..
            }))
        );
        assert!(is_unfinished, "{ended:?}");
        assert_eq!(holder(&store), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_given_back_is_an_error() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    maps.source.add(&map("a", 1)).unwrap();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let manager = manager(&maps, &calls, &store, "me", &shutdown());
    let run = spawn(manager, async move { stopped.notified().await });
    calls.until(1).await;
    store.set_down(true);
    stop.notify_one();
    let ended = run.await.unwrap();
    assert_eq!(ended, Err(Error::NotReleased(NotReleased)));
}

#[tokio::test(start_paused = true)]
async fn a_manager_without_an_election_runs_its_controllers() {
    let (maps, calls) = (Fake::<ConfigMap>::new(), Calls::default());
    maps.source.add(&map("a", 1)).unwrap();
    let shutdown = shutdown();
    let controller = Controller::new("test", &maps.informer, shutdown.clone());
    let manager = Manager::new(shutdown).add(controller, calls.clone());
    let until = calls.clone();
    let ended = manager.run(async move { until.until(1).await }).await;
    assert_eq!(ended, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_manager_counts_its_controllers_queues_and_election() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    maps.source.add(&map("a", 1)).unwrap();
    calls.script("a", &[Outcome::Error]);
    let manager = manager(&maps, &calls, &store, "me", &shutdown());
    assert!(manager.factory().is_none());
    let metrics = manager.registry().clone();
    let run = spawn(manager, pending());
    calls.until(2).await;
    tokio::time::sleep(SECOND).await;
    let (_, text) = metrics.render();
    for line in [
        r#"controller_runtime_reconcile_total{controller="test",result="error"} 1"#,
        r#"controller_runtime_reconcile_total{controller="test",result="success"} 1"#,
        r#"workqueue_retries_total{name="test"} 1"#,
        r#"workqueue_depth{name="test"} 0"#,
        r#"leader_election_master_status{name="leader-election"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    run.abort();
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_and_missing_lists_are_errors() {
    let (maps, calls, store) = (Fake::new(), Calls::default(), FakeStore::default());
    let invalid = manager(&maps, &calls, &store, "", &shutdown());
    let expected = Error::InvalidElection(InvalidConfig::NoIdentity);
    assert_eq!(invalid.run(pending::<()>()).await, Err(expected));
    let silent = Fake::new();
    silent.source.hold();
    let waiting = manager(&silent, &calls, &store, "me", &shutdown());
    let ended = waiting.run(pending::<()>()).await;
    let expected = controller::Error::NotSynced {
        controller: "test".to_owned(),
        resource: "configmaps".to_owned(),
        limit: 120 * SECOND,
    };
    assert_eq!(ended, Err(Error::Controller(expected)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_lease_is_kept_while_a_reconcile_cannot_be_stopped() {
    let (maps, store) = (Fake::<ConfigMap>::new(), FakeStore::default());
    maps.source.add(&map("a", 1)).unwrap();
    let (began, has_begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let reconcile = move |_: Request| {
        let (began, ended) = (began.clone(), Arc::clone(&ended));
        async move {
            began.send(()).expect("the test waits");
            // The reconcile blocks its thread, so it reaches no await point.
            ended.lock().recv().expect("the test ends it");
            Ok::<_, io::Error>(Action::Done)
        }
    };
    let shutdown = shutdown();
    let controller = Controller::new("test", &maps.informer, shutdown.clone());
    let manager = Manager::new(shutdown)
        .with_leader_election(store.clone(), config("me"))
        .add(controller.with_stop_timeout(Duration::ZERO), reconcile);
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let run = spawn(manager, async move { stopped.notified().await });
    tokio::task::spawn_blocking(move || has_begun.recv())
        .await
        .unwrap()
        .unwrap();
    stop.notify_one();
    let failed = run.await.unwrap();
    let is_running = matches!(
        failed,
        Err(Error::Controller(controller::Error::Unfinished {
            reconciles: 1,
            running: 1,
            ..
        }))
    );
    assert!(is_running, "{failed:?}");
    assert_eq!(holder(&store), "me");
    end.send(()).unwrap();
}
