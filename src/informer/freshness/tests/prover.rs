//! Which questions a proof takes, of a cache that is too large to be verified at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::api::ListPage;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::cache;
use crate::cache::Writer;
use crate::informer::Asked;
use crate::informer::Freshness;
use crate::informer::FreshnessPolicy;
use crate::informer::ProofMethod;
use crate::informer::Unproven;
use crate::informer::relist_channel;
use crate::shutdown;
use crate::shutdown::Shutdown;
use crate::upstream;
use crate::upstream::FreshnessProbe;
use crate::upstream::Scope;

use super::model::object;

const OBJECTS: usize = 501;
/// How long a list takes.
const LISTING: Duration = Duration::from_millis(50);

/// How the API server answers a verification list.
#[derive(Clone, Copy)]
enum Listing {
    /// With what the cache has.
    Same,
    /// With an object that the cache lacks.
    OneMore,
    NotAcceptable,
    TimedOut,
}

/// The API server.
struct Server {
    listing: Listing,
    current: Mutex<ResourceVersion>,
    asked: Mutex<Vec<&'static str>>,
}

struct Probe(Arc<Server>);

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Proven(ProofMethod),
    Differs,
    TimedOut,
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
        self.0.asked.lock().push("barrier");
        Ok(*self.0.current.lock())
    }

    async fn verification_list(&self, _: &Scope) -> Result<ListPage, upstream::Error> {
        self.0.asked.lock().push("list");
        sleep(LISTING).await;
        let current = *self.0.current.lock();
        match self.0.listing {
            Listing::Same => Ok(page(current, OBJECTS)),
            Listing::OneMore => Ok(page(current, OBJECTS + 1)),
            Listing::NotAcceptable => Err(upstream::Error::Answer {
                status: Box::new(Status::failure(406, "NotAcceptable", "")),
                retry_after: None,
            }),
            Listing::TimedOut => Err(upstream::Error::Timeout(Duration::ZERO)),
        }
    }
}

struct World {
    freshness: Freshness<Probe>,
    writer: Writer,
    server: Arc<Server>,
}

impl World {
    fn new(listing: Listing) -> Self {
        let (mut writer, reader) = cache::cache(cache::Config {
            indexed_labels: Vec::new(),
            field_count: 0,
            retention_age: Duration::from_secs(75),
            retention_bytes: None,
            retention_events: 100,
        });
        let current = ResourceVersion(1000);
        let mut relist = writer.relist();
        let items = page(current, OBJECTS).items;
        items.into_iter().for_each(|item| relist.add(item));
        writer.replace(relist, current);
        let server = Arc::new(Server {
            listing,
            current: Mutex::new(current),
            asked: Mutex::default(),
        });
        let probe = Probe(Arc::clone(&server));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let (relist, _) = relist_channel();
        let policy = FreshnessPolicy::Strict;
        Self {
            freshness: Freshness::new(probe, reader, relist, policy, shutdown),
            writer,
            server,
        }
    }

    /// How the next question was proven, after another resource's change, and what the API server was
    /// asked. The watch comes to that change after `reached` milliseconds.
    async fn prove(&mut self, reached: Option<u64>) -> (Outcome, Vec<&'static str>) {
        self.server.asked.lock().clear();
        let current = {
            let mut current = self.server.current.lock();
            current.0 += 1000;
            *current
        };
        let watch = async {
            if let Some(reached) = reached {
                sleep(Duration::from_millis(reached)).await;
                self.writer.bookmark(current).expect("in order");
            }
        };
        let asked = Asked {
            selection: Arc::default(),
            scope: Scope::default(),
        };
        let proof = self.freshness.prove(asked, Duration::ZERO);
        let (proof, ()) = tokio::join!(proof, watch);
        let asked = self.server.asked.lock().clone();
        let outcome = match proof {
            Ok(proof) => Outcome::Proven(proof.method),
            Err(Unproven::CacheDiffers) => Outcome::Differs,
            Err(Unproven::TimedOut) => Outcome::TimedOut,
            Err(unproven) => panic!("{unproven}"),
        };
        (outcome, asked)
    }
}

const BY_BARRIER: Outcome = Outcome::Proven(ProofMethod::Barrier);
const BY_LIST: Outcome = Outcome::Proven(ProofMethod::VerificationList);

#[tokio::test(start_paused = true)]
async fn a_barrier_that_the_watch_reaches_soon_is_all_that_is_asked() {
    let mut world = World::new(Listing::Same);
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn a_list_proves_what_the_watch_does_not_and_comes_first_for_a_while() {
    let mut world = World::new(Listing::Same);
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["barrier", "list"]));
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["list"]));
    sleep(Duration::from_secs(11)).await;
    assert_eq!(world.prove(None).await, (BY_LIST, vec!["barrier", "list"]));
    // The watch is there when the list is.
    assert_eq!(world.prove(Some(10)).await, (BY_LIST, vec!["list"]));
    assert_eq!(world.prove(Some(5)).await, (BY_BARRIER, vec!["barrier"]));
}

#[tokio::test(start_paused = true)]
async fn the_watch_may_be_faster_than_the_list() {
    let mut world = World::new(Listing::Same);
    let expected = (BY_BARRIER, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(30)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_list_the_watch_is_waited_for() {
    let mut world = World::new(Listing::TimedOut);
    for _ in 0..2 {
        let expected = (BY_BARRIER, vec!["barrier", "list"]);
        assert_eq!(world.prove(Some(500)).await, expected);
    }
    let mut world = World::new(Listing::NotAcceptable);
    let expected = (BY_BARRIER, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
    assert_eq!(world.prove(Some(500)).await, (BY_BARRIER, vec!["barrier"]));
    sleep(Duration::from_secs(301)).await;
    let expected = (BY_BARRIER, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn only_at_its_own_version_a_list_shows_that_the_cache_is_wrong() {
    let mut world = World::new(Listing::OneMore);
    let expected = (Outcome::TimedOut, vec!["barrier", "list"]);
    assert_eq!(world.prove(None).await, expected);
    let expected = (Outcome::Differs, vec!["barrier", "list"]);
    assert_eq!(world.prove(Some(500)).await, expected);
}
