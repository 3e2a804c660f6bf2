//! Handlers that come and go, panic, and outlive their informer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use kubefan_core::shutdown::{Outcome, Shutdown};
use kubefan_core::{cache, shutdown};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Thing, Upstream, resource, text};
use crate::shared_informer::{
    Change, Config, EventHandler, HandlerFunctions, SharedInformer, Storage,
};

/// Returns an informer, and the shutdown that its tasks belong to.
fn informer(upstream: &Upstream) -> (SharedInformer<Thing>, Shutdown) {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let reader = upstream.writer.reader().clone();
    let informer = SharedInformer::new(reader, resource(), Config::default(), shutdown.clone());
    (informer, shutdown)
}

#[tokio::test(start_paused = true)]
async fn each_handler_has_its_own_resync() {
    let mut upstream = Upstream::new(None);
    let (informer, _shutdown) = informer(&upstream);
    upstream.put("a", "x");
    let (sender, mut resyncs) = mpsc::unbounded_channel();
    let start = Instant::now();
    let mut handlers = Vec::new();
    for seconds in [0, 2, 3] {
        let sender = sender.clone();
        let handler = HandlerFunctions::<Thing>::new().on_update(move |old, new| {
            assert!(Arc::ptr_eq(&old, &new));
            let _ = sender.send((seconds, start.elapsed().as_secs()));
        });
        let resync = Duration::from_secs(seconds);
        handlers.push(informer.add_handler(handler, Some(resync).filter(|it| !it.is_zero())));
    }
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(resyncs.recv().await.expect("a resync"));
    }
    told.sort_unstable();
    assert_eq!(told, [(2, 2), (2, 4), (2, 6), (3, 3), (3, 6)]);
}

#[tokio::test(start_paused = true)]
async fn a_removal_lets_the_call_in_progress_end() {
    struct Slow(mpsc::UnboundedSender<&'static str>);

    impl EventHandler<Thing> for Slow {
        async fn on_add(&mut self, _: Arc<Thing>, _: bool) {
            self.0.send("begins").expect("is received");
            tokio::time::sleep(Duration::from_secs(5)).await;
            self.0.send("ends").expect("is received");
        }
    }

    let mut upstream = Upstream::new(None);
    let (informer, _shutdown) = informer(&upstream);
    upstream.put("a", "x");
    upstream.put("b", "x");
    for is_awaited in [false, true] {
        let (sender, mut calls) = mpsc::unbounded_channel();
        let handler = informer.add_handler(Slow(sender), None);
        assert_eq!(calls.recv().await, Some("begins"));
        let removed = handler.remove();
        if is_awaited {
            removed.await;
            assert_eq!(calls.try_recv(), Ok("ends"));
        } else {
            assert_eq!(removed.now_or_never(), None);
            assert_eq!(calls.recv().await, Some("ends"));
        }
        // The handler is not called for the other object.
        assert_eq!(calls.recv().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_not_called_again_and_disturbs_no_other() {
    let mut upstream = Upstream::new(None);
    let (informer, _shutdown) = informer(&upstream);
    upstream.put("a", "x");
    let (sender, mut calls) = mpsc::unbounded_channel();
    let send = sender.clone();
    let panics = HandlerFunctions::<Thing>::new().on_add(move |thing, _| {
        send.send(format!("panics at {}", thing.metadata.name))
            .expect("is received");
        panic!("planned");
    });
    let mut panics = informer.add_handler(panics, None);
    assert_eq!(calls.recv().await.as_deref(), Some("panics at a"));
    assert!(!panics.synced().await);
    let others = HandlerFunctions::<Thing>::new().on_add(move |thing, _| {
        sender
            .send(thing.metadata.name.clone())
            .expect("is received");
    });
    let mut others = informer.add_handler(others, None);
    assert!(others.synced().await);
    upstream.put("b", "x");
    // A function that is not set does nothing.
    upstream.put("b", "y");
    upstream.delete("b");
    upstream.put("c", "x");
    for name in ["a", "b", "c"] {
        assert_eq!(calls.recv().await.as_deref(), Some(name));
    }
    others.remove().await;
    let removed = std::panic::AssertUnwindSafe(panics.remove())
        .catch_unwind()
        .await;
    assert!(removed.is_err(), "the panic is passed on");
}

#[tokio::test(start_paused = true)]
async fn handlers_end_with_their_informer() {
    let mut upstream = Upstream::new(None);
    let (informer, shutdown) = informer(&upstream);
    upstream.put("a", "x");
    let handler = HandlerFunctions::<Thing>::new;
    let mut early = informer.add_handler(handler(), None);
    assert!(early.synced().await);
    upstream.writer.close();
    // A handler that is added later ends as well, without a call.
    let late = handler().on_add(|thing, _| panic!("{thing:?}"));
    let mut late = informer.add_handler(late, None);
    assert!(!late.synced().await);
    early.remove().await;
    late.remove().await;
    assert_eq!(shutdown.drain().await, Outcome::Drained);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_be_removed_before_the_first_list() {
    let (_writer, reader) = cache::cache(cache::Config::default());
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informer = SharedInformer::<Thing>::new(reader, resource(), Config::default(), shutdown);
    let handler = informer.add_handler(HandlerFunctions::new(), None);
    assert!(!handler.has_synced());
    handler.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_come_and_go_while_objects_change() {
    const TASKS: u64 = 8;
    let mut upstream = Upstream::new(Some(2500));
    let shutdown = Shutdown::new(shutdown::Config::default());
    let informers = [Storage::Bytes, Storage::Decoded].map(|storage| {
        let config = Config {
            storage,
            ..Config::default()
        };
        let reader = upstream.writer.reader().clone();
        SharedInformer::<Thing>::new(reader, resource(), config, shutdown.clone())
    });
    let counts = Arc::<Counts>::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (informers, counts) = (informers.clone(), Arc::clone(&counts));
            tokio::spawn(come_and_go(informers, StdRng::seed_from_u64(task), counts))
        })
        .collect();
    let mut dice = StdRng::seed_from_u64(TASKS);
    let began = Instant::now();
    while !tasks.iter().all(JoinHandle::is_finished) {
        // Otherwise the test would wait for ever for a handler that is not called any more.
        assert!(began.elapsed() < Duration::from_secs(60), "{counts:?}");
        let name = ["a", "b", "c", "d"][dice.random_range(0..4)];
        match dice.random_range(0..3) {
            0 => upstream.delete(name),
            _ => upstream.put(name, "x"),
        }
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.expect("its handlers saw what is possible");
    }
    for calls in [&counts.adds, &counts.updates, &counts.deletions] {
        assert!(calls.load(Ordering::Relaxed) > 0, "{counts:?}");
    }
    let expected: Vec<_> = upstream.things.values().cloned().map(Arc::new).collect();
    for informer in &informers {
        assert_eq!(informer.lister().list(), expected);
    }
    drop(informers);
    upstream.writer.close();
    assert_eq!(shutdown.drain().await, Outcome::Drained);
}

/// Adds handlers, and removes each after some calls.
async fn come_and_go(informers: [SharedInformer<Thing>; 2], mut dice: StdRng, counts: Arc<Counts>) {
    for _ in 0..100 {
        let informer = &informers[dice.random_range(0..2)];
        let resync = dice.random_bool(0.5).then_some(Config::LEAST_RESYNC);
        let (called, mut calls) = mpsc::unbounded_channel();
        let known = Known {
            names: BTreeSet::new(),
            counts: Arc::clone(&counts),
            called,
        };
        let mut handler = informer.add_handler(known, resync);
        if dice.random_bool(0.5) {
            assert!(handler.synced().await);
        }
        for _ in 0..dice.random_range(0..20) {
            // After a panic of the handler there are no more calls.
            if calls.recv().await.is_none() {
                break;
            }
        }
        // A panic of the handler would come back here.
        handler.remove().await;
    }
}

/// The calls of all handlers.
#[derive(Debug, Default)]
struct Counts {
    adds: AtomicUsize,
    updates: AtomicUsize,
    deletions: AtomicUsize,
}

/// A handler that remembers the names of the objects.
struct Known {
    names: BTreeSet<String>,
    counts: Arc<Counts>,
    called: mpsc::UnboundedSender<()>,
}

impl Known {
    fn count(&self, calls: &AtomicUsize) {
        calls.fetch_add(1, Ordering::Relaxed);
        // An error means that the handler is being removed.
        let _ = self.called.send(());
    }
}

impl EventHandler<Thing> for Known {
    async fn on_add(&mut self, object: Arc<Thing>, is_initial_list: bool) {
        let is_new = self.names.insert(object.metadata.name.clone());
        assert!(is_new, "{object:?} is known ({is_initial_list})");
        self.count(&self.counts.adds);
    }

    async fn on_update(&mut self, old: Arc<Thing>, new: Arc<Thing>) {
        let is_known = self.names.contains(&new.metadata.name);
        assert!(is_known, "{old:?} is not known");
        self.count(&self.counts.updates);
    }

    async fn on_delete(&mut self, deleted: crate::shared_informer::Deleted<Thing>) {
        let change = Change::Deleted(deleted);
        let name = &change.object().metadata.name;
        assert!(self.names.remove(name), "{} is not known", text(&change));
        self.count(&self.counts.deletions);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_may_have_many_values_in_an_index() {
    for storage in [Storage::Bytes, Storage::Decoded] {
        let mut upstream = Upstream::new(None);
        let informer = upstream.informer(Config {
            storage,
            ..Config::default()
        });
        assert!(informer.synced().await);
        let lister = informer.lister();
        let users = |thing: &Thing| {
            let users = thing.metadata.labels["app"].split('.');
            users.map(str::to_owned).collect()
        };
        let keys = |value: &str| {
            let keys = lister.index_keys("users", value).expect("is an index");
            keys.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        upstream.put("a", "ann.bob");
        informer.add_index("users", users).expect("a new index");
        upstream.put("b", "bob.cid");
        upstream.put("c", "ann.dan.dan");
        assert_eq!(keys("ann"), ["n/a", "n/c"]);
        assert_eq!(keys("bob"), ["n/a", "n/b"]);
        assert_eq!(keys("dan"), ["n/c"]);
        assert!(keys("eve").is_empty());
        upstream.put("b", "cid");
        upstream.delete("c");
        assert_eq!(keys("ann"), ["n/a"]);
        assert_eq!(keys("bob"), ["n/a"]);
        let values = lister.index_values("users").expect("is an index");
        assert_eq!(values.iter().collect::<Vec<_>>(), ["ann", "bob", "cid"]);
    }
}
