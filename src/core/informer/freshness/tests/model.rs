//! A random model of freshness: an etcd with its history, an API server that answers consistently
//! but has a delayed watch, a cache, and clients that read the most recent state.
//!
//! An answer must contain each write that was acknowledged before the request, and no object that
//! was deleted before. A watch from a proof must always show a state of etcd, and so must each
//! later page of any list. Another test switches each rule off, and checks that the model finds a
//! wrong answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::api::{
    EventType, LabelOperator, LabelRequirement, LabelSelector, ListPage, Object, ObjectKey,
    ObjectValues, ResourceVersion, Selection,
};
use crate::cache::{EpochCause, Reader, Snapshot, WatchItem, Writer};
use crate::informer::freshness::plan::ListCosts;
use crate::informer::{
    Freshness, FreshnessPolicy, ProofError, ProofRequest, RelistRequests, relist_channel,
};
use crate::mutation::Mutation;
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, mutation, shutdown, upstream};

const CASES: u64 = 150;
/// Seeds whose etcd is restored while a relist and a proof are in flight, which few seeds have.
const OVERTAKEN: [u64; 5] = [2873, 5658, 7344, 10769, 12206];
const CLIENTS: u64 = 6;
const KEYS: [&str; 5] = ["a/x", "a/y", "a-b/x", "b/x", "b/z"];
const APPS: [&str; 2] = ["web", "db"];
/// How long etcd changes and clients read. The reflector runs 10 s longer, so that it delivers all
/// changes.
const RUN_TIME: Duration = Duration::from_secs(20);

/// The uid, resource version and label `app` of each object, by key.
type Objects = BTreeMap<&'static str, (String, u64, &'static str)>;

/// An etcd that keeps the objects at each revision.
#[derive(Default)]
struct Etcd {
    /// The number of the history, which each restore increases.
    history: u32,
    states: BTreeMap<u64, Objects>,
    uids: u64,
}

impl Etcd {
    fn revision(&self) -> u64 {
        self.states.keys().next_back().copied().unwrap_or(1)
    }

    fn at(&self, revision: u64) -> Objects {
        let mut states = self.states.range(..=revision);
        states
            .next_back()
            .map(|(_, objects)| objects.clone())
            .unwrap_or_default()
    }

    fn write(&mut self, change: impl FnOnce(&mut Objects, u64, u64)) {
        let revision = self.revision();
        let mut objects = self.at(revision);
        self.uids += 1;
        change(&mut objects, revision + 1, self.uids);
        self.states.insert(revision + 1, objects);
    }

    /// Makes one random change.
    fn change(&mut self, rng: &mut StdRng) {
        let key = KEYS[rng.random_range(0..KEYS.len())];
        let app = APPS[rng.random_range(0..APPS.len())];
        match rng.random_range(0..10) {
            // A change of another resource: the revision grows, and the objects stay.
            0..=2 => self.write(|_, _, _| {}),
            3..=5 => self.write(|objects, revision, uid| {
                let old = objects.get(key).map(|(uid, _, _)| uid.clone());
                let uid = old.unwrap_or_else(|| format!("u{uid}"));
                objects.insert(key, (uid, revision, app));
            }),
            6..=7 => self.write(|objects, _, _| drop(objects.remove(key))),
            // An object is deleted, created with another uid, and perhaps deleted again at once.
            _ => {
                self.write(|objects, _, _| drop(objects.remove(key)));
                self.write(|objects, revision, uid| {
                    objects.insert(key, (format!("u{uid}"), revision, app));
                });
                if rng.random_bool(0.5) {
                    self.write(|objects, _, _| drop(objects.remove(key)));
                }
            }
        }
    }

    fn restore(&mut self, back: u64) {
        let revision = self.revision().saturating_sub(back).max(1);
        self.states.split_off(&(revision + 1));
        self.history += 1;
        // Objects that the restored etcd creates get other uids than the lost ones.
        self.uids += 1000;
    }
}

pub(super) fn object(key: &str, (uid, version, app): &(String, u64, &'static str)) -> Object {
    let (namespace, name) = key.split_once('/').expect("a namespace");
    let values = ObjectValues {
        uid: uid.into(),
        labels: vec![("app".into(), (*app).into())],
        fields: Vec::new(),
    };
    let key = ObjectKey::new(Some(namespace), name);
    let body = format!("{uid} {version} {app}").into();
    Object::new(key, ResourceVersion(*version), &values, body)
}

fn is_selected(request: &ProofRequest, key: &str, app: &str) -> bool {
    let scope = &request.scope;
    let namespace = scope.namespace.as_deref();
    namespace.is_none_or(|namespace| key.starts_with(&format!("{namespace}/")))
        && (scope.label_selector.is_empty() || scope.label_selector == format!("app={app}"))
}

/// The uid and resource version of each object, as text, by key.
type ObjectStates = BTreeMap<String, String>;

fn key_and_state(item: &Object) -> (String, String) {
    let state = format!("{} {}", item.uid(), item.resource_version);
    (item.key.to_string(), state)
}

fn selected(request: &ProofRequest, objects: &Objects) -> ObjectStates {
    let objects = objects.iter();
    let objects = objects.filter(|(key, (_, _, app))| is_selected(request, key, app));
    objects
        .map(|(key, (uid, version, _))| ((*key).to_owned(), format!("{uid} {version}")))
        .collect()
}

fn random_request(rng: &mut StdRng) -> ProofRequest {
    let namespace = [None, None, Some("a"), Some("b")][rng.random_range(0..4)];
    let app = [None, None, Some("web")][rng.random_range(0..3)];
    let requirement = app.map(|app| LabelRequirement {
        key: "app".to_owned(),
        operator: LabelOperator::In(vec![app.to_owned()]),
    });
    ProofRequest {
        selection: Arc::new(Selection {
            namespace: namespace.map(str::to_owned),
            labels: LabelSelector {
                requirements: requirement.into_iter().collect(),
            },
            ..Selection::default()
        }),
        scope: Scope {
            namespace: namespace.map(str::to_owned),
            label_selector: app.map(|app| format!("app={app}")).unwrap_or_default(),
            field_selector: String::new(),
        },
    }
}

/// How the clients of a run read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Any objects, from the proven snapshots.
    Lists,
    /// As `Lists`, but this breaks the rule that a proof is a pair: clients combine its version
    /// with a later snapshot.
    TornPairs,
    /// All objects, as the GETs of a crowd are proven. The API server answers within milliseconds.
    Crowd,
}

/// An API server that answers with the state at a random moment between request and answer.
struct Probe {
    etcd: Arc<Mutex<Etcd>>,
    /// The longest times before and after that moment, in milliseconds.
    max_delays: [u64; 2],
    rng: Mutex<StdRng>,
}

impl Probe {
    async fn delay(&self, max_ms: u64) {
        let milliseconds = self.rng.lock().random_range(0..=max_ms);
        sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Returns an error in 3 % of the calls.
    fn maybe_fail(&self) -> Result<(), upstream::Error> {
        if self.rng.lock().random_bool(0.03) {
            Err(upstream::Error::Timeout(Duration::ZERO))
        } else {
            Ok(())
        }
    }
}

impl FreshnessProbe for Probe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        let [before, after] = self.max_delays;
        self.delay(before).await;
        let revision = self.etcd.lock().revision();
        self.maybe_fail()?;
        self.delay(after).await;
        Ok(ResourceVersion(revision))
    }

    async fn verification_list(&self, scope: &Scope) -> Result<ListPage, upstream::Error> {
        let [before, after] = self.max_delays;
        self.delay(before).await;
        let request = ProofRequest {
            selection: Arc::default(),
            scope: scope.clone(),
        };
        let page = {
            let etcd = self.etcd.lock();
            let objects = etcd.at(etcd.revision());
            let items = objects.iter();
            let items = items.filter(|(key, (_, _, app))| is_selected(&request, key, app));
            ListPage {
                resource_version: ResourceVersion(etcd.revision()),
                continue_token: None,
                items: items.map(|(key, item)| object(key, item)).collect(),
            }
        };
        self.maybe_fail()?;
        self.delay(after).await;
        Ok(page)
    }
}

/// A reflector that follows etcd with a random lag, lists again at random, and notices restores
/// late.
struct Reflector {
    etcd: Arc<Mutex<Etcd>>,
    writer: Writer,
    relists: RelistRequests,
    history: u32,
    /// The revision up to which the watch has read. The cache's version may be lower, because
    /// events of other resources do not reach the cache.
    position: u64,
    rng: StdRng,
}

impl Reflector {
    /// Lists, with the state at a random moment between request and answer.
    async fn list(&mut self) {
        self.relists.acknowledge();
        let mut relist = self.writer.relist();
        self.delay(60).await;
        let revision = {
            let etcd = self.etcd.lock();
            let revision = etcd.revision();
            for (key, item) in &etcd.at(revision) {
                relist.add(object(key, item));
            }
            self.history = etcd.history;
            self.position = revision;
            revision
        };
        self.delay(300).await;
        self.writer.replace(relist, ResourceVersion(revision));
    }

    async fn delay(&mut self, max_ms: u64) {
        let milliseconds = self.rng.random_range(0..=max_ms);
        sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Reads one more revision of etcd, if there is one, and applies its changes to the cache.
    fn follow(&mut self) {
        let etcd = self.etcd.lock();
        if self.position >= etcd.revision() {
            return;
        }
        let (before, after) = (etcd.at(self.position), etcd.at(self.position + 1));
        self.position += 1;
        drop(etcd);
        let version = ResourceVersion(self.position);
        let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
        let new = after
            .iter()
            .filter(|(key, item)| before.get(*key) != Some(*item));
        let mut changes = 0;
        for (key, item) in gone {
            let mut last = object(key, item);
            last.resource_version = version;
            self.writer
                .apply(EventType::Deleted, last, None)
                .expect("in order");
            changes += 1;
        }
        for (key, item) in new {
            let object = object(key, item);
            self.writer
                .apply(EventType::Modified, object, None)
                .expect("in order");
            changes += 1;
        }
        // Changes of other resources move the cache's version only by occasional bookmarks.
        if changes == 0 && self.rng.random_bool(0.1) {
            self.writer.bookmark(version).expect("in order");
        }
    }

    async fn run(mut self, until: Instant) -> Self {
        self.list().await;
        while Instant::now() < until {
            let lag = match self.rng.random_range(0..6) {
                0 => self.rng.random_range(100..1500),
                _ => self.rng.random_range(0..40),
            };
            sleep(Duration::from_millis(lag)).await;
            let is_other = self.history != self.etcd.lock().history;
            if is_other && self.rng.random_bool(0.3) {
                let cause = EpochCause::WentBack;
                self.writer.new_epoch(cause);
                self.delay(300).await;
                self.list().await;
            } else if is_other {
                // The reflector has not noticed the restore yet.
            } else if self.relists.is_requested() || self.rng.random_bool(0.05) {
                self.list().await;
            } else {
                self.follow();
            }
        }
        self
    }
}

/// The description of a wrong answer; `None` if all answers were right.
type BrokenRule = Option<String>;

struct World {
    etcd: Arc<Mutex<Etcd>>,
    freshness: Arc<Freshness<Probe>>,
    reader: Reader,
    reads: Reads,
}

impl World {
    /// Reads repeatedly until `until`. Returns the number of proven answers and the first wrong
    /// one.
    async fn client(&self, mut rng: StdRng, until: Instant) -> (u32, BrokenRule) {
        let mut proven = 0;
        let mut pages = rng.clone();
        let mut listed = Vec::new();
        while Instant::now() < until {
            sleep(Duration::from_millis(rng.random_range(0..800))).await;
            let request = match self.reads {
                Reads::Crowd => ProofRequest::default(),
                Reads::Lists | Reads::TornPairs => random_request(&mut rng),
            };
            let (history, acknowledged) = self.now();
            let asked_at = Instant::now();
            self.acquire(&mut rng).await;
            let min_interval = Duration::from_millis(100 * rng.random_range(0..2));
            let freshness = &self.freshness;
            let proof = match self.reads {
                Reads::Crowd => freshness.prove_soon().await.ok_or(ProofError::TimedOut),
                Reads::Lists | Reads::TornPairs => {
                    let proof = freshness.prove(request.clone(), asked_at, min_interval);
                    proof.await
                }
            };
            let broken = match proof {
                // After a restore, a cache may differ at an equal version without being wrong.
                Err(ProofError::CacheDiffers) if history == 0 && self.now().0 == 0 => {
                    Some("the cache was found wrong".to_owned())
                }
                Err(_) => None,
                Ok(proof) => {
                    proven += 1;
                    self.reader.pin(&proof.snapshot);
                    if history == 0 {
                        listed.push(proof.snapshot.resource_version());
                    }
                    let snapshot = self.consume(&request, proof.snapshot, &mut rng).await;
                    // If etcd was restored during the request, the state before and the state after
                    // the restore are both right, so the answer is not checked.
                    if self.now().0 == history {
                        match self.check(&request, &snapshot, acknowledged) {
                            None => self.watch(&request, snapshot, &mut rng).await,
                            broken => broken,
                        }
                    } else {
                        None
                    }
                }
            };
            let broken = broken.or_else(|| self.next_page(&listed, &mut pages));
            if broken.is_some() {
                return (proven, broken);
            }
        }
        (proven, None)
    }

    /// Reads the next page of some list at one of the last versions that were `listed`. Its other
    /// pages are no concern here: all objects of the list are compared. After a restore the API
    /// server may continue lists of the old history too, so pages are not checked any more.
    fn next_page(&self, listed: &[ResourceVersion], rng: &mut StdRng) -> BrokenRule {
        let last = rng.random_range(1..4_usize);
        let version = *listed.get(listed.len().checked_sub(last)?)?;
        let request = random_request(rng);
        let snapshot = self.reader.snapshot_at(version, &request.selection)?;
        let is_first_history = self.now().0 == 0;
        let broken = is_first_history.then(|| self.check(&request, &snapshot, 0))?;
        broken.map(|broken| format!("a later page: {broken}"))
    }

    /// Waits until the cache is ready, and sometimes longer, so that a list may be sent meanwhile.
    async fn acquire(&self, rng: &mut StdRng) {
        if rng.random_bool(0.3) {
            sleep(Duration::from_millis(rng.random_range(0..300))).await;
        }
        self.reader.ready().await;
    }

    fn now(&self) -> (u32, u64) {
        let etcd = self.etcd.lock();
        (etcd.history, etcd.revision())
    }

    /// The snapshot that the client uses: the proven one, or with `TornPairs` a later one under the
    /// proven version.
    async fn consume(
        &self,
        request: &ProofRequest,
        snapshot: Snapshot,
        rng: &mut StdRng,
    ) -> Snapshot {
        sleep(Duration::from_millis(rng.random_range(0..50))).await;
        match self.reader.snapshot() {
            Some(later) if self.reads == Reads::TornPairs => {
                let version = snapshot.resource_version();
                self.reader.proven_at(&later, version, &request.selection)
            }
            _ => snapshot,
        }
    }

    fn check(&self, request: &ProofRequest, snapshot: &Snapshot, acknowledged: u64) -> BrokenRule {
        let version = snapshot.resource_version().0;
        let expected = selected(request, &self.etcd.lock().at(version));
        let items = snapshot.list(&request.selection, None);
        let states: ObjectStates = items.map(|item| key_and_state(&item)).collect();
        (version < acknowledged || states != expected).then(|| {
            let scope = &request.scope;
            format!("{scope:?} at {version} after {acknowledged}: {states:?} is not {expected:?}")
        })
    }

    /// Watches from the proven snapshot for a random time, and folds the events into a map. Checks
    /// that a bookmark's version and the map agree with etcd.
    async fn watch(
        &self,
        request: &ProofRequest,
        snapshot: Snapshot,
        rng: &mut StdRng,
    ) -> BrokenRule {
        let history = self.etcd.lock().history;
        let stream = self
            .reader
            .watch_snapshot(snapshot, Arc::clone(&request.selection));
        let Ok(mut stream) = stream else { return None };
        let mut folded = ObjectStates::new();
        let until = Instant::now() + Duration::from_millis(rng.random_range(0..3000));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(Some(item)) = timeout(left, stream.next()).await else {
                break;
            };
            match item {
                WatchItem::Expired(_) => return None,
                WatchItem::InitialEnd(_) => {}
                WatchItem::Initial(item) => folded.extend([key_and_state(&item)]),
                WatchItem::Change { event, verdict } => {
                    let item = event.object_for(verdict);
                    let was_shown = folded.remove(item.key.as_str()).is_some();
                    match verdict {
                        EventType::Deleted if !was_shown => {
                            return Some(format!("{} is deleted, but was never sent", item.key));
                        }
                        EventType::Deleted => {}
                        EventType::Added | EventType::Modified => {
                            folded.extend([key_and_state(item)])
                        }
                    }
                }
            }
        }
        // If the stream allows a bookmark, the client must have all changes up to its version.
        let bookmark = stream.bookmark()?;
        let etcd = self.etcd.lock();
        let expected = selected(request, &etcd.at(bookmark.0));
        (etcd.history == history && folded != expected).then(|| {
            let scope = &request.scope;
            format!("a watch of {scope:?} at {bookmark}: {folded:?} is not {expected:?}")
        })
    }
}

/// Runs the model with `seed`. Returns the number of proven answers, and the first wrong one.
async fn run_world(seed: u64, reads: Reads) -> (u32, BrokenRule) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut fork = || StdRng::seed_from_u64(rng.random());
    let (writer, reader) = cache::cache(cache::Config::default());
    let etcd = Arc::<Mutex<Etcd>>::default();
    let (relist, relists) = relist_channel();
    let reflector = Reflector {
        etcd: Arc::clone(&etcd),
        writer,
        relists,
        history: 0,
        position: 0,
        rng: fork(),
    };
    let probe = Probe {
        etcd: Arc::clone(&etcd),
        max_delays: match reads {
            Reads::Crowd => [5, 10],
            Reads::Lists | Reads::TornPairs => [60, 200],
        },
        rng: Mutex::new(fork()),
    };
    let freshness = Freshness::new(
        probe,
        reader.clone(),
        relist,
        FreshnessPolicy::Strict,
        Shutdown::new(shutdown::Config::default()),
    );
    // With half of the seeds, concurrent requests are listed separately even though the cache is
    // small.
    let freshness = Arc::new(match seed % 2 {
        0 => freshness,
        _ => freshness.with_list_costs(ListCosts {
            call: 0,
            whole_divisor: 1,
        }),
    });
    let until = Instant::now() + RUN_TIME;
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let world = World {
            etcd: Arc::clone(&etcd),
            freshness: Arc::clone(&freshness),
            reader: reader.clone(),
            reads,
        };
        let rng = fork();
        tasks.spawn(async move { world.client(rng, until).await });
    }
    let following = tokio::spawn(reflector.run(until + Duration::from_secs(10)));
    let mut writer = fork();
    // The reflector notices restores late. A barrier alone does not show one if etcd has just the
    // version of the cache again.
    let restores = writer.random_bool(0.3) && reads != Reads::Crowd;
    while Instant::now() < until {
        let pause = match writer.random_range(0..8) {
            0 => writer.random_range(500..4000),
            _ => writer.random_range(0..60),
        };
        sleep(Duration::from_millis(pause)).await;
        let mut etcd = etcd.lock();
        if restores && writer.random_bool(0.02) {
            etcd.restore(writer.random_range(0..20))
        } else {
            etcd.change(&mut writer)
        }
    }
    let outcomes = tasks.join_all().await;
    following.await.expect("the reflector").writer.close();
    let broken = outcomes.iter().find_map(|(_, broken)| broken.clone());
    (outcomes.iter().map(|(proven, _)| proven).sum(), broken)
}

fn run(seed: u64, reads: Reads) -> (u32, BrokenRule) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(run_world(seed, reads))
}

fn cases() -> u64 {
    let given = std::env::var("PROPTEST_CASES").ok();
    given.and_then(|cases| cases.parse().ok()).unwrap_or(CASES)
}

#[test]
fn consistent_answers_show_a_state_no_older_than_the_request() {
    let mut all = 0;
    for seed in (0..cases()).chain(OVERTAKEN) {
        let (proven, broken) = run(seed, Reads::Lists);
        assert_eq!(broken, None, "seed {seed}");
        all += proven;
    }
    assert!(all > 20 * cases() as u32, "only {all} were proven");
}

#[test]
fn crowds_are_shown_a_state_no_older_than_their_requests() {
    let mut all = 0;
    for seed in 0..cases() {
        let (proven, broken) = run(seed, Reads::Crowd);
        assert_eq!(broken, None, "seed {seed}");
        all += proven;
    }
    assert!(all > 0, "no crowd was proven");
}

#[test]
fn the_model_notices_each_broken_rule() {
    let is_noticed =
        |run: &dyn Fn(u64) -> (u32, BrokenRule)| (0..CASES).any(|seed| run(seed).1.is_some());
    for rule in [
        Mutation::MissingKeysIgnored,
        Mutation::AcrossHistories,
        Mutation::ListDatedAtEnd,
        Mutation::PartPinnedAsWhole,
    ] {
        let broken = |seed| mutation::with(rule, || run(seed, Reads::Lists));
        assert!(is_noticed(&broken), "{rule:?} was not noticed");
    }
    assert!(
        is_noticed(&|seed| run(seed, Reads::TornPairs)),
        "a torn pair was not noticed"
    );
    let rule = Mutation::ListInFlightProven;
    let is_noticed = OVERTAKEN.iter().any(|seed| {
        mutation::with(rule, || run(*seed, Reads::Lists))
            .1
            .is_some()
    });
    assert!(is_noticed, "{rule:?} was not noticed");
}
