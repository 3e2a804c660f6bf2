//! The policy `Session`: which reads need no call, and when all objects are proven for all
//! sessions.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::model::object;
use crate::api::{EventType, ListPage, Object, ResourceVersion, Selection};
use crate::cache::Writer;
use crate::informer::freshness::plan::ListCosts;
use crate::informer::{
    Freshness, FreshnessPolicy, Proof, ProofError, ProofMethod, ProofRequest, relist_channel,
};
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, shutdown, upstream};

const KEYS: [&str; 6] = ["a/x", "a/y", "b/x", "b/y", "c/x", "c/y"];
/// How long the API server takes to answer.
const CALL: Duration = Duration::from_millis(20);

struct Server {
    version: u64,
    objects: Vec<Object>,
    /// The namespaces of the verification lists; `None` for all objects.
    listed: Vec<Option<String>>,
    /// True for a kubefan that answers by another policy than `strict`.
    is_unproven: bool,
    unproven_at: Option<Instant>,
}

struct Probe(Arc<Mutex<Server>>);

impl Server {
    fn check(&mut self) -> Result<(), upstream::Error> {
        if !self.is_unproven {
            return Ok(());
        }
        self.unproven_at = Some(Instant::now());
        let method = "any".to_owned();
        Err(upstream::Error::Unproven { method })
    }
}

impl FreshnessProbe for Probe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        sleep(CALL).await;
        let mut server = self.0.lock();
        server.check()?;
        Ok(ResourceVersion(server.version))
    }

    async fn verification_list(&self, scope: &Scope) -> Result<ListPage, upstream::Error> {
        sleep(CALL).await;
        let mut server = self.0.lock();
        server.listed.push(scope.namespace.clone());
        server.check()?;
        let namespace = scope.namespace.as_deref();
        let objects = server.objects.iter();
        let objects = objects
            .filter(|object| namespace.is_none_or(|namespace| object.key.namespace() == namespace));
        Ok(ListPage {
            resource_version: ResourceVersion(server.version),
            continue_token: None,
            items: objects.cloned().collect(),
        })
    }

    fn unproven_at(&self) -> Option<Instant> {
        self.0.lock().unproven_at
    }
}

struct World {
    freshness: Freshness<Probe>,
    server: Arc<Mutex<Server>>,
    writer: Writer,
}

impl World {
    /// A cache that is listed now, at version 10. The API server has the same objects at version
    /// 20. A list costs it as much as `list_cost` objects.
    fn new(policy: FreshnessPolicy, list_cost: usize) -> Self {
        let objects = KEYS.map(|key| object(key, &(format!("uid of {key}"), 4, "web")));
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let mut relist = writer.relist();
        objects.iter().for_each(|object| relist.add(object.clone()));
        writer.replace(relist, ResourceVersion(10));
        let server = Arc::new(Mutex::new(Server {
            version: 20,
            objects: objects.into(),
            listed: Vec::new(),
            is_unproven: false,
            unproven_at: None,
        }));
        let (relist, _) = relist_channel();
        let shutdown = Shutdown::new(shutdown::Config::default());
        let probe = Probe(Arc::clone(&server));
        let freshness = Freshness::new(probe, reader, relist, policy, shutdown);
        let costs = ListCosts {
            call: list_cost,
            ..ListCosts::default()
        };
        Self {
            freshness: freshness.with_list_costs(costs),
            server,
            writer,
        }
    }

    /// Proves the objects of a namespace, or all of them, for a request of `asked_at`.
    async fn prove(&self, namespace: Option<&str>, asked_at: Instant) -> Result<Proof, ProofError> {
        let namespace = namespace.map(str::to_owned);
        let request = ProofRequest {
            selection: Arc::new(Selection {
                namespace: namespace.clone(),
                ..Selection::default()
            }),
            scope: Scope {
                namespace,
                ..Scope::default()
            },
        };
        let proof = self.freshness.prove(request, asked_at, Duration::ZERO);
        proof.await
    }

    fn by_policy(&self, asked_at: Instant) -> Option<ProofMethod> {
        let proof = self.freshness.proof_by_policy(asked_at);
        proof.map(|proof| proof.method)
    }

    fn change(&mut self, version: u64) {
        let changed = object("a/x", &("uid of a/x".to_owned(), version, "web"));
        let applied = self.writer.apply(EventType::Modified, changed, None);
        applied.expect("in order");
    }

    /// Returns how many verification lists of all objects were sent.
    fn wholes(&self) -> usize {
        let server = self.server.lock();
        let listed = server.listed.iter();
        listed.filter(|namespace| namespace.is_none()).count()
    }
}

/// Lets time pass, and returns the present moment.
async fn moment() -> Instant {
    sleep(Duration::from_millis(1)).await;
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn the_caches_own_list_serves_sessions_that_are_older() {
    let before = Instant::now();
    moment().await;
    let world = World::new(FreshnessPolicy::Session, 0);
    let after = moment().await;
    for (asked_at, expected) in [
        (after, None),
        (before, Some(ProofMethod::Recent)),
        (after, None),
    ] {
        assert_eq!(world.by_policy(asked_at), expected);
    }
    for (asked_at, expected, calls) in [
        (before, ProofMethod::Recent, 0),
        (after, ProofMethod::VerificationList, 1),
    ] {
        let proof = world.prove(Some("b"), asked_at).await.expect("a proof");
        assert_eq!(proof.method, expected);
        assert_eq!(world.server.lock().listed.len(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn the_caches_own_list_serves_no_session_while_it_is_behind_a_later_proof() {
    for proven in [None, Some("b")] {
        let before = Instant::now();
        moment().await;
        let mut world = World::new(FreshnessPolicy::Session, 0);
        let proof = world.prove(proven, moment().await).await;
        let version = proof.expect("a proof").snapshot.resource_version();
        assert_eq!(version, ResourceVersion(20));
        for (changed, expected) in [(15, None), (25, Some(ProofMethod::Recent))] {
            world.change(changed);
            let found = world.by_policy(before);
            assert_eq!(found, expected, "{proven:?} was proven, change {changed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_policy_uses_a_proof_again_as_long_as_it_says() {
    const RECENT: Option<ProofMethod> = Some(ProofMethod::Recent);
    const ANY: Option<ProofMethod> = Some(ProofMethod::Any);
    let bounded = FreshnessPolicy::Bounded(Duration::from_secs(5));
    for (policy, expected) in [
        (FreshnessPolicy::Strict, [None, None, None]),
        (FreshnessPolicy::Session, [RECENT, None, RECENT]),
        (bounded, [RECENT, RECENT, None]),
        (FreshnessPolicy::Any, [ANY; 3]),
    ] {
        let world = World::new(policy, 0);
        let early = moment().await;
        world.prove(None, early).await.expect("a proof");
        let late = moment().await;
        let soon = [early, late].map(|asked_at| world.by_policy(asked_at));
        sleep(Duration::from_secs(6)).await;
        let found = [soon[0], soon[1], world.by_policy(early)];
        assert_eq!(found, expected, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_objects_are_proven_when_lists_of_some_have_cost_as_much() {
    for (policy, expected) in [
        (FreshnessPolicy::Session, [0, 0, 1, 1, 1, 2, 2]),
        (FreshnessPolicy::Strict, [0; 7]),
    ] {
        // Three lists cost as much as one of all six objects.
        let world = World::new(policy, 2);
        let (mut moments, mut wholes) = (Vec::new(), Vec::new());
        for _ in 0..expected.len() {
            let asked_at = moment().await;
            let proof = world.prove(Some("a"), asked_at).await.expect("a proof");
            assert_eq!(proof.method, ProofMethod::VerificationList);
            // The proof of all objects is made in the background.
            sleep(2 * CALL).await;
            moments.push(asked_at);
            wholes.push(world.wholes());
        }
        assert_eq!(wholes, expected, "{policy:?}");
        let served = moments.into_iter().map(|moment| world.by_policy(moment));
        let served = served.filter(Option::is_some).count();
        // Those that read before the last proof of all objects was requested.
        let expected = if wholes[6] > 0 { 6 } else { 0 };
        assert_eq!(served, expected, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_serves_no_session() {
    let before = Instant::now();
    moment().await;
    let world = World::new(FreshnessPolicy::Session, 0);
    assert_eq!(world.by_policy(before), Some(ProofMethod::Recent));
    {
        let mut server = world.server.lock();
        server.version = 10;
        server.objects.pop();
    }
    let proof = world.prove(None, moment().await).await;
    assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}");
    assert_eq!(world.by_policy(before), None);
}

#[tokio::test(start_paused = true)]
async fn a_kubefan_upstream_that_answers_with_older_states_proves_nothing() {
    for policy in [FreshnessPolicy::Session, FreshnessPolicy::Strict] {
        let before = Instant::now();
        moment().await;
        let mut world = World::new(policy, 0);
        // The answer to the cache's list comes.
        let answered_at = moment().await;
        {
            let mut server = world.server.lock();
            (server.is_unproven, server.unproven_at) = (true, Some(answered_at));
        }
        assert_eq!(world.by_policy(before), None, "{policy:?}");
        for namespace in [None, Some("a")] {
            let proof = world.prove(namespace, before).await;
            let is_refused = matches!(proof, Err(ProofError::UpstreamUnproven));
            assert!(is_refused, "{policy:?} {namespace:?}: {proof:?}");
        }
        // A later list is proven again.
        world.server.lock().is_unproven = false;
        let asked_at = moment().await;
        moment().await;
        let mut relist = world.writer.relist();
        let objects = world.server.lock().objects.clone();
        objects.into_iter().for_each(|object| relist.add(object));
        world.writer.replace(relist, ResourceVersion(20));
        let proof = world.prove(Some("a"), asked_at).await.expect("a proof");
        assert_eq!(world.server.lock().listed.len(), 2, "{policy:?}: no call");
        assert_eq!(proof.snapshot.resource_version(), ResourceVersion(20));
    }
}
