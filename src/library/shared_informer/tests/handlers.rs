//! Scripted sequences: which calls handlers get, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use kubefan_core::api::{EventType, ObjectKey, ResourceVersion, Selection};
use kubefan_core::cache::EpochCause;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::{cache, shutdown};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::{Thing, Upstream, all, next, resource, text, with_app};
use crate::shared_informer::shared::Shared;
use crate::shared_informer::source::Source;
use crate::shared_informer::{
    Change, Config, Deleted, EventHandler, Filtering, HandlerFunctions, IndexError, SharedInformer,
    Storage,
};

/// Sends each change as text. Takes a permit for each call.
struct Recorder {
    calls: mpsc::UnboundedSender<String>,
    permits: Arc<Semaphore>,
}

impl Recorder {
    async fn record(&self, change: Change<Thing>) {
        let permit = self.permits.acquire().await.expect("is open");
        permit.forget();
        self.calls.send(text(&change)).expect("is received");
    }
}

impl EventHandler<Thing> for Recorder {
    async fn on_add(&mut self, object: Arc<Thing>, is_initial_list: bool) {
        let change = Change::Added {
            object,
            is_initial_list,
        };
        self.record(change).await;
    }

    async fn on_update(&mut self, old: Arc<Thing>, new: Arc<Thing>) {
        self.record(Change::Updated { old, new }).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<Thing>) {
        self.record(Change::Deleted(deleted)).await;
    }
}

fn recorder(permits: usize) -> (Recorder, Arc<Semaphore>, mpsc::UnboundedReceiver<String>) {
    let (calls, received) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(permits));
    let recorder = Recorder {
        calls,
        permits: Arc::clone(&permits),
    };
    (recorder, permits, received)
}

async fn take(received: &mut mpsc::UnboundedReceiver<String>, count: usize) -> Vec<String> {
    let mut calls = Vec::new();
    for _ in 0..count {
        calls.push(received.recv().await.expect("a call"));
    }
    calls
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_gets_the_present_objects_first() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    let mut early = informer.changes();
    assert!(!early.has_synced());
    assert!(all(&mut early).is_empty());
    assert!(early.has_synced());
    upstream.put("a", "x");
    upstream.put("b", "x");
    upstream.put("a", "y");
    upstream.delete("b");
    assert_eq!(all(&mut early), ["+a3", "+b4", "a3~a5", "-b6"]);
    let mut late = informer.changes();
    assert_eq!(all(&mut late), ["*a5"]);
    assert!(late.has_synced());
    upstream.put("c", "x");
    assert_eq!(all(&mut late), ["+c7"]);
    assert_eq!(all(&mut early), ["+c7"]);
}

#[tokio::test(start_paused = true)]
async fn a_relist_reports_what_was_missed() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    for name in ["a", "b", "c"] {
        upstream.put(name, "x");
    }
    let mut changes = informer.changes();
    assert_eq!(all(&mut changes), ["*a3", "*b4", "*c5"]);
    upstream.things.remove("a");
    upstream.things.remove("b");
    upstream.change("b", "x");
    upstream.change("c", "x");
    upstream.relist();
    // The deletion of a and the first b were missed.
    assert_eq!(all(&mut changes), ["?a3", "?b4", "+b6", "c5~c7"]);
    upstream.writer.new_epoch(EpochCause::WentBack);
    assert!(all(&mut changes).is_empty());
    upstream.things.remove("c");
    upstream.relist();
    assert_eq!(all(&mut changes), ["?c7"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_was_left_behind_gets_the_difference() {
    let mut upstream = Upstream::new(Some(1300));
    let informer = upstream.informer(Config::default());
    let (slow, permits, mut slow_calls) = recorder(0);
    let (fast, _permits, mut fast_calls) = recorder(1_000);
    for name in ["a", "b", "c"] {
        upstream.put(name, "x");
    }
    let mut slow_handler = informer.add_handler(slow, None);
    let mut fast_handler = informer.add_handler(fast, None);
    assert!(fast_handler.synced().await);
    assert_eq!(take(&mut fast_calls, 3).await, ["*a3", "*b4", "*c5"]);
    assert!(!slow_handler.has_synced());
    upstream.delete("a");
    assert_eq!(take(&mut fast_calls, 1).await, ["-a6"]);
    for version in 7..50 {
        upstream.put("b", "x");
        let calls = take(&mut fast_calls, 1).await;
        assert!(calls[0].ends_with(&format!("~b{version}")), "{calls:?}");
    }
    // The slow handler is called for the initial list, and then for the difference from it.
    permits.add_permits(1_000);
    let calls = take(&mut slow_calls, 5).await;
    assert_eq!(calls, ["*a3", "*b4", "*c5", "?a3", "b4~b49"]);
    assert!(slow_handler.synced().await);
    slow_handler.remove().await;
    upstream.put("b", "x");
    assert_eq!(take(&mut fast_calls, 1).await, ["b49~b50"]);
    assert_eq!(slow_calls.recv().await, None);
}

/// A caller that cancels at each yield: the copy of many objects continues where it was.
#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_for_the_next_change_loses_no_progress() {
    // The log has no room for the second list, so the handler copies it, too.
    let mut upstream = Upstream::new(Some(1300));
    let informer = upstream.informer(Config::default());
    let mut changes = informer.changes();
    let names: Vec<_> = (0..20_000).map(|number| format!("t{number:05}")).collect();
    let change_all = |upstream: &mut Upstream, app| {
        for name in &names {
            upstream.change(name, app);
        }
        upstream.relist();
    };
    for (round, app) in ["x", "y"].into_iter().enumerate() {
        change_all(&mut upstream, app);
        let mut cancelled = 0;
        let first = loop {
            match changes.next().now_or_never() {
                Some(change) => break change.expect("the informer runs"),
                None => cancelled += 1,
            }
            assert!(cancelled < 100, "the copy begins again each time");
            tokio::task::yield_now().await;
        };
        // All objects are handled twice for the first list and four times for the second, 4,096
        // between two yields.
        let expected = [8..=11, 18..=22];
        assert!(expected[round].contains(&cancelled), "{cancelled}");
        let rest: Vec<_> = std::iter::from_fn(|| next(&mut changes)).collect();
        assert_eq!(rest.len(), names.len() - 1);
        let expected = ["*t00000", "t00000"][round];
        assert!(text(&first).starts_with(expected), "{}", text(&first));
    }
}

/// A handler that selects one object of many: the test of the other objects yields, too.
#[tokio::test(start_paused = true)]
async fn a_narrow_selection_of_a_large_cache_yields() {
    let mut upstream = Upstream::new(Some(1300));
    let informer = upstream.informer(Config {
        selection: with_app("wanted"),
        ..Config::default()
    });
    let mut changes = informer.changes();
    for number in 0..20_000 {
        upstream.change(&format!("t{number:05}"), "other");
    }
    upstream.change("wanted", "wanted");
    upstream.relist();
    let mut yields = 0;
    let first = loop {
        match changes.next().now_or_never() {
            Some(change) => break change.expect("the informer runs"),
            None => yields += 1,
        }
        assert!(yields < 100, "the search begins again each time");
        tokio::task::yield_now().await;
    };
    assert!(text(&first).starts_with("*wanted"), "{}", text(&first));
    // The handler tests 4,096 objects between two yields.
    assert!((4..=6).contains(&yields), "{yields}");
}

#[tokio::test(start_paused = true)]
async fn objects_that_leave_the_selection_are_deleted() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config {
        selection: with_app("x"),
        ..Config::default()
    });
    let mut changes = informer.changes();
    upstream.put("a", "x");
    upstream.put("b", "y");
    assert_eq!(all(&mut changes), ["*a3"]);
    upstream.put("a", "y");
    upstream.put("b", "x");
    upstream.put("b", "x");
    assert_eq!(all(&mut changes), ["-a3", "+b6", "b6~b7"]);
    assert_eq!(informer.lister().list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resync_repeats_all_objects_to_one_handler() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    upstream.put("a", "x");
    let (often, _permits, mut calls) = recorder(1_000);
    let (never, _permits, mut others) = recorder(1_000);
    let start = Instant::now();
    // An interval that is too short is raised to the shortest.
    let _often = informer.add_handler(often, Some(Duration::from_millis(1)));
    let mut never = informer.add_handler(never, None);
    assert!(never.synced().await);
    assert_eq!(take(&mut calls, 2).await, ["*a3", "a3~a3"]);
    assert_eq!(start.elapsed(), Config::LEAST_RESYNC);
    upstream.put("b", "x");
    assert_eq!(take(&mut calls, 3).await, ["+b4", "a3~a3", "b4~b4"]);
    assert_eq!(take(&mut others, 2).await, ["*a3", "+b4"]);
    never.remove().await;
    assert_eq!(others.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_filtering_handler_sees_objects_come_and_go() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    let (recorder, _permits, mut calls) = recorder(1_000);
    let has_x = |thing: &Thing| thing.metadata.labels["app"] == "x";
    upstream.put("a", "x");
    upstream.put("b", "y");
    let mut handler = informer.add_handler(Filtering::new(has_x, recorder), None);
    assert!(handler.synced().await);
    for (name, app) in [("a", "x"), ("a", "y"), ("a", "y"), ("b", "x")] {
        upstream.put(name, app);
    }
    upstream.delete("a");
    upstream.delete("b");
    let expected = ["*a3", "a3~a5", "-a5", "+b8", "-b10"];
    assert_eq!(take(&mut calls, 5).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_filtering_handler_learns_of_missed_deletions_of_what_it_accepts() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    let (recorder, _permits, mut calls) = recorder(1_000);
    let has_x = |thing: &Thing| thing.metadata.labels["app"] == "x";
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        upstream.put(name, app);
    }
    let mut handler = informer.add_handler(Filtering::new(has_x, recorder), None);
    assert!(handler.synced().await);
    // Only the relist shows that a and b are gone. The handler never received b.
    upstream.things.remove("a");
    upstream.things.remove("b");
    upstream.change("c", "y");
    upstream.relist();
    upstream.put("d", "x");
    let expected = ["*a3", "*c5", "?a3", "-c5", "+d8"];
    assert_eq!(take(&mut calls, 5).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_lister_is_never_older_than_the_change_of_a_handler() {
    for storage in [Storage::Bytes, Storage::Decoded] {
        let mut upstream = Upstream::new(None);
        let informer = upstream.informer(Config {
            storage,
            ..Config::default()
        });
        let (lister, indexed) = (informer.lister(), informer.lister());
        let (seen, mut seen_versions) = mpsc::unbounded_channel();
        let handler = HandlerFunctions::<Thing>::new().on_add(move |thing, _| {
            let name = &thing.metadata.name;
            let listed = lister.get(Some("n"), name).expect("can be decoded");
            let found = indexed.by_index("name", name).expect("is an index");
            seen.send((listed, found.len())).expect("is received");
        });
        let name = |thing: &Thing| vec![thing.metadata.name.clone()];
        informer.add_index("name", name).expect("a new index");
        let _handler = informer.add_handler(handler, None);
        for name in ["a", "b", "c"] {
            upstream.put(name, "x");
            let (listed, found) = seen_versions.recv().await.expect("a call");
            assert_eq!(listed.expect("is there").metadata.name, name);
            assert_eq!(found, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_reads_its_own_write() {
    let mut upstream = Upstream::new(None);
    let lister = upstream.informer(Config::default()).lister();
    let soon = || Instant::now() + Duration::from_secs(1);
    assert!(!lister.wait_for(ResourceVersion(3), soon()).await);
    let waiting = lister.wait_for(ResourceVersion(3), soon());
    let (is_there, ()) = tokio::join!(waiting, async { upstream.put("a", "x") });
    assert!(is_there);
    assert_eq!(lister.list().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn decoded_objects_are_shared_by_handlers_and_listers() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config {
        storage: Storage::Decoded,
        ..Config::default()
    });
    upstream.put("a", "x");
    assert!(informer.synced().await);
    let (mut one, mut other) = (informer.changes(), informer.changes());
    let first = one.next().await.expect("an object");
    let second = other.next().await.expect("an object");
    assert!(Arc::ptr_eq(first.object(), second.object()));
    let listed = informer.lister().list();
    assert!(Arc::ptr_eq(first.object(), &listed[0]));
    upstream.put("a", "y");
    for changes in [&mut one, &mut other] {
        let Some(Change::Updated { old, .. }) = changes.next().await else {
            panic!("not an update");
        };
        assert!(Arc::ptr_eq(&old, first.object()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_cache_has_copied_is_not_decoded_again() {
    let mut upstream = Upstream::new(Some(1));
    let informer = upstream.informer(Config {
        storage: Storage::Decoded,
        ..Config::default()
    });
    // The log holds one event. The change after its eviction copies the object out of the frame.
    let mut object = upstream.change("a", "x");
    let frame = Bytes::from([&object.body[..], &[b' '; 4096]].concat());
    object.body = frame.slice(..object.body.len());
    let body = object.body.clone();
    let applied = upstream
        .writer
        .apply(EventType::Modified, object, Some(frame));
    applied.expect("a newer version");
    let read = informer.lister().get(Some("n"), "a");
    let read = read.expect("a thing").expect("exists");
    upstream.put("b", "x");
    upstream.put("c", "x");
    let snapshot = upstream.writer.reader().snapshot().expect("is ready");
    let stored = snapshot.get(&ObjectKey::new(Some("n"), "a"));
    assert_ne!(stored.expect("exists").body.as_ptr(), body.as_ptr());
    let mut changes = informer.changes();
    let first = changes.next().await.expect("an object");
    assert!(Arc::ptr_eq(first.object(), &read));
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_type_are_reported_and_left_out() {
    #[derive(Debug, serde::Deserialize)]
    struct Other {
        #[serde(rename = "spec")]
        _spec: u32,
    }
    for storage in [Storage::Bytes, Storage::Decoded] {
        let mut upstream = Upstream::new(None);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let report = Arc::clone(&reported);
        let informer = super::SharedInformer::<Other>::new(
            upstream.writer.reader().clone(),
            super::resource(),
            Config {
                storage,
                on_decode_error: Arc::new(move |error| report.lock().push(error.to_string())),
                ..Config::default()
            },
            kubefan_core::shutdown::Shutdown::new(kubefan_core::shutdown::Config::default()),
        );
        upstream.put("a", "x");
        let lister = informer.lister();
        assert!(lister.list().is_empty());
        let error = lister.get(Some("n"), "a").expect_err("cannot be decoded");
        let message = error.to_string();
        assert!(message.starts_with("things.example.com n/a cannot be decoded as"));
        assert_eq!(reported.lock().first(), Some(&message));
        // With decoded objects, no read decodes what could not be decoded before.
        assert!(lister.list_in("n").is_empty());
        assert!(lister.select(&with_app("x")).is_empty());
        let reports = match storage {
            Storage::Bytes => 3,
            Storage::Decoded => 1,
        };
        assert_eq!(reported.lock().len(), reports);
        // Nor does a handler, whether the object is present, old or new.
        assert!(informer.synced().await);
        let mut changes = informer.changes();
        assert!(changes.next().now_or_never().is_none());
        upstream.put("a", "y");
        assert!(changes.next().now_or_never().is_none());
        let reports = match storage {
            Storage::Bytes => 6,
            Storage::Decoded => 2,
        };
        assert_eq!(reported.lock().len(), reports);
        upstream.delete("a");
        assert!(changes.next().now_or_never().is_none());
        let reports = match storage {
            Storage::Bytes => 7,
            Storage::Decoded => 2,
        };
        assert_eq!(reported.lock().len(), reports);
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_may_be_added_later_and_has_a_name_of_its_own() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        upstream.put(name, app);
    }
    let lister = informer.lister();
    let missing = IndexError::Missing("app".to_owned());
    assert_eq!(lister.index_keys("app", "x"), Err(missing));
    let app = |thing: &Thing| vec![thing.metadata.labels["app"].clone()];
    informer.add_index("app", app).expect("a new index");
    let keys = lister.index_keys("app", "x").expect("is an index");
    assert_eq!(format!("{keys:?}"), r#"["n/a", "n/c"]"#);
    let exists = IndexError::Exists("app".to_owned());
    assert_eq!(informer.add_index("app", app), Err(exists));
}

#[tokio::test(start_paused = true)]
async fn another_index_of_decoded_objects_does_not_compute_the_others_again() {
    let mut upstream = Upstream::new(None);
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        upstream.put(name, app);
    }
    let informer = upstream.informer(Config {
        storage: Storage::Decoded,
        ..Config::default()
    });
    assert!(informer.synced().await);
    let calls = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&calls);
    let app = move |thing: &Thing| {
        counted.fetch_add(1, Ordering::Relaxed);
        vec![thing.metadata.labels["app"].clone()]
    };
    informer.add_index("app", app).expect("a new index");
    let name = |thing: &Thing| vec![thing.metadata.name.clone()];
    upstream.put("d", "y");
    informer.add_index("name", name).expect("a new index");
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    let lister = informer.lister();
    let keys = |index, value| {
        let keys = lister.index_keys(index, value).expect("is an index");
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(keys("app", "y"), ["n/b", "n/d"]);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(keys("name", name), [format!("n/{name}")]);
    }
    upstream.put("b", "x");
    upstream.delete("d");
    assert_eq!(keys("app", "x"), ["n/a", "n/b", "n/c"]);
    assert!(keys("name", "d").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lister_shows_the_last_state_while_its_cache_is_replaced() {
    for storage in [Storage::Bytes, Storage::Decoded] {
        let mut upstream = Upstream::new(None);
        upstream.put("a", "x");
        let (readers, source) = watch::channel(Some(upstream.writer.reader().clone()));
        let shared = Shared::<Thing>::new(
            Source::new(source),
            resource(),
            Config {
                storage,
                ..Config::default()
            },
            Shutdown::new(shutdown::Config::default()),
        );
        let informer = SharedInformer(Arc::new(shared));
        assert!(informer.synced().await);
        let lister = informer.lister();
        let versions = || {
            let listed = lister.list();
            let versions = listed.iter().map(|thing| &thing.metadata.resource_version);
            versions.cloned().collect::<Vec<_>>()
        };
        let mut changes = informer.changes();
        assert_eq!(all(&mut changes), ["*a3"]);
        upstream.writer.new_epoch(EpochCause::WentBack);
        assert_eq!(versions(), ["3"]);
        upstream.relist();
        let reader = upstream.replace_cache();
        assert_eq!(versions(), ["3"]);
        let waiting = lister.wait_for(
            ResourceVersion(5),
            Instant::now() + 60 * Config::LEAST_RESYNC,
        );
        let replace = async {
            readers.send_replace(Some(reader));
            assert_eq!(versions(), ["3"]);
            assert!(all(&mut changes).is_empty());
            upstream.change("a", "x");
            upstream.relist();
        };
        assert!(tokio::join!(waiting, replace).0);
        assert_eq!(versions(), ["5"]);
        assert_eq!(all(&mut changes), ["a3~a5"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lister_shows_the_last_state_while_the_cache_lists_again() {
    for selection in [Selection::default(), with_app("x")] {
        let mut upstream = Upstream::new(None);
        upstream.put("a", "x");
        let informer = upstream.informer(Config {
            storage: Storage::Decoded,
            selection,
            ..Config::default()
        });
        assert!(informer.synced().await);
        let lister = informer.lister();
        assert_eq!(lister.list().len(), 1);
        // The cache loses its event log before the lister has read this event.
        upstream.put("b", "x");
        upstream.writer.new_epoch(EpochCause::WentBack);
        assert!(lister.get(Some("n"), "b").expect("a thing").is_some());
        for listed in [
            lister.list(),
            lister.list_in("n"),
            lister.select(&with_app("x")),
        ] {
            assert_eq!(listed.len(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_informer_that_never_starts() {
    for storage in [Storage::Bytes, Storage::Decoded] {
        let (writer, reader) = cache::cache(cache::Config::default());
        let config = Config {
            storage,
            ..Config::default()
        };
        let shutdown = Shutdown::new(shutdown::Config::default());
        let informer = SharedInformer::<Thing>::new(reader, resource(), config, shutdown.clone());
        let ended = async {
            writer.close();
            shutdown.drain().await;
        };
        let (is_synced, ()) = tokio::join!(informer.synced(), ended);
        assert!(!is_synced);
    }
}

#[tokio::test(start_paused = true)]
async fn all_users_learn_that_the_cache_was_closed() {
    let mut upstream = Upstream::new(None);
    upstream.put("a", "x");
    let informer = upstream.informer(Config {
        storage: Storage::Decoded,
        ..Config::default()
    });
    let mut changes = informer.changes();
    assert!(changes.next().await.is_some());
    upstream.writer.close();
    assert!(changes.next().await.is_none());
    assert!(changes.next().await.is_none());
}
