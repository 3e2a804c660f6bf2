//! The start and the end of a controller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::support::{Calls, Fake, Outcome, controller, map, ms, shutdown, start, start_until};
use crate::controller::{Controller, Error, Predicate};

/// Returns a stop, and the future that completes at it.
fn stop() -> (Arc<Notify>, impl Future<Output = ()> + Send + 'static) {
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    (stop, async move { stopped.notified().await })
}

#[tokio::test(start_paused = true)]
async fn the_first_reconcile_waits_for_all_lists() {
    let (maps, secrets) = (Fake::<ConfigMap>::new(), Fake::<Secret>::new());
    let calls = Calls::default();
    maps.source.add(&map("a", 1)).unwrap();
    secrets.source.hold();
    // After the release, the reflector's next attempt may be half a minute away.
    let waiting = controller(&maps).with_sync_timeout(Duration::from_secs(300));
    start(waiting.owns(&secrets.informer, None), &calls);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(calls.all().is_empty());
    secrets.source.release();
    calls.until(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_come_ends_the_controller() {
    let (maps, secrets) = (Fake::<ConfigMap>::new(), Fake::<Secret>::new());
    secrets.source.hold();
    let began = Instant::now();
    let controller = controller(&maps).owns(&secrets.informer, None);
    let ended = start(controller, &Calls::default()).await.unwrap();
    let limit = Duration::from_secs(120);
    let expected = Error::NotSynced {
        controller: "test".to_owned(),
        resource: "secrets".to_owned(),
        limit,
    };
    assert_eq!(ended, Err(expected));
    assert_eq!(began.elapsed(), limit);
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_ends_stops_the_controller_with_an_error() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    maps.source.add(&map("a", 1)).unwrap();
    let run = start(controller(&maps), &calls);
    calls.until(1).await;
    maps.end();
    let expected = Error::InformerEnded {
        controller: "test".to_owned(),
        resource: "configmaps".to_owned(),
    };
    assert_eq!(run.await.unwrap(), Err(expected));
}

#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics_stops_the_controller_with_an_error() {
    let maps = Fake::<ConfigMap>::new();
    let predicate = Predicate::new(|_, _| panic!("a test's panic"));
    let run = start(
        controller(&maps).with_predicate(predicate),
        &Calls::default(),
    );
    maps.source.add(&map("a", 1)).unwrap();
    let expected = Error::WatchPanicked {
        controller: "test".to_owned(),
        resource: "configmaps".to_owned(),
    };
    assert_eq!(run.await.unwrap(), Err(expected));
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_lists_ends_at_once() {
    let maps = Fake::<ConfigMap>::new();
    maps.source.hold();
    let run = controller(&maps).run(Calls::default(), std::future::ready(()));
    assert_eq!(run.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_running_reconciles_only() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.take(Duration::from_secs(20));
    // A retry of `a` must not follow.
    calls.script("a", &[Outcome::Error]);
    for name in ["a", "b", "c"] {
        maps.source.add(&map(name, 1)).unwrap();
    }
    let (stop, stopped) = stop();
    let run = start_until(
        controller(&maps).max_concurrent_reconciles(2),
        &calls,
        stopped,
    );
    calls.until(2).await;
    let began = Instant::now();
    stop.notify_one();
    assert_eq!(run.await.unwrap(), Ok(()));
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    assert_eq!((calls.all().len(), calls.running()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_the_process_stops_a_controller() {
    let maps = Fake::<ConfigMap>::new();
    let (calls, shutdown) = (Calls::default(), shutdown());
    calls.take(Duration::from_secs(3));
    maps.source.add(&map("a", 1)).unwrap();
    let controller = Controller::new("test", &maps.informer, shutdown.clone());
    let run = start(controller, &calls);
    calls.until(1).await;
    let began = Instant::now();
    shutdown.drain().await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    assert_eq!(run.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_stop_may_reconcile_what_waits() {
    let maps = Fake::<ConfigMap>::new();
    let calls = Calls::default();
    calls.take(ms(100));
    calls.script("a", &[Outcome::Error]);
    for name in ["a", "b", "c"] {
        maps.source.add(&map(name, 1)).unwrap();
    }
    let (stop, stopped) = stop();
    let run = start_until(controller(&maps).drain_on_stop(true), &calls, stopped);
    calls.until(1).await;
    stop.notify_one();
    assert_eq!(run.await.unwrap(), Ok(()));
    assert_eq!(calls.names(), ["n/a", "n/b", "n/c"]);
}

#[tokio::test(start_paused = true)]
async fn reconciles_that_do_not_end_are_dropped_after_the_limit() {
    for drains in [false, true] {
        let maps = Fake::<ConfigMap>::new();
        let calls = Calls::default();
        calls.take(Duration::from_secs(3_600));
        for name in ["a", "b", "c"] {
            maps.source.add(&map(name, 1)).unwrap();
        }
        let (stop, stopped) = stop();
        let stopping = controller(&maps).max_concurrent_reconciles(2);
        let run = start_until(stopping.drain_on_stop(drains), &calls, stopped);
        calls.until(2).await;
        let began = Instant::now();
        stop.notify_one();
        let limit = Duration::from_secs(20);
        let expected = Error::Unfinished {
            controller: "test".to_owned(),
            reconciles: 2,
            running: 0,
            limit,
        };
        assert_eq!(run.await.unwrap(), Err(expected));
        assert_eq!(began.elapsed(), limit);
        tokio::time::sleep(Duration::from_secs(7_200)).await;
        assert_eq!(calls.running(), 2, "they did not go on");
        assert_eq!(calls.all().len(), 2, "no other one began");
    }
}
