//! The calls that a proof makes for a cache with too many objects to send the verification list
//! first.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::model::object;
use crate::api::{EventType, ListPage, ResourceVersion, Status};
use crate::cache::Writer;
use crate::informer::{
    Freshness, FreshnessPolicy, ProofError, ProofMethod, ProofRequest, relist_channel,
};
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, shutdown, upstream};

const OBJECTS: usize = 501;
/// How long the API server takes to answer a verification list.
const LIST_DURATION: Duration = Duration::from_millis(50);

/// How the API server answers a verification list.
#[derive(Clone, Copy)]
enum ListAnswer {
    /// The list has the objects of the cache.
    Same,
    /// The list has one object more than the cache.
    OneMore,
    NotAcceptable,
    TimedOut,
}

/// An API server that records the calls, and answers with a version that the test sets.
struct Server {
    list_answer: ListAnswer,
    /// How long the answer to a barrier takes.
    barrier_duration: Mutex<Duration>,
    current: Mutex<ResourceVersion>,
    calls: Mutex<Vec<&'static str>>,
}

struct Probe(Arc<Server>);

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Proven(ProofMethod),
    Differs,
    TimedOut,
    TooCostly,
}

fn key(index: usize) -> String {
    format!("a/{index:04}")
}

fn page(version: ResourceVersion, objects: usize) -> ListPage {
    let item = |index| object(&key(index), &(format!("u{index}"), 4, "web"));
    ListPage {
        resource_version: version,
        continue_token: None,
        items: (0..objects).map(item).collect(),
    }
}

impl FreshnessProbe for Probe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        self.0.calls.lock().push("barrier");
        let duration = *self.0.barrier_duration.lock();
        if !duration.is_zero() {
            sleep(duration).await;
        }
        Ok(*self.0.current.lock())
    }

    async fn verification_list(&self, _: &Scope) -> Result<ListPage, upstream::Error> {
        self.0.calls.lock().push("list");
        sleep(LIST_DURATION).await;
        let current = *self.0.current.lock();
        match self.0.list_answer {
            ListAnswer::Same => Ok(page(current, OBJECTS)),
            ListAnswer::OneMore => Ok(page(current, OBJECTS + 1)),
            ListAnswer::NotAcceptable => Err(upstream::Error::Answer {
                status: Box::new(Status::failure(406, "NotAcceptable", "")),
                retry_after: None,
            }),
            ListAnswer::TimedOut => Err(upstream::Error::Timeout(Duration::ZERO)),
        }
    }
}

struct World {
    freshness: Freshness<Probe>,
    writer: Writer,
    server: Arc<Server>,
    has_bookmarks: bool,
}

/// Applies a change with this version, which the watch has delivered.
fn change_at(writer: &mut Writer, version: ResourceVersion) {
    let changed = object(&key(0), &("u0".to_owned(), version.0, "web"));
    let applied = writer.apply(EventType::Modified, changed, None);
    applied.expect("in order");
}

impl World {
    fn new(list_answer: ListAnswer) -> Self {
        Self::with(list_answer, cache::Config::default())
    }

    /// The cache is one of Events: several may have one version, and no bookmarks come.
    fn of_events() -> Self {
        let config = cache::Config {
            shares_versions: true,
            ..cache::Config::default()
        };
        Self::with(ListAnswer::Same, config)
    }

    fn with(list_answer: ListAnswer, config: cache::Config) -> Self {
        let (mut writer, reader) = cache::cache(config);
        let current = ResourceVersion(1000);
        let mut relist = writer.relist();
        let items = page(current, OBJECTS).items;
        items.into_iter().for_each(|item| relist.add(item));
        writer.replace(relist, current);
        let server = Arc::new(Server {
            list_answer,
            barrier_duration: Mutex::default(),
            current: Mutex::new(current),
            calls: Mutex::default(),
        });
        let probe = Probe(Arc::clone(&server));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let (relist, _) = relist_channel();
        let policy = FreshnessPolicy::Strict;
        Self {
            has_bookmarks: !reader.shares_versions(),
            freshness: Freshness::new(probe, reader, relist, policy, shutdown),
            writer,
            server,
        }
    }

    /// Raises the API server's version, and returns the new one.
    fn next_version(&self) -> ResourceVersion {
        let mut current = self.server.current.lock();
        current.0 += 1000;
        *current
    }

    /// Changes an object. The watch has delivered the change.
    fn change(&mut self) {
        let version = self.next_version();
        change_at(&mut self.writer, version);
    }

    /// Raises the API server's version, as a change of another resource does, and requests a proof
    /// by `ask`. Returns the output and the calls. A bookmark with the new version, or an Event
    /// with the next one, arrives after `watch_delay_ms` milliseconds; `None` means never.
    async fn ask<T>(
        &mut self,
        watch_delay_ms: Option<u64>,
        ask: impl AsyncFnOnce(&Freshness<Probe>) -> T,
    ) -> (T, Vec<&'static str>) {
        self.server.calls.lock().clear();
        let current = self.next_version();
        let watch = async {
            if let Some(watch_delay_ms) = watch_delay_ms {
                sleep(Duration::from_millis(watch_delay_ms)).await;
                if self.has_bookmarks {
                    self.writer.bookmark(current).expect("in order");
                } else {
                    change_at(&mut self.writer, ResourceVersion(current.0 + 1));
                }
            }
        };
        let (output, ()) = tokio::join!(ask(&self.freshness), watch);
        let calls = self.server.calls.lock().clone();
        (output, calls)
    }

    /// Does the work of [`World::ask`] for a LIST of all objects.
    async fn prove(&mut self, watch_delay_ms: Option<u64>) -> (Outcome, Vec<&'static str>) {
        self.ask(watch_delay_ms, async |freshness| {
            let request = ProofRequest::default();
            let proof = freshness.prove(request, Instant::now(), Duration::ZERO);
            match proof.await {
                Ok(proof) => Outcome::Proven(proof.method),
                Err(ProofError::CacheDiffers) => Outcome::Differs,
                Err(ProofError::TimedOut) => Outcome::TimedOut,
                Err(ProofError::TooCostly) => Outcome::TooCostly,
                Err(unproven) => panic!("{unproven}"),
            }
        })
        .await
    }

    /// Does the work of [`World::ask`] for a GET of a crowd.
    async fn prove_soon(
        &mut self,
        watch_delay_ms: Option<u64>,
    ) -> (Option<ProofMethod>, Vec<&'static str>) {
        self.ask(watch_delay_ms, async |freshness| {
            let proof = freshness.prove_soon().await;
            proof.map(|proof| proof.method)
        })
        .await
    }
}

const BY_BARRIER: Outcome = Outcome::Proven(ProofMethod::Barrier);
const BY_LIST: Outcome = Outcome::Proven(ProofMethod::VerificationList);

#[tokio::test(start_paused = true)]
async fn a_barrier_that_the_watch_reaches_soon_needs_no_list() {
    let mut world = World::new(ListAnswer::Same);
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn after_the_watch_misses_a_barrier_a_list_is_tried_first_for_a_while() {
    let mut world = World::new(ListAnswer::Same);
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["barrier", "list"]));
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["list"]));
    sleep(Duration::from_secs(11)).await;
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["barrier", "list"]));
    // The watch reaches the new version before the list arrives, so a barrier is tried again.
    assert_eq!(world.prove(Some(10)).await, (BY_LIST, vec!["list"]));
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn the_watch_may_be_faster_than_the_list() {
    let mut world = World::new(ListAnswer::Same);
    let expected = (BY_BARRIER, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(30)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_list_the_proof_waits_for_the_watch() {
    let mut world = World::new(ListAnswer::TimedOut);
    for _ in 0..2 {
        let expected = (BY_BARRIER, vec!["barrier", "list"]);
        assert_eq!(world.prove(Some(500)).await, expected);
    }
    let mut world = World::new(ListAnswer::NotAcceptable);
    let expected = (BY_BARRIER, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
    assert_eq!(world.prove(Some(500)).await, (BY_BARRIER, vec!["barrier"]));
    sleep(Duration::from_secs(301)).await;
    let expected = (BY_BARRIER, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_contradicts_the_cache_only_at_the_same_version() {
    let mut world = World::new(ListAnswer::OneMore);
    let expected = (Outcome::TimedOut, vec!["barrier", "list"]);
    assert_eq!(world.prove(None).await, expected);
    let expected = (Outcome::Differs, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_sent_after_a_request_proves_it_without_a_call() {
    let mut world = World::new(ListAnswer::Same);
    let request = || ProofRequest {
        selection: Arc::default(),
        scope: Scope::default(),
    };
    let moment = async || {
        sleep(Duration::from_millis(1)).await;
        Instant::now()
    };
    let before_the_list = moment().await;
    moment().await;
    let mut relist = world.writer.relist();
    let during_the_list = moment().await;
    let version = ResourceVersion(2000);
    *world.server.current.lock() = version;
    let items = page(version, OBJECTS).items;
    items.into_iter().for_each(|item| relist.add(item));
    world.writer.replace(relist, version);
    for (asked_at, expected, calls) in [
        (before_the_list, ProofMethod::InformerList, vec![]),
        (during_the_list, ProofMethod::Barrier, vec!["barrier"]),
    ] {
        let proof = world
            .freshness
            .prove(request(), asked_at, Duration::ZERO)
            .await
            .expect("a proof");
        assert_eq!(proof.method, expected);
        assert_eq!(proof.snapshot.resource_version(), version);
        assert_eq!(*world.server.calls.lock(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_is_proven_by_no_barrier_until_it_is_relisted() {
    let mut world = World::new(ListAnswer::OneMore);
    let expected = (Outcome::Differs, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
    // Only an equal list proves a part of a wrong cache.
    assert_eq!(world.prove(Some(5)).await, (Outcome::Differs, vec!["list"]));
    sleep(Duration::from_millis(1)).await;
    let version = *world.server.current.lock();
    let mut relist = world.writer.relist();
    let items = page(version, OBJECTS + 1).items;
    items.into_iter().for_each(|item| relist.add(item));
    world.writer.replace(relist, version);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_gets_is_proven_by_barriers_that_the_watch_reaches_soon() {
    let by_barrier = (Some(ProofMethod::Barrier), vec!["barrier"]);
    let missed = (None, vec!["barrier"]);
    let forwarded = (None, vec![]);
    let mut world = World::new(ListAnswer::Same);
    // The cache has not changed since its first list.
    assert_eq!(world.prove_soon(Some(5)).await, forwarded);
    world.change();
    for _ in 0..4 {
        assert_eq!(world.prove_soon(Some(5)).await, by_barrier);
    }
    // The second barrier that the watch misses is one too many.
    assert_eq!(world.prove_soon(None).await, missed);
    assert_eq!(world.prove_soon(Some(100)).await, missed);
    world.change();
    assert_eq!(world.prove_soon(Some(5)).await, forwarded);
    // A LIST still tries a barrier first.
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.prove_soon(Some(5)).await, forwarded);
    world.change();
    assert_eq!(world.prove_soon(Some(5)).await, by_barrier);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_gets_waits_for_a_slow_api_server_as_it_would_for_their_answers() {
    let by_barrier = (Some(ProofMethod::Barrier), vec!["barrier"]);
    let mut world = World::new(ListAnswer::Same);
    world.change();
    *world.server.barrier_duration.lock() = Duration::from_millis(100);
    for watch_delay_ms in [5, 110, 190] {
        assert_eq!(world.prove_soon(Some(watch_delay_ms)).await, by_barrier);
    }
    assert_eq!(world.prove_soon(Some(210)).await, (None, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn no_crowd_waits_for_a_watch_that_has_missed_the_barrier_of_a_list() {
    let mut world = World::new(ListAnswer::Same);
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["barrier", "list"]));
    world.change();
    assert_eq!(world.prove_soon(Some(5)).await, (None, vec![]));
    sleep(Duration::from_secs(11)).await;
    world.change();
    let by_barrier = (Some(ProofMethod::Barrier), vec!["barrier"]);
    assert_eq!(world.prove_soon(Some(5)).await, by_barrier);
}

#[tokio::test(start_paused = true)]
async fn the_gets_of_a_crowd_share_barriers_that_are_sent_after_they_arrived() {
    let mut world = World::new(ListAnswer::Same);
    world.change();
    let (proofs, calls) = world
        .ask(Some(20), async |freshness| {
            let gets = (0..200).map(async |number| {
                sleep(Duration::from_millis(number % 3)).await;
                freshness.prove_soon().await
            });
            join_all(gets).await
        })
        .await;
    let versions: Vec<_> = proofs
        .iter()
        .map(|proof| {
            proof
                .as_ref()
                .map(|proof| proof.snapshot.resource_version())
        })
        .collect();
    let current = *world.server.current.lock();
    assert_eq!(versions, [Some(current); 200]);
    // The first barrier is sent at once, for the first GET.
    assert_eq!(calls, ["barrier"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_is_proven_for_no_crowd() {
    let mut world = World::new(ListAnswer::OneMore);
    let expected = (Outcome::Differs, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
    world.change();
    assert_eq!(world.prove_soon(Some(5)).await, (None, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn events_are_proven_by_a_later_event_and_by_no_list() {
    let by_barrier = (BY_BARRIER, vec!["barrier"]);
    let mut world = World::of_events();
    // No event has come since the first list.
    assert_eq!(world.prove(Some(5)).await, (Outcome::TooCostly, vec![]));
    world.change();
    for _ in 0..4 {
        assert_eq!(world.prove(Some(90)).await, by_barrier);
    }
    sleep(Duration::from_millis(101)).await;
    assert_eq!(world.prove(Some(5)).await, (Outcome::TooCostly, vec![]));
    world.change();
    let missed = (Outcome::TooCostly, vec!["barrier"]);
    assert_eq!(world.prove(None).await, missed);
    world.change();
    assert_eq!(world.prove(Some(110)).await, missed);
    world.change();
    assert_eq!(world.prove(Some(5)).await, (Outcome::TooCostly, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_slow_barrier_makes_proofs_of_events_too_costly() {
    let mut world = World::of_events();
    let missed = (Outcome::TooCostly, vec!["barrier"]);
    world.change();
    *world.server.barrier_duration.lock() = Duration::from_secs(60);
    let asked_at = Instant::now();
    assert_eq!(world.prove(None).await, missed);
    assert!(asked_at.elapsed() < Duration::from_secs(2));
    // The call counts as one that the watch has missed.
    *world.server.barrier_duration.lock() = Duration::ZERO;
    world.change();
    assert_eq!(world.prove(Some(5)).await, (Outcome::TooCostly, vec![]));
    sleep(Duration::from_secs(10)).await;
    world.change();
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
    // A client that gives up early switches no proofs off.
    *world.server.barrier_duration.lock() = Duration::from_secs(60);
    let early = world.ask(None, async |freshness| {
        let proof = freshness.prove(ProofRequest::default(), Instant::now(), Duration::ZERO);
        timeout(Duration::from_millis(20), proof).await.is_err()
    });
    assert_eq!(early.await, (true, vec!["barrier"]));
    *world.server.barrier_duration.lock() = Duration::ZERO;
    world.change();
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
}
