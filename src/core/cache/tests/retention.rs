//! Tests of retention (events, holes, pinned snapshots), of waiting readers, and of bookmarks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, advance};

use crate::api::{EventType, ResourceVersion, Selection, WireFormat};
use crate::cache::tests::support::{
    config, describe, drain, everything, in_namespace, object, with_label,
};
use crate::cache::{
    Config, EpochCause, EvictedBytes, Expired, Reader, WatchError, WatchFrom, WatchItem, Writer,
    cache,
};

/// Bytes that a frame adds besides its text.
const FRAME: usize = 64;

/// A cache with three objects, at resource version 10.
fn three_objects(retention_bytes: Option<usize>) -> (Writer, Reader) {
    let (mut writer, reader) = cache(Config {
        retention_bytes,
        ..config()
    });
    let mut relist = writer.relist();
    for (version, text) in [(1, "a/x"), (2, "a/y"), (3, "a/z")] {
        relist.add(object(text, "u", version, "web"));
    }
    writer.replace(relist, ResourceVersion(10));
    (writer, reader)
}

fn modify(writer: &mut Writer, text: &str, version: u64) {
    let written = object(text, "u", version, "web");
    writer.apply(EventType::Modified, written, None).unwrap();
}

fn served(reader: &Reader, start: u64) -> Result<usize, u64> {
    let start = WatchFrom::After(ResourceVersion(start));
    match reader.watch(start, everything()) {
        Ok(mut stream) => Ok(drain(&mut stream).len()),
        Err(WatchError::Expired(Expired { oldest, .. })) => Err(oldest.0),
        Err(other) => panic!("{other}"),
    }
}

fn at(reader: &Reader, version: u64) -> bool {
    reader
        .snapshot_at(ResourceVersion(version), &everything())
        .is_some()
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_the_retention_age_and_then_evicted() {
    let (mut writer, reader) = three_objects(None);
    modify(&mut writer, "a/x", 11);
    advance(Duration::from_secs(50)).await;
    modify(&mut writer, "a/x", 12);
    advance(Duration::from_secs(24)).await;
    writer.bookmark(ResourceVersion(20)).unwrap();
    assert_eq!(served(&reader, 10), Ok(2));
    advance(Duration::from_secs(1)).await;
    writer.bookmark(ResourceVersion(21)).unwrap();
    assert_eq!(served(&reader, 10), Err(11));
    assert_eq!(served(&reader, 11), Ok(1));
    advance(Duration::from_secs(50)).await;
    writer.bookmark(ResourceVersion(22)).unwrap();
    assert_eq!(served(&reader, 11), Err(12));
    assert_eq!(served(&reader, 12), Ok(0));
    let stats = reader.stats();
    assert_eq!((stats.log_events, stats.log_bytes), (0, 0));
    assert_eq!((stats.events, stats.evicted_early), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn bytes_win_over_age_and_the_newest_event_stays() {
    let (mut writer, reader) = three_objects(Some(1300));
    for version in 11..=20 {
        modify(&mut writer, "a/x", version);
        assert!(reader.stats().log_bytes <= 1300);
    }
    let stats = reader.stats();
    assert_eq!(stats.log_events as u64 + stats.evicted_early, 10);
    assert!(stats.log_events >= 2);
    let start = stats.log_start.unwrap().0;
    assert_eq!(served(&reader, start), Ok(stats.log_events));
    assert_eq!(served(&reader, start - 1), Err(start));

    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut large = object("a/x", "u", 21, "web");
    large.body = Bytes::from(vec![b'x'; 5000]);
    writer.apply(EventType::Modified, large, None).unwrap();
    assert_eq!(reader.stats().log_events, 1);
    assert_eq!(describe(&drain(&mut stream)), ["MODIFIED a/x@21"]);
}

#[tokio::test(start_paused = true)]
async fn evicted_events_count_once_while_readers_hold_them_or_their_frames() {
    let evicted = EvictedBytes::default();
    let settings = Config {
        evicted: evicted.clone(),
        ..config()
    };
    let (mut writer, reader) = cache(settings);
    let relist = writer.relist();
    writer.replace(relist, ResourceVersion(10));
    let mut streams = [(); 2].map(|()| reader.watch(WatchFrom::Tip, everything()).unwrap());
    for version in 11..=13 {
        modify(&mut writer, "a/x", version);
    }
    // Each stream fetches all three events and takes the first.
    let taken = [
        streams[0].next().await.expect("an event"),
        streams[1].next().await.expect("an event"),
    ];
    assert_eq!(evicted.get(), 0, "the log retains all of them");
    let retained = reader.stats().log_bytes;
    advance(Duration::from_secs(100)).await;
    writer.bookmark(ResourceVersion(20)).unwrap();
    assert_eq!(
        (reader.stats().log_bytes, evicted.get()),
        (0, retained as u64)
    );

    let WatchItem::Change { event, verdict } = &taken[0] else {
        panic!("{taken:?}");
    };
    let frame = event.frame(*verdict, || Bytes::from(vec![b'x'; 1000]));
    assert_eq!(evicted.get(), (retained + 1000 + FRAME) as u64);
    drop((taken, streams));
    let held = evicted.get();
    assert!(
        (1000..1000 + retained as u64).contains(&held),
        "only the first event: {held}"
    );
    drop(frame);
    assert_eq!(evicted.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_of_an_ended_epoch_count_as_evicted() {
    let evicted = EvictedBytes::default();
    let settings = Config {
        evicted: evicted.clone(),
        ..config()
    };
    let (mut writer, reader) = cache(settings);
    let relist = writer.relist();
    writer.replace(relist, ResourceVersion(10));
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    modify(&mut writer, "a/x", 11);
    let event = stream.next().await.expect("an event");
    writer.new_epoch(EpochCause::WentBack);
    assert_eq!(reader.stats().log_bytes, 0);
    // Another thread drops the log.
    until(|| evicted.get() > 0).await;
    drop(event);
    until(|| evicted.get() == 0).await;
}

/// Waits for what another thread does, for some seconds at most.
async fn until(is_done: impl Fn() -> bool) {
    for _ in 0..50_000_000 {
        if is_done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the other thread does not do it");
}

#[test]
fn the_default_limit_grows_with_the_store() {
    let (writer, reader) = three_objects(None);
    let shared = writer.shared();
    assert_eq!(shared.retention(0).bytes, 64 << 20);
    assert_eq!(shared.retention(100 << 20).bytes, 400 << 20);
    assert_eq!(reader.stats().objects, 3);
}

#[test]
fn encoded_frames_count_and_all_bytes_are_released() {
    let (mut writer, reader) = three_objects(Some(3000));
    let mut written = object("a/x", "u", 11, "db");
    written.body = Bytes::from(vec![b'x'; 400]);
    let frame = Bytes::from(vec![b'x'; 500]);
    writer
        .apply(EventType::Modified, written, Some(frame))
        .unwrap();
    let before = reader.stats().log_bytes;
    assert!((1000..1200).contains(&before), "{before}");
    let start = WatchFrom::After(ResourceVersion(10));
    let db = Arc::new(with_label("db"));
    let items = drain(&mut reader.watch(start, db).unwrap());
    let Some(WatchItem::Change { event, verdict }) = items.last() else {
        panic!("{items:?}");
    };
    event.frame(*verdict, || Bytes::from(vec![b'x'; 450]));
    assert_eq!(reader.stats().log_bytes, before + 450 + FRAME);
    event.frame(*verdict, || unreachable!("encoded already"));
    event.frame(EventType::Modified, || unreachable!("the upstream's frame"));
    assert_eq!(reader.stats().log_bytes, before + 450 + FRAME);
    for format in [WireFormat::Json, WireFormat::Protobuf, WireFormat::Json] {
        event.metadata_frame(format, *verdict, || Bytes::from(vec![b'x'; 100]));
    }
    let with_metadata = reader.stats().log_bytes - before - 450 - 2 * 100 - 3 * FRAME;
    assert!((1..400).contains(&with_metadata), "{with_metadata}");
    for version in 12..30 {
        modify(&mut writer, "a/y", version);
    }
    // The event was evicted but is still referenced. Frames encoded now are not counted in the log.
    event.frame(EventType::Deleted, || Bytes::from(vec![b'x'; 450]));
    let stats = reader.stats();
    assert!(stats.log_bytes <= 3000);
    let each = stats.log_bytes / stats.log_events;
    assert_eq!(each * stats.log_events, stats.log_bytes, "equal events");
}

#[test]
fn a_block_without_its_first_event_serves_no_start_below_the_list() {
    let (mut writer, reader) = three_objects(Some(2300));
    let mut relist = writer.relist();
    relist.add(object("a/z", "u", 15, "web"));
    writer.replace(relist, ResourceVersion(20));
    assert_eq!(served(&reader, 10), Ok(3));
    assert_eq!(served(&reader, 12), Err(20));
    modify(&mut writer, "a/z", 21);
    assert_eq!(served(&reader, 10), Ok(4));
    modify(&mut writer, "a/z", 22);
    // The block's first deletion was evicted. Its second deletion alone would give a wrong view.
    for start in 0..20 {
        assert_eq!(served(&reader, start), Err(20), "{start}");
    }
    assert_eq!(served(&reader, 20), Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_few_events_are_kept_regardless_of_age() {
    let (mut writer, reader) = cache(Config {
        retention_events: 2,
        ..config()
    });
    writer.replace(writer.relist(), ResourceVersion(10));
    for version in 11..=14 {
        modify(&mut writer, "a/x", version);
        advance(Duration::from_secs(3600)).await;
    }
    assert_eq!(served(&reader, 11), Err(12));
    assert_eq!(served(&reader, 12), Ok(2));
}

#[tokio::test(start_paused = true)]
async fn an_empty_hole_expires_with_age() {
    let (mut writer, reader) = three_objects(None);
    let mut relist = writer.relist();
    for (version, text) in [(1, "a/x"), (2, "a/y"), (3, "a/z")] {
        relist.add(object(text, "u", version, "web"));
    }
    let ahead = WatchFrom::After(ResourceVersion(15));
    let mut ahead = reader.watch(ahead, everything()).unwrap();
    writer.replace(relist, ResourceVersion(20));
    assert_eq!(served(&reader, 10), Ok(0));
    advance(Duration::from_secs(75)).await;
    writer.bookmark(ResourceVersion(21)).unwrap();
    assert_eq!(served(&reader, 10), Err(20));
    assert_eq!(served(&reader, 15), Err(20));
    assert_eq!(served(&reader, 20), Ok(0));
    assert_eq!(ahead.bookmark(), None);
    assert_eq!(describe(&drain(&mut ahead)), ["expired"]);
}

#[tokio::test(start_paused = true)]
async fn pinned_snapshots_are_bounded_by_age_bytes_and_epoch() {
    let (mut writer, reader) = three_objects(Some(2300));
    let pin = |reader: &Reader| reader.pin(&reader.snapshot().unwrap());
    assert!(at(&reader, 10) && !at(&reader, 9));
    pin(&reader);
    modify(&mut writer, "a/x", 11);
    assert!(at(&reader, 10) && at(&reader, 11));
    modify(&mut writer, "a/x", 12);
    assert!(!at(&reader, 11), "not pinned");
    advance(Duration::from_secs(74)).await;
    assert!(at(&reader, 10));
    advance(Duration::from_secs(1)).await;
    assert!(!at(&reader, 10), "too old, even without a write");
    pin(&reader);
    assert_eq!(reader.stats().pinned, 1);

    let mut large = object("a/x", "u", 13, "web");
    large.body = Bytes::from(vec![b'x'; 1997]);
    writer.apply(EventType::Modified, large, None).unwrap();
    assert!(at(&reader, 12));
    pin(&reader);
    modify(&mut writer, "a/x", 14);
    assert!(
        at(&reader, 13) && !at(&reader, 12),
        "more than 2300 bytes were replaced since"
    );

    let snapshot = reader.snapshot().unwrap();
    let proven = reader.proven_at(&snapshot, ResourceVersion(16), &everything());
    reader.pin(&proven);
    assert!(at(&reader, 16));
    writer.replace(writer.relist(), ResourceVersion(20));
    assert!(!at(&reader, 16), "16 is inside the hole");
    assert!(at(&reader, 20));
    writer.new_epoch(EpochCause::BytesDiffer);
    assert!(!at(&reader, 20) && reader.stats().pinned == 0);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_proven_at_a_later_version_is_kept_for_its_selection_only() {
    let (mut writer, reader) = three_objects(None);
    let version = ResourceVersion(16);
    let (web, db) = (Arc::new(with_label("web")), Arc::new(with_label("db")));
    let has = |selection: &Arc<Selection>| reader.snapshot_at(version, selection).is_some();
    let snapshot = reader.snapshot().unwrap();
    let part = reader.proven_at(&snapshot, version, &web);
    assert!(!part.is_whole());
    reader.pin(&part);
    assert!(has(&web) && !has(&db) && !has(&everything()));
    // An equal selection that another client has sent.
    assert!(has(&Arc::new(with_label("web"))));
    // A later page pins again what it has found, and proves no more by that.
    let found = reader.snapshot_at(version, &web).unwrap();
    reader.pin(&found);
    assert!(!has(&everything()));
    reader.pin(&reader.proven_at(&snapshot, version, &db));
    assert_eq!(reader.stats().pinned, 2);
    reader.pin(&reader.proven_at(&snapshot, version, &everything()));
    assert!(has(&everything()) && has(&Arc::new(in_namespace("a"))));
    assert_eq!(reader.stats().pinned, 3);
    // At its own version a snapshot has all objects.
    let own = reader.proven_at(&snapshot, ResourceVersion(10), &web);
    assert!(own.is_whole());

    advance(Duration::from_secs(74)).await;
    reader.pin(&part);
    advance(Duration::from_secs(1)).await;
    writer.bookmark(ResourceVersion(11)).unwrap();
    assert!(has(&web) && !has(&everything()));
    assert_eq!(reader.stats().pinned, 1);
    writer.replace(writer.relist(), ResourceVersion(20));
    assert!(!has(&web), "16 is inside the hole");
}

#[tokio::test(start_paused = true)]
async fn pins_are_counted() {
    let (mut writer, reader) = three_objects(None);
    for version in 11..=1200 {
        writer.bookmark(ResourceVersion(version)).unwrap();
        reader.pin(&reader.snapshot().unwrap());
    }
    assert_eq!(reader.stats().pinned, 1024);
    assert!(at(&reader, 1199) && !at(&reader, 11));
}

#[tokio::test(start_paused = true)]
async fn readers_wait_for_readiness_and_versions() {
    let (mut writer, reader) = cache(config());
    let waiting = {
        let reader = reader.clone();
        tokio::spawn(async move { reader.ready().await })
    };
    tokio::task::yield_now().await;
    writer.replace(writer.relist(), ResourceVersion(10));
    assert!(waiting.await.unwrap());

    let soon = || Instant::now() + Duration::from_secs(3);
    assert!(reader.wait_for(ResourceVersion(10), soon()).await);
    let started = Instant::now();
    assert!(!reader.wait_for(ResourceVersion(11), soon()).await);
    assert_eq!(started.elapsed(), Duration::from_secs(3));

    let waiting = {
        let (reader, soon) = (reader.clone(), soon());
        tokio::spawn(async move { reader.wait_for(ResourceVersion(12), soon).await })
    };
    for version in [11, 12] {
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        writer.bookmark(ResourceVersion(version)).unwrap();
    }
    assert!(waiting.await.unwrap());
    assert_eq!(
        started.elapsed(),
        Duration::from_secs(3),
        "woken, not timed out"
    );

    let waiting = {
        let (reader, soon) = (reader.clone(), soon());
        tokio::spawn(async move { reader.wait_for(ResourceVersion(99), soon).await })
    };
    tokio::task::yield_now().await;
    writer.close();
    assert!(!waiting.await.unwrap());
    assert!(!reader.ready().await, "a closed cache is never ready");
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn streams_are_woken_by_events_relists_epochs_and_the_end() {
    let (mut writer, reader) = three_objects(None);
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut expiring = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let task = tokio::spawn(async move {
        while let Some(item) = stream.next().await {
            sender.send(describe(&[item]).remove(0)).unwrap();
        }
    });
    tokio::task::yield_now().await;
    modify(&mut writer, "a/x", 11);
    assert_eq!(received.recv().await.unwrap(), "MODIFIED a/x@11");
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 11, "web"));
    relist.add(object("a/y", "u", 2, "web"));
    writer.replace(relist, ResourceVersion(12));
    assert_eq!(received.recv().await.unwrap(), "DELETED a/z@11");
    tokio::task::yield_now().await;
    writer.new_epoch(EpochCause::WentBack);
    assert_eq!(received.recv().await.unwrap(), "expired");
    task.await.unwrap();

    writer.replace(writer.relist(), ResourceVersion(30));
    let start = WatchFrom::After(ResourceVersion(30));
    let mut last = reader.watch(start, everything()).unwrap();
    modify(&mut writer, "a/x", 31);
    let task = tokio::spawn(async move {
        let first = last.next().await;
        (
            first.is_some(),
            last.next().await.is_none(),
            last.next().await.is_none(),
        )
    });
    tokio::task::yield_now().await;
    drop(writer);
    assert_eq!(task.await.unwrap(), (true, true, true), "all, then the end");
    assert_eq!(describe(&drain(&mut expiring)), ["expired"]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_covers_only_delivered_events() {
    let (mut writer, reader) = three_objects(None);
    let mut stream = reader.watch(WatchFrom::Snapshot, everything()).unwrap();
    writer.bookmark(ResourceVersion(11)).unwrap();
    assert_eq!(stream.bookmark(), None, "initial objects are not delivered");
    for expected in ["+a/x", "+a/y", "+a/z", "=10"] {
        let item = stream.next().await.unwrap();
        assert_eq!(describe(&[item]), [expected]);
        let bookmark = stream.bookmark().map(|version| version.0);
        assert_eq!(bookmark, (expected == "=10").then_some(11));
    }
    modify(&mut writer, "a/x", 12);
    modify(&mut writer, "a/y", 13);
    assert_eq!(stream.bookmark(), None, "two events are not delivered");
    assert!(stream.next().await.is_some());
    assert_eq!(stream.bookmark(), None, "one event is not delivered");
    assert!(stream.next().await.is_some());
    assert_eq!(stream.bookmark(), Some(ResourceVersion(13)));
    let tip = reader.watch(WatchFrom::Tip, everything()).unwrap();
    assert_eq!(tip.bookmark(), None, "not above the start");
    writer.bookmark(ResourceVersion(14)).unwrap();
    assert_eq!(tip.bookmark(), Some(ResourceVersion(14)));
}
