//! Tests when watches send bookmarks and when they end, in paused time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{FutureExt, poll};
use http_body_util::BodyExt;
use kubefan_core::api::{
    EventType, GroupVersionResource, Object, ObjectKey, ObjectValues, Resource, ResourceVersion,
    Selection, WireFormat,
};
use kubefan_core::cache;
use kubefan_core::cache::{
    Bridge, BridgeWriter, EpochCause, Reader, WatchError, WatchFrom, Writer,
};
use kubefan_core::codec::{
    Clock, Encoder, IncludeObject, KeptRows, MetaVersion, Printer, Representation, RowMemory,
    TableView, View,
};
use kubefan_core::shutdown::{Shutdown, WatchEnd};
use parking_lot::Mutex;
use tokio::task::coop::{consume_budget, has_budget_remaining};
use tokio::time::{Instant, advance, sleep};

use super::{WatchBody, WatchSource};
use crate::ledger::{Account, Client, Ledger, Limits, SnapshotAge};
use crate::server::cached::collection::Collection;
use crate::server::decide::WatchTerms;

/// A collection at resource version 10, with one object of version 5.
pub(in crate::server::deliver) struct TestCollection {
    pub(in crate::server::deliver) writer: Mutex<Writer>,
    reader: Reader,
    encoder: Arc<Encoder>,
    /// True after an object could not be printed.
    is_unprintable: AtomicBool,
}

impl TestCollection {
    /// Makes a collection that is shown as Tables.
    pub(in crate::server::deliver) fn of_tables() -> Arc<Self> {
        let kept = Arc::new(KeptRows::new(Arc::new(RowMemory::new(0))));
        let shown = (MetaVersion::V1, IncludeObject::None);
        let view = TableView::new(Printer::fallback(), shown, kept, Clock::default(), true);
        let mut collection = Self::new();
        let tables = collection.encoder.table(Arc::new(view));
        let own = Arc::get_mut(&mut collection).expect("the only reference");
        own.encoder = Arc::new(tables);
        collection
    }

    /// Opens a watch of later changes, shown as a Table.
    fn watch_table(self: &Arc<Self>, account: &Arc<Account>) -> WatchBody {
        self.watch_table_from(WatchFrom::Tip, account)
    }

    fn watch_table_from(self: &Arc<Self>, from: WatchFrom, account: &Arc<Account>) -> WatchBody {
        let stream = self.reader.watch(from, Arc::default());
        let collection: Arc<dyn Collection> = self.clone();
        let body = WatchBody::new(
            collection,
            WatchSource::Stream(stream.expect("the cache is ready")),
            Representation {
                view: View::Table(MetaVersion::V1, IncludeObject::None),
                ..Representation::plain(WireFormat::Json)
            },
            WatchTerms::default(),
            true,
            Shutdown::new(kubefan_core::shutdown::Config::default()).watch_end(),
        );
        body.charged_to(Some(Arc::clone(account)))
    }

    pub(in crate::server::deliver) fn new() -> Arc<Self> {
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let mut list = writer.relist();
        list.add(object("old", 5));
        writer.replace(list, ResourceVersion(10));
        Arc::new(Self {
            writer: Mutex::new(writer),
            reader,
            encoder: Arc::new(Encoder::new(WireFormat::Json, "Thing", "v1")),
            is_unprintable: AtomicBool::new(false),
        })
    }

    pub(in crate::server::deliver) fn add(&self, name: &str, version: u64) {
        let added = self
            .writer
            .lock()
            .apply(EventType::Added, object(name, version), None);
        added.expect("a version above the last");
    }

    /// Raises the collection's resource version by a bookmark, without a change of an object.
    fn advance_to(&self, version: u64) {
        let passed = self.writer.lock().bookmark(ResourceVersion(version));
        passed.expect("a version not below the last");
    }

    fn watch(self: &Arc<Self>, from: WatchFrom, timeout: Option<u64>) -> Watch {
        let terms = WatchTerms {
            bookmarks: true,
            initial_events_end: false,
            timeout: timeout.map(Duration::from_secs),
        };
        self.watch_with(from, terms, true)
    }

    fn watch_with(
        self: &Arc<Self>,
        from: WatchFrom,
        terms: WatchTerms,
        one_event_per_frame: bool,
    ) -> Watch {
        let source = match self.reader.watch(from, Arc::default()) {
            Ok(stream) => WatchSource::Stream(stream),
            Err(WatchError::Expired(expired)) => WatchSource::Expired(expired),
            Err(other) => panic!("{other}"),
        };
        self.watch_source(source, terms, one_event_per_frame)
    }

    /// Opens a watch after `version`, which is older than the log. Returns it with the writer of
    /// its bridge.
    fn watch_bridged(
        self: &Arc<Self>,
        version: u64,
        bookmarks: bool,
        timeout: u64,
    ) -> (BridgeWriter, Watch) {
        let gap = self.reader.gap(ResourceVersion(version), &Arc::default());
        let gap = gap.expect("no limit").expect("a gap");
        let (writer, _, bridged) = Bridge::new(gap, Arc::default(), 1 << 20);
        writer.open();
        let terms = WatchTerms {
            bookmarks,
            initial_events_end: false,
            timeout: Some(Duration::from_secs(timeout)),
        };
        let watch = self.watch_source(WatchSource::Bridge(bridged), terms, true);
        (writer, watch)
    }

    fn watch_source(
        self: &Arc<Self>,
        source: WatchSource,
        terms: WatchTerms,
        one_event_per_frame: bool,
    ) -> Watch {
        let shutdown = Shutdown::new(kubefan_core::shutdown::Config::default());
        self.watch_until(source, terms, one_event_per_frame, shutdown.watch_end())
    }

    fn watch_until(
        self: &Arc<Self>,
        source: WatchSource,
        terms: WatchTerms,
        one_event_per_frame: bool,
        drain: WatchEnd,
    ) -> Watch {
        let collection: Arc<dyn Collection> = self.clone();
        let representation = Representation::plain(WireFormat::Json);
        let body = WatchBody::new(
            collection,
            source,
            representation,
            terms,
            one_event_per_frame,
            drain,
        );
        Watch {
            body,
            started: Instant::now(),
        }
    }
}

impl Collection for TestCollection {
    fn cannot_print(&self) {
        self.is_unprintable.store(true, Ordering::Relaxed);
    }

    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }
}

pub(in crate::server::deliver) fn object(name: &str, version: u64) -> Object {
    let body = format!(r#""metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#);
    let values = ObjectValues {
        uid: name.into(),
        ..ObjectValues::default()
    };
    let key = ObjectKey::new(None, name);
    Object::new(key, ResourceVersion(version), &values, body.into())
}

struct Watch {
    body: WatchBody,
    started: Instant,
}

impl Watch {
    /// Returns the next frame, and the seconds from the start of the watch until then; `None` at
    /// the end.
    async fn next(&mut self) -> (f64, Option<String>) {
        let frame = self.body.frame().await;
        let text = frame.map(|frame| {
            let data = frame.expect("no failure").into_data().expect("data");
            String::from_utf8(data.to_vec()).expect("JSON")
        });
        (self.started.elapsed().as_secs_f64(), text)
    }

    /// Returns all events until the end, such as `2: BOOKMARK 11`, `3: ADDED 12` and `4: end`. The
    /// first number is the time since the start of the watch, rounded to seconds.
    async fn all(mut self) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let (seconds, text) = self.next().await;
            let Some(text) = text else {
                seen.push(format!("{seconds:.0}: end"));
                return seen;
            };
            let event: serde_json::Value = serde_json::from_str(&text).expect("an event");
            let kind = event["type"].as_str().unwrap_or_default();
            let version = event["object"]["metadata"]["resourceVersion"].as_str();
            let end = event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"]
                .as_str()
                .map(|_| " end of initial events");
            seen.push(format!(
                "{seconds:.0}: {kind} {}{}",
                version.unwrap_or_default(),
                end.unwrap_or_default()
            ));
        }
    }
}

const AFTER_10: WatchFrom = WatchFrom::After(ResourceVersion(10));

#[tokio::test(start_paused = true)]
async fn the_last_bookmark_comes_two_seconds_before_the_end() {
    let collection = TestCollection::new();
    for (timeout, expected) in [
        (4, vec!["2: BOOKMARK 11", "4: end"]),
        (3, vec!["1: BOOKMARK 11", "3: end"]),
        // These watches are too short for a bookmark.
        (2, vec!["2: end"]),
        (1, vec!["1: end"]),
        (0, vec!["0: end"]),
    ] {
        let watch = collection.watch(AFTER_10, Some(timeout));
        collection.advance_to(11);
        assert_eq!(watch.all().await, expected, "{timeout} s");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_event_before_the_end_of_the_process_is_a_bookmark() {
    const BOOKMARKS: WatchTerms = WatchTerms {
        bookmarks: true,
        initial_events_end: false,
        timeout: Some(Duration::from_secs(600)),
    };
    let without = WatchTerms {
        bookmarks: false,
        ..BOOKMARKS
    };
    let passed = WatchFrom::After(ResourceVersion(11));
    for (from, terms, expected) in [
        (AFTER_10, BOOKMARKS, vec!["0: BOOKMARK 11", "0: end"]),
        (AFTER_10, without, vec!["0: end"]),
        // The client has this version.
        (passed, BOOKMARKS, vec!["0: end"]),
    ] {
        let collection = TestCollection::new();
        collection.advance_to(11);
        let shutdown = Shutdown::new(kubefan_core::shutdown::Config::default());
        let stream = collection.reader.watch(from, Arc::default());
        let source = WatchSource::Stream(stream.expect("the cache is ready"));
        let watch = collection.watch_until(source, terms, true, shutdown.watch_end());
        let (seen, _) = tokio::join!(watch.all(), shutdown.drain());
        assert_eq!(seen, expected);
    }
}

/// A client must not get a bookmark in place of events that it has not received.
#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_within_its_events_has_no_bookmark() {
    let collection = TestCollection::new();
    let terms = WatchTerms {
        bookmarks: true,
        initial_events_end: false,
        timeout: Some(Duration::from_secs(600)),
    };
    for from in [WatchFrom::Snapshot, AFTER_10] {
        let next = collection.reader.applied().expect("a version").0 + 1;
        for version in next..next + 3 {
            collection.add(&format!("new-{version}"), version);
        }
        let shutdown = Shutdown::new(kubefan_core::shutdown::Config::default());
        let stream = collection.reader.watch(from, Arc::default());
        let source = WatchSource::Stream(stream.expect("the cache is ready"));
        let mut watch = collection.watch_until(source, terms, true, shutdown.watch_end());
        let (_, first) = watch.next().await;
        shutdown.drain().await;
        // The watch chooses when it ends, some milliseconds later.
        let (_, second) = watch.next().await;
        for event in [first, second] {
            assert!(event.is_some_and(|event| event.contains("ADDED")));
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(watch.all().await, ["1: end"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_comes_every_minute() {
    let collection = TestCollection::new();
    let mut watch = collection.watch(AFTER_10, Some(600));
    collection.advance_to(11);
    let mut before = 0.0;
    for _ in 0..9 {
        let (seconds, frame) = watch.next().await;
        assert!(frame.is_some_and(|frame| frame.contains("BOOKMARK")));
        let pause = seconds - before;
        assert!((60.0..62.3).contains(&pause), "{pause}");
        before = seconds;
    }
    let (seconds, _) = watch.next().await;
    assert_eq!(seconds.round(), 598.0);
    assert_eq!(watch.all().await, ["600: end"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_news_gets_no_bookmark() {
    let collection = TestCollection::new();
    let mut watch = collection.watch(AFTER_10, Some(200));
    // For two minutes nothing happens; then the resource version advances.
    let silence = tokio::time::timeout(Duration::from_secs(125), watch.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    collection.advance_to(12);
    let (seconds, frame) = watch.next().await;
    assert!(frame.is_some_and(|frame| frame.contains(r#""resourceVersion":"12""#)));
    assert!((180.0..187.0).contains(&seconds), "{seconds}");
    assert_eq!(watch.all().await, ["198: BOOKMARK 12", "200: end"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_a_start_in_the_future() {
    let collection = TestCollection::new();
    let watch = collection.watch(WatchFrom::After(ResourceVersion(1_000)), Some(100));
    collection.advance_to(500);
    assert_eq!(watch.all().await, ["100: end"]);
}

#[tokio::test(start_paused = true)]
async fn a_relist_is_sent_at_once() {
    let collection = TestCollection::new();
    let mut watch = collection.watch(AFTER_10, Some(600));
    let silence = tokio::time::timeout(Duration::from_secs(5), watch.next()).await;
    assert!(silence.is_err());
    let list = collection.writer.lock().relist();
    collection.writer.lock().replace(list, ResourceVersion(20));
    let (_, deleted) = watch.next().await;
    assert!(deleted.is_some_and(|frame| frame.contains("DELETED")));
    let (seconds, bookmark) = watch.next().await;
    assert!(bookmark.is_some_and(|frame| frame.contains(r#""resourceVersion":"20""#)));
    assert!(seconds < 6.0, "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_bridge_comes_before_the_log() {
    for (bookmarks, expected) in [
        (
            true,
            vec![
                "0: MODIFIED 8",
                "1: BOOKMARK 10",
                "3: ADDED 12",
                "8: BOOKMARK 12",
                "10: end",
            ],
        ),
        (false, vec!["0: MODIFIED 8", "3: ADDED 12", "10: end"]),
    ] {
        let collection = TestCollection::new();
        let (bridge, watch) = collection.watch_bridged(7, bookmarks, 10);
        let changes = async {
            let frame = br#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"8"}}}"#;
            bridge.push(
                EventType::Modified,
                object("old", 8),
                frame.as_slice().into(),
            );
            sleep(Duration::from_secs(1)).await;
            bridge.bookmark(ResourceVersion(10));
            sleep(Duration::from_secs(2)).await;
            collection.add("new", 12);
        };
        let (seen, ()) = tokio::join!(watch.all(), changes);
        assert_eq!(seen, expected, "{bookmarks}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_waits_on_a_bridge_ends_in_time() {
    let collection = TestCollection::new();
    for timeout in [0, 1, 4, 100] {
        // The bookmark that is due two seconds before the end is not sent.
        let (_bridge, watch) = collection.watch_bridged(7, true, timeout);
        assert_eq!(watch.all().await, [format!("{timeout}: end")]);
    }
    let (bridge, watch) = collection.watch_bridged(7, true, 4);
    drop(bridge);
    assert_eq!(watch.all().await, ["0: ERROR ", "0: end"]);
}

#[tokio::test(start_paused = true)]
async fn a_first_poll_without_tokios_budget_loses_no_alarm() {
    let collection = TestCollection::new();
    let mut all = pin!(collection.watch(AFTER_10, Some(10)).all());
    while has_budget_remaining() {
        consume_budget().now_or_never();
    }
    assert!(poll!(all.as_mut()).is_pending());
    assert_eq!(all.await, ["10: end"]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_are_closed_by_one_marked_bookmark() {
    let collection = TestCollection::new();
    for (bookmarks, expected) in [
        (
            true,
            vec![
                "0: ADDED 5",
                "0: BOOKMARK 10 end of initial events",
                "0: ADDED 11",
                "8: BOOKMARK 11",
                "10: end",
            ],
        ),
        (
            false,
            vec!["0: ADDED 11", "0: ADDED 5", "0: ADDED 12", "10: end"],
        ),
    ] {
        let terms = WatchTerms {
            bookmarks,
            initial_events_end: bookmarks,
            timeout: Some(Duration::from_secs(10)),
        };
        let watch = collection.watch_with(WatchFrom::Snapshot, terms, true);
        collection.add(&format!("new-{bookmarks}"), if bookmarks { 11 } else { 12 });
        assert_eq!(watch.all().await, expected, "{bookmarks}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_it_ends_between_half_an_hour_and_an_hour() {
    let collection = TestCollection::new();
    let mut ends = Vec::new();
    for _ in 0..5 {
        let watch = collection.watch(AFTER_10, None);
        let seen = watch.all().await;
        let [end] = seen.as_slice() else {
            panic!("{seen:?}");
        };
        let seconds: u64 = end
            .strip_suffix(": end")
            .and_then(|seconds| seconds.parse().ok())
            .expect("an end");
        assert!((1_800..=3_600).contains(&seconds), "{seconds}");
        ends.push(seconds);
        advance(Duration::from_secs(1)).await;
    }
    ends.dedup();
    assert!(ends.len() > 1, "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_frame_and_later_events_are_another() {
    let collection = TestCollection::new();
    let terms = WatchTerms {
        bookmarks: false,
        initial_events_end: false,
        timeout: Some(Duration::from_secs(10)),
    };
    let mut watch = collection.watch_with(AFTER_10, terms, false);
    let mut names = Vec::new();
    for burst in [1, 3, 500] {
        for n in 0..burst {
            names.push(format!("{burst}-{n}"));
            collection.add(&format!("{burst}-{n}"), 10 + names.len() as u64);
        }
        let mut lines = 0;
        let mut frames = 0;
        while lines < burst {
            let frame = watch.next().await.1.expect("a frame");
            assert!(frame.len() <= 16 << 10, "{} bytes", frame.len());
            for line in frame.lines() {
                let event: serde_json::Value = serde_json::from_str(line).expect("an event");
                let name = &names[names.len() - burst + lines];
                assert_eq!(event["object"]["metadata"]["name"], *name);
                lines += 1;
            }
            frames += 1;
        }
        assert!(
            frames <= 1 + burst / 50,
            "{burst} events in {frames} frames"
        );
    }
    assert_eq!(watch.all().await, ["10: end"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_never_idle_ends_too() {
    let collection = TestCollection::new();
    let terms = WatchTerms {
        bookmarks: false,
        initial_events_end: false,
        timeout: Some(Duration::from_secs(3)),
    };
    let mut watch = collection.watch_with(AFTER_10, terms, false);
    collection.add("first", 11);
    let mut version = 11;
    // An event is added before each read, so that one is always waiting.
    loop {
        version += 1;
        collection.add(&format!("more-{version}"), version);
        advance(Duration::from_millis(300)).await;
        let (seconds, frame) = watch.next().await;
        assert!(seconds < 3.5, "{seconds}");
        if frame.is_none() {
            break;
        }
    }
    assert!(version > 15, "{version}");
}

#[tokio::test(start_paused = true)]
async fn the_ledger_takes_the_snapshot_of_a_stalled_watch_without_a_poll() {
    let collection = TestCollection::new();
    let limits = Limits {
        memory: 64 << 10,
        ..Limits::default()
    };
    let ledger = Ledger::new(limits);
    let account = ledger.open_account();
    let stream = collection.reader.watch(WatchFrom::Snapshot, Arc::default());
    let stream = stream.expect("the cache is ready");
    let initial = stream.initial_objects();
    let initial = initial.expect("it starts with the objects");
    let mut watch = collection.watch(WatchFrom::Snapshot, None);
    let terms = WatchTerms {
        bookmarks: false,
        initial_events_end: false,
        timeout: None,
    };
    let collection_of_watch: Arc<dyn Collection> = collection.clone();
    let age = SnapshotAge::new(Arc::clone(collection.reader.replaced_bytes()), 0);
    watch.body = WatchBody::new(
        collection_of_watch,
        WatchSource::Stream(stream),
        Representation::plain(WireFormat::Json),
        terms,
        true,
        Shutdown::new(kubefan_core::shutdown::Config::default()).watch_end(),
    )
    .registered(Some(account.register(initial.clone(), Some(age))));
    let mut version = 11;
    while !initial.is_revoked() {
        collection.writer.lock().new_epoch(EpochCause::WentBack);
        let mut list = collection.writer.lock().relist();
        list.add(object("old", version));
        collection
            .writer
            .lock()
            .replace(list, ResourceVersion(version));
        version += 1;
        assert!(version < 10_000, "the snapshot is never taken");
        ledger.sweep(Instant::now(), &mut false);
    }
    let replaced = collection.reader.replaced_bytes().load(Ordering::Relaxed);
    assert!(replaced > limits.memory / 2, "{replaced}");
    let frame = watch
        .body
        .frame()
        .await
        .expect("a frame")
        .expect("no error");
    let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
    assert!(text.contains("\"code\":410"), "{text}");
    assert!(watch.body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_large_initial_event_without_memory_ends_the_watch() {
    const LENGTH: usize = 100 << 10;
    let collection = TestCollection::new();
    let name = "x".repeat(LENGTH);
    let mut list = collection.writer.lock().relist();
    list.add(object(&name, 11));
    collection.writer.lock().replace(list, ResourceVersion(11));
    for (connection_memory, fits) in [(1 << 20, true), (50 << 10, false)] {
        let limits = Limits {
            connection_memory,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let watch = collection.watch(WatchFrom::Snapshot, None);
        let mut body = watch.body.charged_to(Some(Arc::clone(&account)));
        let frame = body.frame().await.expect("a frame").expect("no error");
        let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
        assert_eq!(text.contains(&name), fits);
        assert_eq!(text.contains("\"code\":410"), !fits, "{connection_memory}");
        assert_eq!(ledger.leased() > LENGTH as u64, fits);
        drop((frame, body, account));
        assert_eq!(ledger.leased(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_initial_event_after_a_small_one_is_not_encoded_before_there_is_room() {
    const LENGTH: usize = 100 << 10;
    let collection = TestCollection::new();
    let name = "x".repeat(LENGTH);
    let mut list = collection.writer.lock().relist();
    for name in ["a", &name] {
        list.add(object(name, 11));
    }
    collection.writer.lock().replace(list, ResourceVersion(11));
    for (connection_memory, fits) in [(1 << 20, true), (50 << 10, false)] {
        let limits = Limits {
            connection_memory,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let terms = WatchTerms::default();
        let watch = collection.watch_with(WatchFrom::Snapshot, terms, false);
        let mut body = watch.body.charged_to(Some(Arc::clone(&account)));
        let small = body.frame().await.expect("a frame").expect("no error");
        let text = String::from_utf8_lossy(small.data_ref().expect("data")).into_owned();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(body.leftover.is_empty());
        drop(small);
        assert_eq!(ledger.leased(), 0);
        let large = body.frame().await.expect("a frame").expect("no error");
        let text = String::from_utf8_lossy(large.data_ref().expect("data")).into_owned();
        assert_eq!(text.contains(&name), fits);
        assert_eq!(text.contains("\"code\":410"), !fits, "{connection_memory}");
        assert_eq!(ledger.leased() > LENGTH as u64, fits);
        drop((large, body, account));
        assert_eq!(ledger.leased(), 0);
    }
}

/// The length of a row is not determined before the row is printed.
#[tokio::test(start_paused = true)]
async fn a_large_row_that_waits_for_the_next_burst_is_charged() {
    const LENGTH: usize = 100 << 10;
    let name = "x".repeat(LENGTH);
    for (connection_memory, fits) in [(1 << 20, true), (50 << 10, false)] {
        let collection = TestCollection::of_tables();
        collection.add("small", 11);
        collection.add(&name, 12);
        let limits = Limits {
            connection_memory,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let mut body = collection.watch_table_from(WatchFrom::Snapshot, &account);
        body.one_event_per_frame = false;
        let small = body.frame().await.expect("a frame").expect("no error");
        let text = String::from_utf8_lossy(small.data_ref().expect("data")).into_owned();
        assert!(text.contains("small"), "{text}");
        drop(small);
        assert_eq!(ledger.leased() > LENGTH as u64, fits);
        let large = body.frame().await.expect("a frame").expect("no error");
        let text = String::from_utf8_lossy(large.data_ref().expect("data")).into_owned();
        assert_eq!(text.contains(&name), fits);
        assert_eq!(text.contains("\"code\":410"), !fits, "{connection_memory}");
        assert_eq!(ledger.leased() > LENGTH as u64, fits);
        assert!(ledger.leased() < 2 * LENGTH as u64, "charged once");
        drop((large, body, account));
        assert_eq!(ledger.leased(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_event_of_a_table_is_charged() {
    const LENGTH: usize = 100 << 10;
    let name = "x".repeat(LENGTH);
    for (connection_memory, fits) in [(1 << 20, true), (50 << 10, false)] {
        let collection = TestCollection::of_tables();
        let limits = Limits {
            connection_memory,
            ..Limits::new(Some(1 << 30), None, 0)
        };
        let ledger = Ledger::new(limits);
        let account = ledger.open_account();
        let mut body = collection.watch_table(&account);
        collection.add("small", 11);
        let small = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(ledger.leased(), 0);
        collection.add(&name, 12);
        let frame = body.frame().await.expect("a frame").expect("no error");
        let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
        assert_eq!(text.contains(&name), fits);
        assert_eq!(text.contains("\"code\":410"), !fits, "{connection_memory}");
        assert_eq!(ledger.leased() > LENGTH as u64, fits);
        drop((small, frame, body, account));
        assert_eq!(ledger.leased(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_collection_learns_that_an_object_cannot_be_printed() {
    let collection = TestCollection::of_tables();
    let ledger = Ledger::new(Limits::default());
    let mut body = collection.watch_table(&ledger.open_account());
    let key = ObjectKey::new(None, "broken");
    let text = r#""metadata":{"name":"\x","resourceVersion":"11"}}"#;
    let broken = Object::new(
        key,
        ResourceVersion(11),
        &ObjectValues::default(),
        text.into(),
    );
    let added = collection
        .writer
        .lock()
        .apply(EventType::Added, broken, None);
    added.expect("a version above the last");
    let frame = body.frame().await.expect("a frame").expect("no error");
    let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
    assert!(text.contains("\"code\":500"), "{text}");
    assert!(collection.is_unprintable.load(Ordering::Relaxed));
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_not_behind_by_events_that_its_selection_does_not_have() {
    let collection = TestCollection::new();
    collection.add("first", 11);
    let selection = Arc::new(Selection {
        namespace: Some("empty".to_owned()),
        ..Selection::default()
    });
    let stream = collection.reader.watch(AFTER_10, selection);
    let stream = stream.expect("the log has the events");
    let resource = Arc::new(Resource {
        gvr: GroupVersionResource::new("", "v1", "things"),
        kind: String::new(),
        singular: String::new(),
        short_names: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
    });
    let client = Arc::new(Client::new(([127, 0, 0, 1], 1).into(), "http2", true));
    let listed = client.list_watch(&resource, Some(&stream));
    let meter = Arc::clone(listed.meter());
    let behind = || meter.watch_progress()?.behind().map(|behind| behind.events);
    assert_eq!(behind(), Some(1));
    let source = WatchSource::Stream(stream);
    let mut watch = collection.watch_source(source, WatchTerms::default(), true);
    watch.body = watch.body.listed(Some(listed));
    assert!(watch.body.frame().now_or_never().is_none());
    collection.add("second", 12);
    assert_eq!(behind(), Some(0));
}
