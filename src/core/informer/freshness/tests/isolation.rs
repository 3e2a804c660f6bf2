//! Selections of which the API server has other objects than the cache, also after a relist.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::model::object;
use crate::api::{
    EventType, LabelOperator, LabelRequirement, LabelSelector, ListPage, ResourceVersion, Selection,
};
use crate::cache::Writer;
use crate::informer::{
    Freshness, FreshnessPolicy, ProofError, ProofMethod, ProofRequest, RelistRequests,
    relist_channel,
};
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, shutdown, upstream};

const OBJECTS: [(&str, &str); 3] = [("a/w", "web"), ("a/d", "db"), ("b/w", "web")];
/// Longer than the time between two checks of an isolated selection.
const CHECK_DUE: Duration = Duration::from_secs(301);

/// An API server that leaves out the objects of one namespace in lists of one scope.
struct Server {
    version: Mutex<ResourceVersion>,
    /// The label selector of the lists that lack objects; `None` if all lists are right.
    wrong: Mutex<Option<&'static str>>,
    /// The label selectors of the received verification lists.
    listed: Mutex<Vec<String>>,
}

struct Probe(Arc<Server>);

impl FreshnessProbe for Probe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        Ok(*self.0.version.lock())
    }

    async fn verification_list(&self, scope: &Scope) -> Result<ListPage, upstream::Error> {
        self.0.listed.lock().push(scope.label_selector.clone());
        let is_wrong = *self.0.wrong.lock() == Some(scope.label_selector.as_str());
        let resource_version = *self.0.version.lock();
        sleep(Duration::from_millis(20)).await;
        let selected = |app: &str| {
            scope.label_selector.is_empty() || scope.label_selector == format!("app={app}")
        };
        let objects = OBJECTS.iter().filter(|(_, app)| selected(app));
        let objects = objects.filter(|(key, _)| !is_wrong || key.starts_with("a/"));
        Ok(ListPage {
            resource_version,
            continue_token: None,
            items: objects
                .map(|(key, app)| object(key, &((*key).to_owned(), 4, app)))
                .collect(),
        })
    }
}

struct World {
    freshness: Freshness<Probe>,
    server: Arc<Server>,
    writer: Writer,
    relists: RelistRequests,
}

impl World {
    /// A world in which lists with the label selector `wrong` lack objects.
    fn new(wrong: &'static str) -> Self {
        let (writer, reader) = cache::cache(cache::Config::default());
        let server = Arc::new(Server {
            version: Mutex::new(ResourceVersion(5)),
            wrong: Mutex::new(Some(wrong)),
            listed: Mutex::default(),
        });
        let (relist, relists) = relist_channel();
        let shutdown = Shutdown::new(shutdown::Config::default());
        let probe = Probe(Arc::clone(&server));
        let mut world = Self {
            freshness: Freshness::new(probe, reader, relist, FreshnessPolicy::Strict, shutdown),
            server,
            writer,
            relists,
        };
        world.relist();
        world
    }

    fn relist(&mut self) {
        self.relists.acknowledge();
        let mut relist = self.writer.relist();
        for (key, app) in OBJECTS {
            relist.add(object(key, &(key.to_owned(), 4, app)));
        }
        let version = *self.server.version.lock();
        self.writer.replace(relist, version);
    }

    /// Proves the objects with the label `app`, or all objects if it is empty. Returns the method,
    /// and the label selectors of the verification lists that were sent.
    async fn prove(&self, app: &str) -> (Result<ProofMethod, ProofError>, Vec<String>) {
        // Lists that began at the time of a request do not prove it.
        sleep(Duration::from_millis(1)).await;
        self.server.listed.lock().clear();
        let asked_at = Instant::now();
        let proof = self.freshness.prove(request(app), asked_at, Duration::ZERO);
        let proof = proof.await.map(|proof| proof.method);
        (proof, std::mem::take(&mut *self.server.listed.lock()))
    }

    /// Isolates the objects with the label `app`, by a relist that does not repair the difference.
    async fn isolate(&mut self, app: &str) {
        let (proof, _) = self.prove(app).await;
        assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}");
        assert!(self.relists.is_requested());
        assert!(!self.freshness.is_isolated(&request(app).selection));
        sleep(Duration::from_millis(1)).await;
        self.relist();
        let (proof, lists) = self.prove(app).await;
        assert!(matches!(proof, Err(ProofError::Isolated)), "{proof:?}");
        assert_eq!(lists.len(), 1);
        assert!(self.freshness.is_isolated(&request(app).selection));
    }
}

fn request(app: &str) -> ProofRequest {
    let requirement = LabelRequirement {
        key: "app".to_owned(),
        operator: LabelOperator::In(vec![app.to_owned()]),
    };
    let (requirements, label_selector) = match app {
        "" => (Vec::new(), String::new()),
        app => (vec![requirement], format!("app={app}")),
    };
    ProofRequest {
        selection: Arc::new(Selection {
            labels: LabelSelector { requirements },
            ..Selection::default()
        }),
        scope: Scope {
            label_selector,
            ..Scope::default()
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_difference_isolates_one_selection() {
    let mut world = World::new("app=web");
    world.isolate("web").await;
    assert!(!world.relists.is_requested(), "no relist repairs this");
    for _ in 0..4 {
        sleep(Duration::from_secs(61)).await;
        let (proof, lists) = world.prove("web").await;
        assert!(matches!(proof, Err(ProofError::Isolated)), "{proof:?}");
        assert!(lists.is_empty(), "no call: {lists:?}");
        let (proof, lists) = world.prove("db").await;
        assert!(proof.is_ok(), "{proof:?}");
        assert_eq!(lists, ["app=db"]);
    }
    assert!(!world.relists.is_requested());
    assert_eq!(world.freshness.isolated_selections(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_equal_list_ends_the_isolation() {
    let mut world = World::new("app=web");
    world.isolate("web").await;
    sleep(CHECK_DUE).await;
    // One of the readers checks the cache, and the others do not wait for it.
    let proofs = join_all([world.prove("web"), world.prove("web")]).await;
    let refused = |(proof, _): &(Result<_, _>, _)| matches!(proof, Err(ProofError::Isolated));
    assert!(proofs.iter().all(refused), "{proofs:?}");
    assert_eq!(
        proofs.iter().map(|(_, lists)| lists.len()).sum::<usize>(),
        1
    );
    *world.server.wrong.lock() = None;
    let (proof, lists) = world.prove("web").await;
    assert!(matches!(proof, Err(ProofError::Isolated)), "{proof:?}");
    assert!(lists.is_empty(), "{lists:?}");
    sleep(CHECK_DUE).await;
    let (proof, _) = world.prove("web").await;
    assert!(
        matches!(proof, Ok(ProofMethod::VerificationList)),
        "{proof:?}"
    );
    assert!(!world.freshness.is_isolated(&request("web").selection));
    assert!(!world.relists.is_requested());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_watch_has_reached_does_not_end_the_isolation() {
    let mut world = World::new("app=web");
    world.isolate("web").await;
    sleep(CHECK_DUE).await;
    world.server.version.lock().0 = 100;
    let passes = async {
        sleep(Duration::from_millis(10)).await;
        let added = object("c/d", &("c/d".to_owned(), 101, "db"));
        world
            .writer
            .apply(EventType::Added, added, None)
            .expect("in order");
    };
    let request = request("web");
    let selection = Arc::clone(&request.selection);
    let proof = world
        .freshness
        .prove(request, Instant::now(), Duration::ZERO);
    let (proof, ()) = tokio::join!(proof, passes);
    assert!(matches!(proof, Err(ProofError::Isolated)), "{proof:?}");
    assert!(world.freshness.is_isolated(&selection));
}

#[tokio::test(start_paused = true)]
async fn a_difference_is_noticed_when_the_watch_passes_the_list_without_a_change() {
    let mut world = World::new("app=web");
    // Other resources change, so the list's version is above that of the cache.
    world.server.version.lock().0 = 100;
    let bookmark = async {
        sleep(Duration::from_secs(1)).await;
        world
            .writer
            .bookmark(ResourceVersion(200))
            .expect("in order");
    };
    let proof = world
        .freshness
        .prove(request("web"), Instant::now(), Duration::ZERO);
    let (proof, ()) = tokio::join!(proof, bookmark);
    assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}");
    assert!(world.relists.is_requested());
}

#[tokio::test(start_paused = true)]
async fn other_selections_are_listed_separately_while_that_of_everything_is_isolated() {
    let mut world = World::new("");
    world.isolate("").await;
    // Only a list proves these, because the cache has not reached the version.
    world.server.version.lock().0 = 100;
    let proofs = join_all(["web", "db"].map(|app| {
        let freshness = &world.freshness;
        freshness.prove(request(app), Instant::now(), Duration::ZERO)
    }));
    for proof in proofs.await {
        let proof = proof.map(|proof| proof.method);
        assert!(
            matches!(proof, Ok(ProofMethod::VerificationList)),
            "{proof:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_that_has_to_wait_is_requested_even_if_no_reader_asks() {
    let mut world = World::new("app=web");
    let (proof, _) = world.prove("web").await;
    assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}");
    world.relist();
    *world.server.wrong.lock() = Some("");
    *world.server.version.lock() = ResourceVersion(7);
    world.writer.bookmark(ResourceVersion(7)).expect("in order");
    sleep(Duration::from_secs(30)).await;
    let (proof, _) = world.prove("").await;
    assert!(matches!(proof, Err(ProofError::CacheDiffers)), "{proof:?}");
    assert!(!world.relists.is_requested());
    sleep(Duration::from_secs(31)).await;
    assert!(world.relists.is_requested());
}
