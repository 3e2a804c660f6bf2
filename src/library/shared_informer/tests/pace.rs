//! What handlers hold in memory at any speed, and resyncs beside many changes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use kubefan_core::api::{Object, ObjectKey, ResourceVersion, Selection};
use kubefan_core::cache;
use tokio::time::sleep;

use super::{BROKEN, Thing, Upstream, all, next, text, with_app};
use crate::shared_informer::view::STEP;
use crate::shared_informer::{Config, SharedInformer, Storage};

/// Returns a weak reference to the present state of `name`.
fn state_of(upstream: &Upstream, name: &str) -> Weak<Object> {
    let snapshot = upstream.writer.reader().snapshot().expect("is ready");
    let object = snapshot.get(&ObjectKey::new(Some("n"), name));
    Arc::downgrade(&object.expect("exists"))
}

#[tokio::test(start_paused = true)]
async fn a_narrow_handler_keeps_only_the_objects_that_it_selects() {
    let mut upstream = Upstream::new(Some(1300));
    upstream.put("selected", "x");
    upstream.put("other", "y");
    let elsewhere = Selection {
        namespace: Some("m".to_owned()),
        ..Selection::default()
    };
    let of = |selection| {
        let config = Config {
            selection,
            ..Config::default()
        };
        upstream.informer(config).changes()
    };
    let (mut read, mut unread, mut quiet) = (of(with_app("x")), of(with_app("x")), of(elsewhere));
    assert_eq!(all(&mut read), ["*selected3"]);
    assert_eq!(all(&mut unread), ["*selected3"]);
    assert!(all(&mut quiet).is_empty());
    let (selected, other) = (
        state_of(&upstream, "selected"),
        state_of(&upstream, "other"),
    );
    // The event log is too small for all of these changes.
    for _ in 0..50 {
        upstream.put("other", "y");
        upstream.put("selected", "x");
        assert_eq!(all(&mut read).len(), 1);
    }
    assert_eq!(other.strong_count(), 0);
    // The handler that has not read yet still refers to the old state.
    assert_eq!(selected.strong_count(), 1);
    assert_eq!(all(&mut unread), ["selected3~selected104"]);
    assert_eq!(selected.strong_count(), 0);
    assert!(all(&mut quiet).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_all_objects_frees_old_states_that_the_log_has_dropped() {
    let mut upstream = Upstream::new(Some(1300));
    let mut changes = upstream.informer(Config::default()).changes();
    upstream.put("a", "x");
    assert_eq!(all(&mut changes), ["*a3"]);
    let old = state_of(&upstream, "a");
    // More objects change than the number of old states that a handler may hold.
    for _ in 0..10 {
        for name in ["a", "b", "c", "d", "e"] {
            upstream.put(name, "x");
            assert_eq!(all(&mut changes).len(), 1);
        }
    }
    assert_eq!(old.strong_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_frees_old_states_when_no_more_changes_come() {
    let mut upstream = Upstream::new(None);
    upstream.put("a", "x");
    let mut changes = upstream.informer(Config::default()).changes();
    let handler = tokio::spawn(async move { while changes.next().await.is_some() {} });
    sleep(Duration::from_secs(1)).await;
    let old = state_of(&upstream, "a");
    for name in ["a", "b", "c", "d", "e"] {
        upstream.put(name, "x");
    }
    sleep(Duration::from_secs(1)).await;
    // The log drops its events, and nothing wakes the handler.
    tokio::time::advance(cache::Config::default().retention_age).await;
    let version = ResourceVersion(upstream.version);
    upstream.writer.bookmark(version).expect("the same version");
    assert_ne!(old.strong_count(), 0);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(old.strong_count(), 0);
    handler.abort();
}

#[tokio::test(start_paused = true)]
async fn a_resync_comes_between_changes_without_a_pause() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    upstream.put("a", "x");
    upstream.put("b", "x");
    let mut changes = informer.changes().with_resync(Duration::from_secs(1));
    assert_eq!(all(&mut changes), ["*a3", "*b4"]);
    let mut told = Vec::new();
    for _ in 0..8 {
        tokio::time::advance(Duration::from_millis(400)).await;
        upstream.put("b", "x");
        let change = next(&mut changes).expect("a change is ready");
        told.push(text(&change));
    }
    let resynced = told.iter().filter(|change| *change == "a3~a3").count();
    assert_eq!(resynced, 2, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_slower_than_its_resyncs_gets_changes_too() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    upstream.put("a", "x");
    let mut changes = informer.changes().with_resync(Duration::from_secs(1));
    assert_eq!(all(&mut changes), ["*a3"]);
    let mut told = Vec::new();
    for _ in 0..6 {
        tokio::time::advance(Duration::from_secs(5)).await;
        upstream.put("b", "x");
        let change = next(&mut changes).expect("a change is ready");
        told.push(text(&change));
    }
    assert_eq!(told, ["a3~a3", "+b4", "a3~a3", "b4~b4", "b4~b5", "a3~a3"]);
}

#[tokio::test(start_paused = true)]
async fn streams_have_the_changes_or_only_the_objects() {
    let mut upstream = Upstream::new(None);
    let informer = upstream.informer(Config::default());
    upstream.put("a", "x");
    let mut changes = Box::pin(informer.changes().into_stream());
    let mut objects = Box::pin(informer.changes().into_objects());
    let first = changes.next().await.expect("a change");
    assert_eq!(text(&first), "*a3");
    let mut next_object = async || {
        let thing = objects.next().await.expect("an object");
        format!("{}{}", thing.metadata.name, thing.metadata.resource_version)
    };
    assert_eq!(next_object().await, "a3");
    upstream.put("a", "y");
    upstream.delete("a");
    upstream.put("b", "x");
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(text(&changes.next().await.expect("a change")));
    }
    assert_eq!(told, ["a3~a4", "-a5", "+b6"]);
    assert_eq!(next_object().await, "a4");
    assert_eq!(next_object().await, "b6");
    upstream.writer.close();
    assert!(changes.next().await.is_none());
    assert!(objects.next().await.is_none());
}

/// Returns an informer, and the number of things that could not be decoded.
fn counting(upstream: &Upstream, storage: Storage) -> (SharedInformer<Thing>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let informer = upstream.informer(Config {
        storage,
        on_decode_error: Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        }),
        ..Config::default()
    });
    (informer, count)
}

#[tokio::test(start_paused = true)]
async fn a_get_applies_few_changes_of_other_objects() {
    let mut upstream = Upstream::new(None);
    let (informer, applied) = counting(&upstream, Storage::Decoded);
    let lister = informer.lister();
    assert!(informer.synced().await);
    upstream.put("good", "x");
    // No task runs here, so the view has applied nothing.
    for number in 0..1_000 {
        upstream.put(&format!("thing-{number}"), BROKEN);
    }
    let found = lister.get(Some("n"), "good").expect("a thing");
    assert_eq!(found.as_deref(), upstream.things.get("good"));
    assert!(applied.load(Ordering::Relaxed) <= 4 * STEP);
    assert!(lister.get(Some("n"), "thing-7").is_err());
    // A list shows all changes.
    assert_eq!(lister.list().len(), 1);
    assert_eq!(applied.load(Ordering::Relaxed), 1_000);
    let again = lister.get(Some("n"), "good").expect("a thing");
    assert_eq!(again.as_deref(), upstream.things.get("good"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_yields_while_the_view_applies_many_changes() {
    let mut upstream = Upstream::new(None);
    let (informer, applied) = counting(&upstream, Storage::Decoded);
    let mut changes = informer.changes();
    assert!(informer.synced().await);
    upstream.put("good", "x");
    for number in 0..1_000 {
        upstream.put(&format!("thing-{number}"), BROKEN);
    }
    // What a poll applies before it yields.
    let most = 4 * STEP;
    let mut next = pin!(changes.next());
    let change = poll_fn(|cx| {
        let before = applied.load(Ordering::Relaxed);
        let polled = next.as_mut().poll(cx);
        let now = applied.load(Ordering::Relaxed);
        assert!(now - before <= most, "{} in one poll", now - before);
        polled
    });
    assert!(change.await.is_some());
    // A lister that the handler reads then finds little to apply.
    assert!(applied.load(Ordering::Relaxed) > 900);
}

#[tokio::test(start_paused = true)]
async fn a_handler_yields_while_it_decodes_many_objects() {
    let mut upstream = Upstream::new(None);
    let (informer, decoded) = counting(&upstream, Storage::Bytes);
    for number in 0..1_000 {
        upstream.put(&format!("thing-{number}"), BROKEN);
    }
    upstream.put("well", "x");
    let mut changes = informer.changes();
    let mut next = pin!(changes.next());
    let change = poll_fn(|cx| {
        let before = decoded.load(Ordering::Relaxed);
        let polled = next.as_mut().poll(cx);
        let now = decoded.load(Ordering::Relaxed);
        assert!(now - before <= 4 * STEP, "{} in one poll", now - before);
        polled
    });
    assert!(change.await.is_some());
    assert_eq!(decoded.load(Ordering::Relaxed), 1_000);
}
