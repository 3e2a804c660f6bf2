//! Verification lists that differ from the cache: what becomes of them when the caller gives up,
//! when the watch passes them, and when a relist is in flight.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::model::object;
use crate::api::{EventType, ListPage, Object, ObjectKey, ResourceVersion};
use crate::cache::{Relist, Writer};
use crate::informer::freshness::evidence::Difference;
use crate::informer::{
    Freshness, FreshnessPolicy, Proof, ProofError, ProofMethod, ProofRequest, RelistRequests,
    relist_channel,
};
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, shutdown, upstream};

/// How long the API server takes to answer.
const CALL: Duration = Duration::from_millis(20);

/// The version and the objects of the API server.
type State = (u64, Vec<Object>);

struct Probe(Arc<Mutex<State>>);

impl FreshnessProbe for Probe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        let version = self.0.lock().0;
        sleep(CALL).await;
        Ok(ResourceVersion(version))
    }

    async fn verification_list(&self, _: &Scope) -> Result<ListPage, upstream::Error> {
        let (version, items) = self.0.lock().clone();
        sleep(CALL).await;
        Ok(ListPage {
            resource_version: ResourceVersion(version),
            continue_token: None,
            items,
        })
    }
}

struct World {
    freshness: Freshness<Probe>,
    server: Arc<Mutex<State>>,
    writer: Writer,
    relists: RelistRequests,
}

fn at(key: &str, version: u64) -> Object {
    object(key, &(format!("uid of {key}"), version, "web"))
}

fn listed(mut relist: Relist, items: &[Object]) -> Relist {
    items.iter().for_each(|item| relist.add(item.clone()));
    relist
}

impl World {
    /// The cache has `items` at version 10, and the API server has `state`.
    fn new(items: &[Object], state: State, policy: FreshnessPolicy) -> Self {
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let first = listed(writer.relist(), items);
        writer.replace(first, ResourceVersion(10));
        let server = Arc::new(Mutex::new(state));
        let (relist, relists) = relist_channel();
        let shutdown = Shutdown::new(shutdown::Config::default());
        let probe = Probe(Arc::clone(&server));
        Self {
            freshness: Freshness::new(probe, reader, relist, policy, shutdown),
            server,
            writer,
            relists,
        }
    }

    /// Proves all objects. `meanwhile` runs after half the time of a call.
    async fn prove(
        &mut self,
        meanwhile: impl AsyncFnOnce(&mut Writer, &Mutex<State>),
    ) -> Result<Proof, ProofError> {
        sleep(Duration::from_millis(1)).await;
        let request = ProofRequest::default();
        let proof = self
            .freshness
            .prove(request, Instant::now(), Duration::ZERO);
        let meanwhile = async {
            sleep(CALL / 2).await;
            meanwhile(&mut self.writer, &self.server).await;
        };
        tokio::join!(proof, meanwhile).0
    }
}

fn apply(writer: &mut Writer, event_type: EventType, object: Object) {
    writer.apply(event_type, object, None).expect("in order");
}

/// Lets all tasks run.
async fn moment() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_is_found_after_its_last_reader_gave_up() {
    let items = [at("a/x", 3), at("a/y", 4)];
    let mut world = World::new(&items, (100, vec![at("a/x", 3)]), FreshnessPolicy::Strict);
    let proof = world.prove(async |_, _| ()).await;
    assert!(matches!(proof, Err(ProofError::TimedOut)), "{proof:?}");
    for (bookmark, is_found) in [(50, false), (200, true)] {
        let version = ResourceVersion(bookmark);
        world.writer.bookmark(version).expect("in order");
        moment().await;
        assert_eq!(world.relists.is_requested(), is_found, "at {bookmark}");
    }
    assert_eq!(
        world
            .freshness
            .metrics()
            .differing
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn evidence_that_changes_explain_is_dropped() {
    let state = (100, vec![at("a/x", 60), at("a/z", 80)]);
    let items = [at("a/x", 3), at("a/y", 4)];
    let mut world = World::new(&items, state, FreshnessPolicy::Strict);
    let proof = world.prove(async |_, _| ()).await;
    assert!(matches!(proof, Err(ProofError::TimedOut)), "{proof:?}");
    apply(&mut world.writer, EventType::Modified, at("a/x", 60));
    apply(&mut world.writer, EventType::Deleted, at("a/y", 70));
    apply(&mut world.writer, EventType::Added, at("a/z", 80));
    apply(&mut world.writer, EventType::Deleted, at("a/x", 120));
    moment().await;
    assert!(!world.relists.is_requested());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_the_watch_has_passed_finds_a_wrong_cache() {
    let wrong = [at("a/x", 3), at("a/y", 4)];
    let right = [at("a/x", 3)];
    for (items, is_wrong) in [(&wrong[..], true), (&right[..], false)] {
        let mut world = World::new(items, (100, vec![at("a/x", 3)]), FreshnessPolicy::Strict);
        // The cache has never the list's version, and other objects whenever it is compared.
        let passes = async |writer: &mut Writer, _: &Mutex<State>| {
            apply(writer, EventType::Added, at("a/z", 101));
        };
        let proof = world.prove(passes).await.map(|proof| proof.method);
        if is_wrong {
            assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}")
        } else {
            assert!(matches!(proof, Ok(ProofMethod::Barrier)), "{proof:?}")
        }
        assert_eq!(world.relists.is_requested(), is_wrong);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_in_flight_is_not_proven_by_an_earlier_version() {
    let mut world = World::new(&[at("a/x", 3)], (12, vec![]), FreshnessPolicy::Strict);
    moment().await;
    // etcd is restored after this list was answered, and before the proof begins.
    let old = listed(world.writer.relist(), &[at("a/x", 3), at("a/y", 20)]);
    let replaces = async |writer: &mut Writer, _: &Mutex<State>| {
        sleep(CALL).await;
        writer.replace(old, ResourceVersion(20));
    };
    let proof = world.prove(replaces).await;
    assert!(matches!(proof, Err(ProofError::OtherHistory)), "{proof:?}");
    assert!(world.relists.is_requested());
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_a_relist_overtakes_starts_again() {
    let mut world = World::new(&[at("a/x", 3)], (12, vec![]), FreshnessPolicy::Strict);
    moment().await;
    let list = listed(world.writer.relist(), &[at("a/y", 20)]);
    let replaces = async |writer: &mut Writer, server: &Mutex<State>| {
        *server.lock() = (20, vec![at("a/y", 20)]);
        sleep(CALL).await;
        writer.replace(list, ResourceVersion(20));
    };
    let proof = world.prove(replaces).await.expect("a proof");
    assert_eq!(proof.method, ProofMethod::VerificationList);
    assert_eq!(proof.snapshot.resource_version(), ResourceVersion(20));
    assert!(!world.relists.is_requested());
}

#[tokio::test(start_paused = true)]
async fn a_recent_proof_keeps_no_objects() {
    let policy = FreshnessPolicy::Bounded(Duration::from_secs(10));
    let mut world = World::new(&[at("a/x", 3)], (100, vec![at("a/x", 3)]), policy);
    let proof = world.prove(async |_, _| ()).await.expect("a proof");
    assert_eq!(proof.method, ProofMethod::VerificationList);
    let key = ObjectKey::new(Some("a"), "x");
    let object = proof.snapshot.get(&key).expect("an object");
    let object = Arc::downgrade(&{ object });
    drop(proof);
    let again = async |world: &mut World| {
        let proof = world.prove(async |_, _| ()).await.expect("a proof");
        (proof.method, proof.snapshot.resource_version().0)
    };
    // The objects are still those that the list has proven for version 100.
    assert_eq!(again(&mut world).await, (ProofMethod::Recent, 100));
    apply(&mut world.writer, EventType::Modified, at("a/x", 101));
    world.writer.forget_history();
    assert!(object.upgrade().is_none(), "the replaced object is kept");
    assert_eq!(again(&mut world).await, (ProofMethod::Recent, 101));
}

/// A proof finds the relisted cache wrong while a task decides earlier evidence. The proof leaves
/// the next relist to this task, whatever the evidence shows.
#[tokio::test(start_paused = true)]
async fn a_relist_that_is_owed_when_the_evidence_is_decided_is_requested() {
    const CHANGES: u64 = 5000;
    let last = ResourceVersion(10 + CHANGES);
    for is_explained in [true, false] {
        let mut world = World::new(&[at("a/x", 3)], (10, vec![]), FreshnessPolicy::Strict);
        let prover = &world.freshness.inner.prover;
        let newest = |writer: &Writer| writer.reader().snapshot().expect("is ready");
        let first = newest(&world.writer);
        // From now on, another relist is requested only after a minute.
        prover.repair.begin(&first);
        assert!(world.relists.is_requested());
        world.relists.acknowledge();

        let gone = (at("a/x", 3).key, None);
        let request = ProofRequest::default();
        let difference = Difference::new(request, last, &first, vec![gone]);
        prover.evidence.keep(&Arc::new(difference));
        if is_explained {
            apply(&mut world.writer, EventType::Deleted, at("a/x", 11))
        } else {
            apply(&mut world.writer, EventType::Added, at("a/y", 11))
        }
        for version in 12..=last.0 {
            apply(&mut world.writer, EventType::Modified, at("a/y", version));
        }
        let mut follower = pin!(prover.follow_evidence());
        // The task yields before it has read all changes.
        assert!(futures_util::poll!(follower.as_mut()).is_pending());

        moment().await;
        let relist = listed(world.writer.relist(), &[at("a/y", last.0)]);
        world.writer.replace(relist, last);
        prover.repair.begin(&newest(&world.writer));
        assert!(!prover.evidence.begin_following(), "the task goes on");
        let ended = timeout(Duration::from_secs(61), follower).await;
        assert!(ended.is_ok(), "explained: {is_explained}");
        assert!(world.relists.is_requested(), "explained: {is_explained}");
        assert!(prover.is_wrong(&newest(&world.writer)));
    }
}
