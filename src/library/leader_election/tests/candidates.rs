//! Candidates on a scripted store, in paused time.

use std::future::Future;
use std::time::Duration;

use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use tokio::time::Instant;

use super::store::FakeStore;
use crate::leader_election::{
    Config, InvalidConfig, LeaderElector, LeaseRecord, Metrics, NotReleased, Status,
};

const SECOND: Duration = Duration::from_secs(1);

fn config(identity: &str) -> Config {
    Config {
        identity: identity.to_owned(),
        ..Config::default()
    }
}

fn start(store: &FakeStore, identity: &str) -> LeaderElector {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let elector = LeaderElector::start(store.clone(), config(identity), &shutdown);
    elector.expect("valid settings")
}

fn holder(store: &FakeStore) -> String {
    store.record().expect("a record").holder
}

/// Measures how long `future` takes.
async fn time(future: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    future.await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_renews() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    assert!(a.is_leading());
    assert_eq!(holder(&store), "a");
    let taken = store.record().expect("a record");
    let until = Instant::now() + 10 * SECOND;
    assert_eq!(a.status(), Status::Leading { until });
    tokio::time::sleep(99 * SECOND).await;
    assert!(a.is_leading());
    let calls: Vec<_> = store.calls().iter().map(|(call, _)| *call).collect();
    assert_eq!(calls[..3], ["get", "create", "update"]);
    assert_eq!(calls.len(), 2 + 49, "one renewal per two seconds");
    assert_eq!(taken.transitions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_takes_the_lease_of_a_leader_that_died() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    let b = start(&store, "b");
    tokio::time::sleep(30 * SECOND).await;
    let leader = Some("a".to_owned());
    assert_eq!(b.status(), Status::Waiting { leader });
    drop(a);
    let waited = time(async { assert!(b.elected().await) }).await;
    // The Lease is free 15 s after the candidate has seen the last renewal, which was up to 2 s
    // ago. The candidate sees this renewal at its next attempt, and takes the Lease at the first
    // attempt after the 15 s. Each of these attempts comes after at most 4.4 s.
    assert!(waited > 13 * SECOND && waited <= 24 * SECOND, "{waited:?}");
    let record = store.record().expect("a record");
    assert_eq!((record.holder.as_str(), record.transitions), ("b", 1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_api_server_stops_before_its_lease_can_be_taken() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    tokio::time::sleep(21 * SECOND).await;
    store.set_down(true);
    // The last renewal was a second ago.
    assert_eq!(time(a.lost()).await, 9 * SECOND);
    assert!(!a.is_leading());
    tokio::task::yield_now().await;
    assert_eq!(a.status(), Status::Lost);
    store.set_down(false);
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(a.status(), Status::Lost, "it never leads again");
    assert_eq!(holder(&store), "a", "and does not renew");
    assert!(!a.elected().await);
    assert_eq!(a.leave().await, Ok(()), "there is nothing to give back");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_prolong_the_leadership() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    tokio::time::sleep(SECOND).await;
    store.delay(3_600 * SECOND);
    assert_eq!(time(a.lost()).await, 9 * SECOND);
    let renewals = store.calls().len() - 2;
    assert_eq!(renewals, 2, "each takes half of the deadline at most");
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_short_failures() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    for _ in 0..5 {
        store.set_down(true);
        tokio::time::sleep(6 * SECOND).await;
        store.set_down(false);
        tokio::time::sleep(4 * SECOND).await;
        assert!(a.is_leading());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_its_next_renewal() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    let taken = LeaseRecord {
        holder: "thief".to_owned(),
        ..store.record().expect("a record")
    };
    store.put(Some(taken));
    assert_eq!(time(a.lost()).await, 2 * SECOND);
    assert_eq!(a.status(), Status::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_leaves_makes_room_at_once() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    let b = start(&store, "b");
    tokio::time::sleep(7 * SECOND).await;
    store.conflict_next(1);
    assert_eq!(a.leave().await, Ok(()));
    let record = store.record().expect("a record");
    assert_eq!(record.holder, "");
    assert_eq!(record.lease_duration, Some(SECOND));
    let waited = time(async { assert!(b.elected().await) }).await;
    assert!(waited < 5 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_leaves_changes_nothing() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    let b = start(&store, "b");
    tokio::time::sleep(SECOND).await;
    assert_eq!(b.leave().await, Ok(()));
    assert_eq!(holder(&store), "a");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_never_held_the_lease_leaves_without_an_answer() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    let b = start(&store, "b");
    tokio::time::sleep(SECOND).await;
    store.delay(3_600 * SECOND);
    // Long enough for an attempt to be in flight.
    tokio::time::sleep(4 * SECOND).await;
    let left = time(async { assert_eq!(b.leave().await, Ok(())) }).await;
    assert_eq!(left, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_released_is_reported() {
    let store = FakeStore::default();
    let a = start(&store, "a");
    assert!(a.elected().await);
    tokio::time::sleep(SECOND).await;
    store.delay(3_600 * SECOND);
    let began = Instant::now();
    assert_eq!(a.leave().await, Err(NotReleased));
    assert_eq!(began.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_metric_shows_the_leader() {
    let registry = Registry::new();
    let store = FakeStore::default();
    let config = Config {
        metrics: Some(Metrics::new(&registry, "things")),
        ..config("a")
    };
    let is = |value: u8| {
        let (_, text) = registry.render();
        let line = format!("leader_election_master_status{{name=\"things\"}} {value}\n");
        assert!(text.contains(&line), "no {line} in:\n{text}");
    };
    is(0);
    let shutdown = Shutdown::new(shutdown::Config::default());
    let a = LeaderElector::start(store.clone(), config, &shutdown).expect("valid settings");
    assert!(a.elected().await);
    is(1);
    store.set_down(true);
    a.lost().await;
    tokio::task::yield_now().await;
    is(0);
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let started = LeaderElector::start(FakeStore::default(), config(""), &shutdown);
    assert_eq!(started.err(), Some(InvalidConfig::NoIdentity));
}
