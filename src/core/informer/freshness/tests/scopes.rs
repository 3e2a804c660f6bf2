//! Requests of different scopes that are made together, and the time limit of large lists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::api::{ListPage, Object, ObjectKey, ObjectValues, ResourceVersion, Selection};
use crate::cache::Writer;
use crate::informer::{Freshness, FreshnessPolicy, ProofError, ProofRequest, relist_channel};
use crate::shutdown::Shutdown;
use crate::upstream::{FreshnessProbe, Scope};
use crate::{cache, shutdown, upstream};

/// An API server with objects in numbered namespaces. Its current version is above the cache's,
/// because other resources change, so only a list proves the cache.
struct Server {
    objects: Vec<Object>,
    list_duration: Duration,
    /// The duration of a list of all namespaces.
    whole_duration: Duration,
    /// The scopes of the verification lists; an empty text for all namespaces.
    listed: Mutex<Vec<String>>,
}

struct Probe(Arc<Server>);

impl FreshnessProbe for Probe {
    async fn barrier(&self) -> Result<ResourceVersion, upstream::Error> {
        Ok(ResourceVersion(1000))
    }

    async fn verification_list(&self, scope: &Scope) -> Result<ListPage, upstream::Error> {
        let namespace = scope.namespace.clone().unwrap_or_default();
        let objects = self.0.objects.iter();
        let objects = objects
            .filter(|object| namespace.is_empty() || object.key.namespace() == namespace.as_str());
        let items = objects.cloned().collect();
        let duration = if namespace.is_empty() {
            self.0.whole_duration
        } else {
            self.0.list_duration
        };
        self.0.listed.lock().push(namespace);
        sleep(duration).await;
        Ok(ListPage {
            resource_version: ResourceVersion(1000),
            continue_token: None,
            items,
        })
    }
}

struct World {
    freshness: Freshness<Probe>,
    server: Arc<Server>,
    _writer: Writer,
}

impl World {
    /// `namespaces` namespaces with ten objects each, all with the body `body`.
    fn new(namespaces: usize, body: &Bytes, list_duration: Duration) -> Self {
        Self::with_durations(namespaces, body, (list_duration, list_duration))
    }

    /// The same, with the durations of a list of a namespace and of one of all.
    fn with_durations(
        namespaces: usize,
        body: &Bytes,
        (list_duration, whole_duration): (Duration, Duration),
    ) -> Self {
        let object = |number: usize| {
            let key = ObjectKey::new(Some(&format!("n{}", number / 10)), &format!("o{number}"));
            let uid = format!("u{number}");
            let values = ObjectValues {
                uid: uid.as_str().into(),
                labels: Vec::new(),
                fields: Vec::new(),
            };
            Object::new(key, ResourceVersion(4), &values, body.clone())
        };
        let server = Arc::new(Server {
            objects: (0..10 * namespaces).map(object).collect(),
            list_duration,
            whole_duration,
            listed: Mutex::default(),
        });
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let mut relist = writer.relist();
        let objects = server.objects.iter().cloned();
        objects.for_each(|object| relist.add(object));
        writer.replace(relist, ResourceVersion(5));
        let (relist, _) = relist_channel();
        let freshness = Freshness::new(
            Probe(Arc::clone(&server)),
            reader,
            relist,
            FreshnessPolicy::Strict,
            Shutdown::new(shutdown::Config::default()),
        );
        Self {
            freshness,
            server,
            _writer: writer,
        }
    }

    /// Proves `namespace`, and returns the number of its objects in the proof.
    async fn prove(&self, namespace: Option<String>) -> Result<usize, ProofError> {
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
        let selection = Arc::clone(&request.selection);
        let proof = self
            .freshness
            .prove(request, Instant::now(), Duration::ZERO)
            .await?;
        Ok(proof.snapshot.list(&selection, None).count())
    }
}

#[tokio::test(start_paused = true)]
async fn scopes_that_are_requested_together_are_listed_separately_if_that_is_cheaper() {
    for (namespaces, requested, expects_scopes) in [
        (500, 3, true),
        (500, 10, true),
        // 20 lists cost more than a quarter of a list of 5,000 objects.
        (500, 20, false),
        (20, 3, false),
    ] {
        let world = World::new(namespaces, &Bytes::new(), Duration::from_millis(50));
        // The first two requests cause a call each. All others are made meanwhile, so they share
        // the third.
        let warmup = ["n0", "n1"].map(|name| world.prove(Some(name.to_owned())));
        let others = (2..2 + requested).map(|number| world.prove(Some(format!("n{number}"))));
        let (_, proofs) = tokio::join!(join_all(warmup), async {
            sleep(Duration::from_millis(20)).await;
            join_all(others).await
        });
        let case = format!("{requested} of {namespaces} namespaces");
        for proof in proofs {
            assert_eq!(proof.expect("a proof"), 10, "{case}");
        }
        let listed = world.server.listed.lock();
        let listed: BTreeSet<_> = listed.iter().skip(2).cloned().collect();
        let expected: BTreeSet<_> = if expects_scopes {
            (2..2 + requested)
                .map(|number| format!("n{number}"))
                .collect()
        } else {
            [String::new()].into()
        };
        assert_eq!(listed, expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proof_may_take_as_long_as_a_direct_list_would() {
    let large = Bytes::from(vec![0; 500_000]);
    for (body, seconds, is_proven) in [
        (Bytes::new(), 2, true),
        (Bytes::new(), 4, false),
        // 200 objects of 500 kB would take 5 s.
        (large.clone(), 4, true),
        (large, 6, false),
    ] {
        let bytes = body.len();
        let world = World::new(20, &body, Duration::from_secs(seconds));
        let began = Instant::now();
        let proof = world.prove(None).await;
        let case = format!("objects of {bytes} bytes, listed in {seconds} s: {proof:?}");
        match proof {
            Ok(objects) => assert!(is_proven && objects == 200, "{case}"),
            Err(ProofError::TimedOut) => assert!(!is_proven, "{case}"),
            Err(_) => panic!("{case}"),
        }
        assert!(began.elapsed().as_secs() <= 5, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_scope_of_a_large_cache_has_a_short_time_limit() {
    let body = Bytes::from(vec![0; 500_000]);
    let world = World::new(20, &body, Duration::from_secs(4));
    let proof = world.prove(Some("n1".to_owned())).await;
    assert!(matches!(proof, Err(ProofError::TimedOut)), "{proof:?}");
}

#[tokio::test(start_paused = true)]
async fn a_small_scope_does_not_wait_for_slow_lists() {
    // 600 objects of 700 kB, whose list may take 21 s.
    let body = Bytes::from(vec![0; 700_000]);
    let durations = (Duration::from_millis(100), Duration::from_secs(20));
    let world = World::with_durations(60, &body, durations);
    let later = async |milliseconds, namespace: Option<&str>| {
        sleep(Duration::from_millis(milliseconds)).await;
        let asked_at = Instant::now();
        let proof = world.prove(namespace.map(str::to_owned)).await;
        (proof, asked_at.elapsed())
    };
    // The third list of everything waits for a call, and small scopes would wait with it.
    let (first, second, third, small, other) = tokio::join!(
        later(0, None),
        later(20, None),
        later(1_000, None),
        later(2_000, Some("n1")),
        later(2_100, Some("n2")),
    );
    for (proof, elapsed) in [small, other] {
        assert_eq!(proof.expect("a proof"), 10);
        assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    }
    for (proof, _) in [first, second] {
        assert_eq!(proof.expect("a proof"), 600);
    }
    assert!(matches!(third.0, Err(ProofError::TimedOut)), "{third:?}");
    let listed = world.server.listed.lock();
    let scoped = listed.iter().filter(|namespace| !namespace.is_empty());
    assert_eq!(scoped.count(), 2, "{listed:?}");
}
