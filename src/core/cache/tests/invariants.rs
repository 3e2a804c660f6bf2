//! Tests of the invariants I1 to I7 of [`crate::cache`]. Each test's name begins with its
//! invariant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

use bytes::Bytes;

use crate::api::{EventType, Field, Object, ObjectKey, ResourceVersion, Selection, WireFormat};
use crate::cache::tests::support::{
    config, describe, drain, everything, key, object, poll, with_field, with_label,
};
use crate::cache::{Config, EpochCause, Reader, WatchFrom, WatchItem, Writer, cache};

const WRITES: u64 = 3000;

type View = BTreeMap<ObjectKey, Arc<Object>>;

/// A ready cache without objects, at resource version 10.
fn ready(config: Config) -> (Writer, Reader) {
    let (mut writer, reader) = cache(config);
    writer.replace(writer.relist(), ResourceVersion(10));
    (writer, reader)
}

fn write(writer: &mut Writer, event_type: EventType, text: &str, version: u64, app: &str) {
    let written = object(text, "u", version, app);
    writer.apply(event_type, written, None).unwrap();
}

/// Writes resource versions 11 to `10 + WRITES` on another thread.
fn write_elsewhere(mut writer: Writer) -> thread::JoinHandle<Writer> {
    thread::spawn(move || {
        for version in 11..=10 + WRITES {
            let name = format!("a/{}", version % 50);
            write(&mut writer, EventType::Modified, &name, version, "web");
        }
        writer
    })
}

#[test]
fn i1_the_log_tip_is_the_store_version() {
    let (writer, reader) = ready(config());
    let writes = write_elsewhere(writer);
    loop {
        let stats = reader.stats();
        let applied = stats.applied.unwrap().0;
        assert_eq!(applied - 10, stats.log_events as u64);
        assert_eq!(stats.objects as u64, (applied - 10).min(50));
        if applied == 10 + WRITES {
            break;
        }
    }
    writes.join().unwrap();
}

#[test]
fn i1_the_wake_up_comes_after_both() {
    let (writer, reader) = ready(config());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let writes = write_elsewhere(writer);
    runtime.block_on(async {
        let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
        while let Some(item) = stream.next().await {
            let WatchItem::Change { event, .. } = item else {
                panic!("{item:?}");
            };
            let snapshot = reader.snapshot().unwrap();
            assert!(snapshot.resource_version() >= event.resource_version);
            if event.resource_version.0 == 10 + WRITES {
                break;
            }
        }
    });
    writes.join().unwrap();
}

#[test]
fn i2_a_snapshot_never_changes() {
    let (mut writer, reader) = ready(config());
    write(&mut writer, EventType::Added, "a/x", 11, "web");
    write(&mut writer, EventType::Added, "a/y", 12, "web");
    let snapshot = reader.snapshot().unwrap();
    let selection = with_label("web");
    let listed: Vec<_> = snapshot.list(&selection, None).collect();
    write(&mut writer, EventType::Modified, "a/x", 13, "db");
    write(&mut writer, EventType::Deleted, "a/y", 14, "web");
    let mut relist = writer.relist();
    relist.add(object("a/z", "u", 15, "web"));
    writer.replace(relist, ResourceVersion(15));
    writer.new_epoch(EpochCause::BytesDiffer);
    assert_eq!(snapshot.resource_version(), ResourceVersion(12));
    assert_eq!(snapshot.len(), 2);
    assert!(snapshot.list(&selection, None).eq(listed));
    assert_eq!(snapshot.get(&key("a/x")).unwrap().label("app"), Some("web"));
}

#[test]
fn i3_an_event_carries_the_previous_object_and_the_verdict_needs_both() {
    use EventType::{Added, Deleted, Modified};
    // ((type, key, version and label of the change), selected label, expected verdict and body)
    let cases = [
        ((Added, "a/x", 11, "web"), "web", Some((Added, "u@11"))),
        ((Added, "a/y", 12, "db"), "web", None),
        ((Modified, "a/y", 13, "web"), "web", Some((Added, "u@13"))),
        (
            (Modified, "a/x", 14, "web"),
            "web",
            Some((Modified, "u@14")),
        ),
        ((Modified, "a/x", 15, "db"), "web", Some((Deleted, "u@14"))),
        ((Modified, "a/x", 16, "db"), "web", None),
        ((Deleted, "a/y", 17, "web"), "web", Some((Deleted, "u@17"))),
        ((Deleted, "a/x", 18, "db"), "web", None),
    ];
    let (mut writer, reader) = ready(config());
    for ((event_type, text, version, app), selected, expected) in cases {
        let selection = Arc::new(with_label(selected));
        let mut selecting = reader.watch(WatchFrom::Tip, selection).unwrap();
        let mut whole = reader.watch(WatchFrom::Tip, everything()).unwrap();
        let before = reader.snapshot().unwrap().get(&key(text));
        write(&mut writer, event_type, text, version, app);

        let Poll::Ready(Some(WatchItem::Change { event, verdict })) = poll(&mut whole) else {
            panic!("no event at {version}");
        };
        assert_eq!((verdict, &event.previous), (event_type, &before));
        assert_eq!(event.resource_version, ResourceVersion(version));

        let received = drain(&mut selecting).into_iter().map(|item| match item {
            WatchItem::Change { event, verdict } => {
                assert_eq!(event.resource_version, ResourceVersion(version));
                (verdict, event.object_for(verdict).body.clone())
            }
            other => panic!("{other:?}"),
        });
        let expected = expected.map(|(verdict, body)| (verdict, Bytes::from(body)));
        assert_eq!(received.collect::<Vec<_>>(), Vec::from_iter(expected));
    }
}

#[test]
fn i4_a_watch_delivers_everything_in_order_or_expires() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for retention_bytes in [None, Some(4000)] {
        let (writer, reader) = ready(Config {
            retention_bytes,
            ..config()
        });
        let mut stream = reader.watch(WatchFrom::Snapshot, everything()).unwrap();
        let writes = write_elsewhere(writer);
        let closes = thread::spawn(move || writes.join().unwrap().close());
        let mut seen = 10;
        let expired = runtime.block_on(async {
            while let Some(item) = stream.next().await {
                match item {
                    WatchItem::Change { event, .. } => {
                        seen += 1;
                        assert_eq!(event.resource_version, ResourceVersion(seen));
                    }
                    WatchItem::InitialEnd(version) => assert_eq!(version, ResourceVersion(10)),
                    WatchItem::Expired(expired) => return Some(expired),
                    WatchItem::Initial(object) => panic!("{object:?}"),
                }
            }
            None
        });
        match expired {
            None => assert_eq!(seen, 10 + WRITES),
            Some(expired) => {
                assert!(retention_bytes.is_some());
                assert_eq!(expired.requested, ResourceVersion(seen));
                assert!(expired.oldest > expired.requested);
            }
        }
        closes.join().unwrap();
        assert_eq!(reader.stats().watchers, 1);
        drop(stream);
        assert_eq!(reader.stats().watchers, 0);
    }
}

/// Opens watches one after another, each from the last version that the previous one delivered,
/// until `is_over`. Counts them in `watches`, and returns the view that results from all events.
fn resumed_until(
    is_over: &AtomicBool,
    reader: &Reader,
    selection: &Arc<Selection>,
    watches: &AtomicUsize,
) -> View {
    let mut view = View::new();
    let mut seen = ResourceVersion(10);
    loop {
        let is_last = is_over.load(Ordering::SeqCst);
        let stream = reader.watch(WatchFrom::After(seen), selection.clone());
        let mut stream = stream.unwrap();
        for _ in 0..3 {
            for item in drain(&mut stream) {
                let WatchItem::Change { event, verdict } = item else {
                    panic!("{item:?}");
                };
                assert!(event.resource_version > seen);
                seen = event.resource_version;
                let object = event.object_for(verdict).clone();
                let before = match verdict {
                    EventType::Deleted => view.remove(&object.key),
                    _ => view.insert(object.key.clone(), object),
                };
                assert_eq!(before.is_none(), verdict == EventType::Added);
            }
        }
        watches.fetch_add(1, Ordering::SeqCst);
        if is_last {
            return view;
        }
    }
}

#[test]
fn i4_a_watch_that_joins_during_writes_misses_nothing() {
    let (mut writer, reader) = ready(config());
    let selections = [
        Selection::default(),
        with_label("web"),
        with_field(Field::Value(0), true, "db"),
        with_field(Field::Value(0), false, "db"),
    ];
    let is_over = AtomicBool::new(false);
    let watches = [(); 4].map(|()| AtomicUsize::new(0));
    thread::scope(|scope| {
        for (selection, watches) in selections.into_iter().zip(&watches) {
            let (reader, is_over) = (&reader, &is_over);
            scope.spawn(move || {
                let selection = Arc::new(selection);
                let view = resumed_until(is_over, reader, &selection, watches);
                let snapshot = reader.snapshot().unwrap();
                let listed: Vec<_> = snapshot.list(&selection, None).collect();
                assert_eq!(Vec::from_iter(view.into_values()), listed);
            });
        }
        // Write until each watcher has opened 1000 watches, but fewer events than the log can hold.
        for version in 11..100_000_u64 {
            let app = ["web", "db"][usize::from(version % 2 == 0)];
            let name = format!("a/{}", version % 7);
            write(&mut writer, EventType::Modified, &name, version, app);
            if watches
                .iter()
                .all(|count| count.load(Ordering::SeqCst) > 1000)
            {
                break;
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let stats = reader.stats();
    assert_eq!((stats.watchers, stats.groups), (0, 0));
}

#[test]
fn i4_a_watch_that_falls_off_the_log_expires_and_ends() {
    let (mut writer, reader) = ready(Config {
        retention_bytes: Some(1000),
        ..config()
    });
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    for version in 11..20 {
        write(&mut writer, EventType::Modified, "a/x", version, "web");
    }
    assert_eq!(describe(&drain(&mut stream)), ["expired"]);
    assert!(matches!(poll(&mut stream), Poll::Ready(None)));
    assert_eq!(stream.bookmark(), None);
}

#[test]
fn i5_the_writer_never_waits_for_a_reader_or_an_encoder() {
    let (mut writer, reader) = ready(config());
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    write(&mut writer, EventType::Added, "a/x", 11, "web");
    let snapshot = reader.snapshot().unwrap();
    let selection = everything();
    let mut list = snapshot.list(&selection, None);
    let Poll::Ready(Some(WatchItem::Change { event, verdict })) = poll(&mut stream) else {
        panic!("no event");
    };
    // Everything runs on one thread, so a lock held by a reader or encoder would block the writer.
    let frame = event.frame(verdict, || {
        write(&mut writer, EventType::Added, "a/y", 12, "web");
        Bytes::from_static(b"frame")
    });
    assert_eq!(frame, "frame");
    assert!(list.next().is_some());
    write(&mut writer, EventType::Added, "a/z", 13, "web");
    assert!(list.next().is_none());
    assert_eq!(
        describe(&drain(&mut stream)),
        ["ADDED a/y@12", "ADDED a/z@13"]
    );
}

#[test]
fn i6_an_event_is_encoded_at_most_once_per_verdict() {
    let (mut writer, reader) = ready(config());
    let upstream_frame = Some(Bytes::from_static(b"upstream"));
    let web = Arc::new(with_label("web"));
    let start = WatchFrom::After(ResourceVersion(10));
    writer
        .apply(EventType::Added, object("a/x", "u", 11, "db"), None)
        .unwrap();
    writer
        .apply(
            EventType::Modified,
            object("a/x", "u", 12, "web"),
            upstream_frame,
        )
        .unwrap();
    let encodings = AtomicUsize::new(0);
    let encode = || {
        encodings.fetch_add(1, Ordering::Relaxed);
        Bytes::from_static(b"encoded")
    };
    let watch = |selection| {
        let mut stream = reader.watch(start, selection).unwrap();
        match drain(&mut stream).pop() {
            Some(WatchItem::Change { event, verdict }) => (verdict, event.frame(verdict, encode)),
            other => panic!("{other:?}"),
        }
    };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let entered = (EventType::Added, Bytes::from_static(b"encoded"));
                assert_eq!(watch(web.clone()), entered);
            });
        }
    });
    assert_eq!(encodings.load(Ordering::Relaxed), 1);
    let as_received = (EventType::Modified, Bytes::from_static(b"upstream"));
    assert_eq!(watch(everything()), as_received);
    assert_eq!(encodings.load(Ordering::Relaxed), 1);
    // Metadata-only frames are separate frames in each format, and the upstream sent none.
    let mut stream = reader.watch(start, everything()).unwrap();
    let Some(WatchItem::Change { event, verdict }) = drain(&mut stream).pop() else {
        panic!("no event");
    };
    for format in [WireFormat::Json, WireFormat::Protobuf].repeat(2) {
        let frame = event.metadata_frame(format, verdict, encode);
        assert_eq!(frame, "encoded");
    }
    assert_eq!(encodings.load(Ordering::Relaxed), 3);
}

#[test]
fn i7_nothing_is_served_before_the_first_full_list() {
    let (mut writer, reader) = cache(config());
    assert!(!reader.is_ready() && reader.snapshot().is_none());
    assert!(
        reader
            .snapshot_at(ResourceVersion(0), &Arc::default())
            .is_none()
    );
    for start in [
        WatchFrom::Snapshot,
        WatchFrom::Tip,
        WatchFrom::After(ResourceVersion(5)),
    ] {
        assert!(reader.watch(start, everything()).is_err(), "{start:?}");
    }
    let early = object("a/x", "u", 11, "web");
    assert!(writer.apply(EventType::Added, early, None).is_err());
    assert!(writer.bookmark(ResourceVersion(11)).is_err());
    let mut relist = writer.relist();
    relist.add(object("a/x", "u", 9, "web"));
    assert!(
        !reader.is_ready(),
        "a relist is visible only when it is complete"
    );
    writer.replace(relist, ResourceVersion(10));
    let mut stream = reader.watch(WatchFrom::Snapshot, everything()).unwrap();
    assert_eq!(describe(&drain(&mut stream)), ["+a/x", "=10"]);
}

#[test]
fn i7_a_relist_yields_the_deletions_it_implies() {
    let (mut writer, reader) = ready(config());
    for (version, text) in [(11, "a/z"), (12, "a/x"), (13, "a/y")] {
        write(&mut writer, EventType::Added, text, version, "web");
    }
    let mut stream = reader.watch(WatchFrom::Tip, everything()).unwrap();
    let mut relist = writer.relist();
    relist.add(object("a/y", "u", 13, "web"));
    writer.replace(relist, ResourceVersion(20));
    assert_eq!(
        describe(&drain(&mut stream)),
        ["DELETED a/x@13", "DELETED a/z@13"]
    );
    assert_eq!(stream.bookmark(), Some(ResourceVersion(20)));
}
