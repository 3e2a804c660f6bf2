//! Tests of watch streams that are longer than one batch, of yielding, and of lost wakes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{EventType, LabelSelector, ResourceVersion, Selection};
use crate::cache::tests::support::{config, describe, drain, everything, object, poll, with_label};
use crate::cache::wake::before_registering;
use crate::cache::{Config, Reader, WatchFrom, WatchItem, WatchStream, Writer, cache};

/// Objects `a/000` to `a/199`, every other one with the label `web`.
fn two_hundred(config: Config) -> (Writer, Reader) {
    let (mut writer, reader) = cache(config);
    let mut relist = writer.relist();
    for index in 0..200_u64 {
        let app = ["web", "db"][usize::from(index % 2 == 1)];
        relist.add(object(&format!("a/{index:03}"), "u", index + 1, app));
    }
    writer.replace(relist, ResourceVersion(1000));
    (writer, reader)
}

fn modify(writer: &mut Writer, text: &str, version: u64, app: &str) {
    let written = object(text, "u", version, app);
    writer.apply(EventType::Modified, written, None).unwrap();
}

#[test]
fn initial_objects_are_of_one_snapshot_even_for_a_slow_client() {
    let (mut writer, reader) = two_hundred(config());
    let selection = Arc::new(with_label("web"));
    let mut stream = reader.watch(WatchFrom::Snapshot, selection).unwrap();
    let mut items = Vec::new();
    for version in 1001..=1100 {
        // Change each object that the stream delivers, some before and some after its delivery.
        let index = version * 2 % 200;
        modify(&mut writer, &format!("a/{index:03}"), version, "db");
        match poll(&mut stream) {
            Poll::Ready(Some(item)) => items.push(item),
            other => panic!("{other:?}"),
        }
    }
    let initial = items.iter().map(|item| match item {
        WatchItem::Initial(object) => (object.key.to_string(), object.resource_version.0),
        other => panic!("{other:?}"),
    });
    let expected = (0..100).map(|index| (format!("a/{:03}", 2 * index), 2 * index + 1));
    assert!(initial.eq(expected));
    let rest = describe(&drain(&mut stream));
    assert_eq!(rest.len(), 101);
    assert_eq!(rest[0], "=1000");
    let left = rest[1..].iter();
    assert!(left.eq(&Vec::from_iter((1001..=1100).map(|version| {
        format!("DELETED a/{:03}@{version}", version * 2 % 200)
    }))));
    assert_eq!(stream.bookmark(), Some(ResourceVersion(1100)));
}

#[test]
fn an_initial_list_that_cannot_continue_ends_at_once() {
    let (mut writer, reader) = two_hundred(Config {
        retention_bytes: Some(1000),
        ..config()
    });
    let mut stream = reader.watch(WatchFrom::Snapshot, everything()).unwrap();
    assert!(poll(&mut stream).is_ready());
    for version in 1001..1010 {
        modify(&mut writer, "a/000", version, "web");
    }
    let rest = drain(&mut stream);
    assert_eq!(rest.len(), 64, "the rest of the first batch, then expired");
    assert_eq!(describe(&rest).last().unwrap(), "expired");
    assert!(matches!(poll(&mut stream), Poll::Ready(None)));
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_long_search_yields_and_resumes() {
    let (mut writer, reader) = two_hundred(config());
    for version in 1001..=6000 {
        modify(&mut writer, "a/001", version, "db");
    }
    modify(&mut writer, "a/000", 6001, "web");
    let start = WatchFrom::After(ResourceVersion(1000));
    let selection = Arc::new(with_label("web"));
    let mut stream = reader.watch(start, selection).unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut polls = 0;
    let item = loop {
        match stream.poll_next(&mut context) {
            Poll::Ready(item) => break item.unwrap(),
            Poll::Pending => polls += 1,
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), polls, "not rescheduled");
        assert_eq!(stream.bookmark(), None);
    };
    assert_eq!(describe(&[item]), ["MODIFIED a/000@6001"]);
    assert_eq!(polls, 2);
    assert!(stream.poll_next(&mut context).is_pending());
    assert_eq!(wakes.0.load(Ordering::Relaxed), 2, "it waits now");
    modify(&mut writer, "a/000", 6002, "web");
    assert_eq!(wakes.0.load(Ordering::Relaxed), 3);
}

#[test]
fn changes_that_are_applied_together_wake_a_stream_once() {
    let (mut writer, reader) = two_hundred(config());
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    assert!(stream.poll_next(&mut context).is_pending());
    for round in 0..3 {
        let before = wakes.0.load(Ordering::Relaxed);
        for version in 1001 + 4 * round..1005 + 4 * round {
            let changed = object("a/000", "u", version, "web");
            let applied = writer.apply_without_wake(EventType::Modified, changed, None);
            applied.unwrap();
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), before);
        writer.wake();
        writer.wake();
        assert_eq!(wakes.0.load(Ordering::Relaxed), before + 1);
        let mut received = 0;
        while stream.poll_next(&mut context).is_ready() {
            received += 1;
        }
        assert_eq!(received, 4);
    }
}

/// The objects that a selector matches in a store of 20,000, and the polls that find them.
fn search(selected: impl Fn(u64) -> bool) -> (usize, usize) {
    let (mut writer, reader) = cache(config());
    let mut relist = writer.relist();
    for index in 0..20_000_u64 {
        let app = ["db", "web"][usize::from(selected(index))];
        relist.add(object(&format!("a/{index:05}"), "u", index + 1, app));
    }
    writer.replace(relist, ResourceVersion(100_000));
    // The index finds objects by one value, but not by a set of values.
    let labels = LabelSelector::parse("app in (web,cache)").unwrap();
    let selection = Arc::new(Selection {
        labels,
        ..Selection::default()
    });
    let mut stream = reader.watch(WatchFrom::Snapshot, selection).unwrap();
    let (mut found, mut pauses) = (0, 0);
    loop {
        match poll(&mut stream) {
            Poll::Ready(Some(WatchItem::Initial(_))) => found += 1,
            Poll::Ready(Some(WatchItem::InitialEnd(_))) => return (found, pauses),
            Poll::Ready(other) => panic!("{other:?}"),
            Poll::Pending => pauses += 1,
        }
    }
}

#[test]
fn a_search_of_initial_objects_yields_by_the_objects_examined() {
    assert_eq!(search(|_| false), (0, 9));
    assert_eq!(search(|index| index == 19_999), (1, 9));
    // Each poll delivers one object, so no single poll examines many.
    assert_eq!(search(|index| index % 500 == 0), (40, 9));
    assert_eq!(search(|_| true), (20_000, 9));
}

#[test]
fn a_stream_is_small() {
    assert!(
        size_of::<WatchStream>() <= 168,
        "{}",
        size_of::<WatchStream>()
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_before_the_waker_is_registered_is_not_missed() {
    let (mut writer, reader) = two_hundred(config());
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    before_registering(move || {
        modify(&mut writer, "a/000", 1001, "web");
        // Dropping the writer would close the cache.
        std::mem::forget(writer);
    });
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(item)) = stream.poll_next(&mut context) else {
        panic!("the stream missed the event and would not be woken");
    };
    assert_eq!(describe(&[item]), ["MODIFIED a/000@1001"]);

    let (mut writer, reader) = two_hundred(config());
    let mut waiting = pin!(reader.wait_for(ResourceVersion(1001), far_away()));
    before_registering(move || {
        writer.bookmark(ResourceVersion(1001)).unwrap();
        std::mem::forget(writer);
    });
    assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(true));
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[tokio::test(start_paused = true)]
async fn a_relist_is_reported_once_and_its_version_can_be_a_bookmark() {
    let (mut writer, reader) = two_hundred(config());
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    assert!(!stream.has_hole_opened());
    let listed = reader.snapshot().unwrap();
    let mut relist = writer.relist();
    for object in listed.list(&Selection::default(), None) {
        relist.add((*object).clone());
    }
    let later = ResourceVersion(listed.resource_version().0 + 1_000);
    writer.replace(relist, later);
    assert!(drain(&mut stream).is_empty(), "nothing differs");
    assert!(stream.has_hole_opened());
    assert_eq!(stream.bookmark(), Some(later));
    assert!(!stream.has_hole_opened());
    let mut newcomer = reader.watch(WatchFrom::Tip, everything()).unwrap();
    assert!(!newcomer.has_hole_opened());
}

#[test]
fn the_initial_objects_can_be_taken_from_a_stream_that_is_not_polled() {
    let (mut writer, reader) = two_hundred(config());
    let mut stream = reader.watch(WatchFrom::Snapshot, everything()).unwrap();
    assert!(matches!(
        poll(&mut stream),
        Poll::Ready(Some(WatchItem::Initial(_)))
    ));
    let initial = stream.initial_objects().unwrap();
    let first = reader.snapshot().unwrap().list(&everything(), None).next();
    let first = Arc::downgrade(&first.unwrap());
    let last = with_key_of_last(&reader);
    // The stream and its first batch keep the objects that the cache replaces and forgets.
    for version in 2_000..2_400 {
        let name = format!("a/{:03}", version % 200);
        let changed = object(&name, "new", version, "web");
        writer.apply(EventType::Modified, changed, None).unwrap();
    }
    writer.forget_history();
    let mut newest = reader.watch(WatchFrom::Tip, everything()).unwrap();
    assert!(drain(&mut newest).is_empty());
    assert!(first.upgrade().is_some() && last.upgrade().is_some());
    initial.revoke();
    assert!(first.upgrade().is_none() && last.upgrade().is_none());
    assert_eq!(describe(&drain(&mut stream)), ["expired"]);
    assert!(stream.initial_objects().is_none());
}

fn with_key_of_last(reader: &Reader) -> std::sync::Weak<crate::api::Object> {
    let snapshot = reader.snapshot().unwrap();
    Arc::downgrade(&snapshot.list(&everything(), None).last().unwrap())
}

#[test]
fn all_objects_count_as_replaced_when_the_cache_drops_them() {
    let (mut writer, reader) = two_hundred(config());
    let before = reader.snapshot().unwrap().replaced_bytes();
    let bytes = reader.stats().bytes as u64;
    let replaced = || reader.replaced_bytes().load(Ordering::Relaxed) - before;
    assert_eq!(replaced(), 0);
    writer.new_epoch(crate::cache::EpochCause::WentBack);
    assert_eq!(replaced(), bytes);
    writer.replace(writer.relist(), ResourceVersion(5_000));
    writer
        .apply(EventType::Added, object("a/0", "x", 5_001, "web"), None)
        .unwrap();
    let one = reader.stats().bytes as u64;
    writer.close();
    assert_eq!(replaced(), bytes + one);
}
