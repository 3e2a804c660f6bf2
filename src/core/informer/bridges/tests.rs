//! Tests of when a bridge opens upstream watches and when it gives up, on paused time.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{BridgeLimits, Bridges, MAX_OPEN};
use crate::api::{
    Bookmark, EventType, ListPage, Object, ObjectKey, ObjectValues, ResourceVersion, Selection,
    Status, WatchEvent,
};
use crate::cache::{BridgeItem, BridgedWatch, EvictedBytes, Reader, Writer};
use crate::concurrency::AskerId;
use crate::shutdown::Shutdown;
use crate::upstream::{Error, ListCall, ListerWatcher, ResumePoint, Scope, WatchCall};
use crate::{cache, shutdown};

/// The answer to one WATCH.
enum Answer {
    /// These frames, after which the watch stays open, or ends if `ends` is true.
    Frames { frames: Vec<WatchEvent>, ends: bool },
    /// An error instead of a watch.
    Failure(Error),
}

/// A scripted upstream. It records each WATCH; without a scripted answer, a watch is silent.
#[derive(Clone, Default)]
struct Upstream {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
    selector: String,
}

impl ListerWatcher for Upstream {
    type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent, Error>> + Send>>;

    async fn list(&self, _: ListCall) -> Result<ListPage, Error> {
        panic!("a bridge never lists")
    }

    async fn barrier(&self) -> Result<ResourceVersion, Error> {
        self.requests.lock().push("barrier".to_owned());
        Ok(ResourceVersion(30))
    }

    async fn watch(&self, call: WatchCall) -> Result<Self::Events, Error> {
        let ResumePoint::After(version) = call.start else {
            panic!("a bridge requests no initial events")
        };
        let request = format!("{version} for {:?} {}", call.timeout, self.selector);
        self.requests.lock().push(request.trim_end().to_owned());
        match self.answers.lock().pop_front() {
            Some(Answer::Failure(error)) => Err(error),
            Some(Answer::Frames { frames, ends }) => {
                let frames = stream::iter(frames.into_iter().map(Ok));
                Ok(if ends {
                    frames.boxed()
                } else {
                    frames.chain(stream::pending()).boxed()
                })
            }
            None => Ok(stream::pending().boxed()),
        }
    }
}

/// How many bytes the bridges may buffer.
const BUFFER: usize = 1 << 20;

/// Bridges to a cache whose first list is at version 20.
struct Bench {
    upstream: Upstream,
    bridges: Bridges<Upstream>,
    limits: Arc<BridgeLimits>,
    reader: Reader,
    _writer: Writer,
}

impl Bench {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let (mut writer, reader) = cache::cache(cache::Config::default());
        let list = writer.relist();
        writer.replace(list, ResourceVersion(20));
        let upstream = Upstream::default();
        upstream.answers.lock().extend(answers);
        let limits = Arc::new(BridgeLimits::new(BUFFER, EvictedBytes::default()));
        let source = upstream.clone();
        let scoped = move |scope: &Scope| Upstream {
            selector: scope.label_selector.clone(),
            ..source.clone()
        };
        let shutdown = Shutdown::new(shutdown::Config::default());
        Self {
            bridges: Bridges::new(scoped, Arc::clone(&limits), shutdown),
            upstream,
            limits,
            reader,
            _writer: writer,
        }
    }

    fn watch(&self, version: u64) -> BridgedWatch {
        self.watch_selected(version, "")
    }

    fn watch_selected(&self, version: u64, selector: &str) -> BridgedWatch {
        self.watch_of("user", version, selector)
    }

    fn watch_of(&self, user: &str, version: u64, selector: &str) -> BridgedWatch {
        let selection = Arc::<Selection>::default();
        let gap = self.reader.gap(ResourceVersion(version), &selection);
        let scope = Scope {
            label_selector: selector.to_owned(),
            ..Scope::default()
        };
        let gap = gap.expect("no limit").expect("a gap");
        self.bridges.watch(gap, &scope, AskerId::of(&user))
    }

    fn requests(&self) -> Vec<String> {
        self.upstream.requests.lock().clone()
    }
}

fn object(version: u64) -> Object {
    let key = ObjectKey::new(Some("n"), "x");
    let values = ObjectValues::default();
    Object::new(key, ResourceVersion(version), &values, Bytes::new())
}

fn change(version: u64) -> WatchEvent {
    WatchEvent::Change {
        event_type: EventType::Modified,
        object: object(version),
        frame: Bytes::from(format!("{version}")),
    }
}

fn bookmark(version: u64) -> WatchEvent {
    WatchEvent::Bookmark(Bookmark {
        resource_version: ResourceVersion(version),
        initial_events_end: false,
        frame: Bytes::new(),
    })
}

fn open(frames: Vec<WatchEvent>) -> Answer {
    Answer::Frames {
        frames,
        ends: false,
    }
}

fn ending(frames: Vec<WatchEvent>) -> Answer {
    Answer::Frames { frames, ends: true }
}

fn expired(message: &str) -> Status {
    Status::failure(410, "Expired", message)
}

fn failure(status: Status) -> Answer {
    Answer::Failure(Error::Answer {
        status: Box::new(status),
        retry_after: None,
    })
}

/// The items of `watch`, separated by spaces: the versions of its events, and how it ended.
async fn outcome(mut watch: BridgedWatch) -> String {
    let mut texts = Vec::new();
    loop {
        let last = match watch.next().await {
            BridgeItem::Change(event) => {
                texts.push(event.resource_version.to_string());
                continue;
            }
            BridgeItem::Joined { bookmark, .. } => match bookmark {
                Some(version) => format!("joined at {version}"),
                None => "joined".to_owned(),
            },
            BridgeItem::Expired(status) => status.message,
            BridgeItem::Closed => "closed".to_owned(),
        };
        texts.push(last);
        return texts.join(" ");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_selection_share_one_watch_at_the_oldest_version() {
    let bench = Bench::new([open(vec![change(8), change(12), bookmark(20)])]);
    let watches = [9, 7, 13, 7].map(|version| outcome(bench.watch(version)));
    let started = Instant::now();
    let outcomes = futures_util::future::join_all(watches).await;
    let ends = [
        "12 joined at 20",
        "8 12 joined at 20",
        "joined at 20",
        "8 12 joined at 20",
    ];
    assert_eq!(outcomes, ends);
    assert_eq!(started.elapsed(), super::GATHER_TIME);
    // A client that comes later needs no watch either, as long as the events are kept.
    assert_eq!(outcome(bench.watch(8)).await, "12 joined at 20");
    assert_eq!(bench.requests(), ["7 for 3s"]);
    // An older client, another selection, and a client after the time do.
    bench
        .upstream
        .answers
        .lock()
        .extend([5, 7, 7].map(|_| open(vec![bookmark(20)])));
    assert_eq!(outcome(bench.watch(6)).await, "joined at 20");
    assert_eq!(
        outcome(bench.watch_selected(7, "app=web")).await,
        "joined at 20"
    );
    tokio::time::sleep(super::KEEP_TIME + Duration::from_secs(1)).await;
    assert!(bench.bridges.running.lock().is_empty());
    assert_eq!(outcome(bench.watch(7)).await, "joined at 20");
    assert_eq!(
        bench.requests()[1..],
        ["6 for 3s", "7 for 3s app=web", "7 for 3s"]
    );
    assert_eq!(bench.limits.totals.joined(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_too_early_is_continued_where_it_ended() {
    let overloaded = Status::failure(429, "TooManyRequests", "wait");
    let bench = Bench::new([
        ending(vec![change(8)]),
        failure(overloaded),
        ending(vec![WatchEvent::Error(Status::failure(
            500,
            "InternalError",
            "",
        ))]),
        ending(vec![bookmark(15)]),
        open(vec![change(17)]),
        open(vec![change(21)]),
    ]);
    assert_eq!(outcome(bench.watch(7)).await, "8 17 21 joined");
    let starts = bench.requests().join(", ").replace(" for 3s", "");
    // Between two watches, a barrier makes the API server send bookmarks.
    let expected = ["7", "8", "8", "8", "15", "17"].join(", barrier, ");
    assert_eq!(starts, expected);
}

#[tokio::test(start_paused = true)]
async fn the_upstreams_410_reaches_only_the_clients_that_it_concerns() {
    let bench = Bench::new([
        failure(expired("two")),
        ending(vec![WatchEvent::Error(expired("three"))]),
        open(vec![change(8), bookmark(20)]),
    ]);
    let watches = [2, 3, 4, 5].map(|version| outcome(bench.watch(version)));
    let outcomes = futures_util::future::join_all(watches).await;
    // Each further 410 gives up twice as many versions, to find a servable one soon. Clients that
    // have not read the first 410 get the second one.
    assert_eq!(outcomes, ["three", "three", "three", "8 joined at 20"]);
    let starts = bench.requests().join(", ").replace(" for 3s", "");
    assert_eq!(starts, "2, 3, 5");
}

#[tokio::test(start_paused = true)]
async fn a_bridge_gives_up_after_some_seconds() {
    let bench = Bench::new([]);
    let started = Instant::now();
    let message = "too old resource version: 7 (20)";
    assert_eq!(outcome(bench.watch(7)).await, message);
    assert_eq!(started.elapsed(), super::GATHER_TIME + super::MAX_OPEN_TIME);
    // Silent watches are replaced after their timeout.
    assert_eq!(bench.requests().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_joins_a_bridge_at_its_end_gets_its_events() {
    let bench = Bench::new([open(vec![change(8), change(12), bookmark(20)])]);
    assert_eq!(outcome(bench.watch(7)).await, "8 12 joined at 20");
    tokio::time::sleep(super::KEEP_TIME - super::KEEP_CHECK / 2).await;
    let late = bench.watch(8);
    // The bridge accepts no more watches, but keeps its events for the one that has joined.
    tokio::time::sleep(super::KEEP_CHECK).await;
    assert!(bench.bridges.running.lock().is_empty());
    assert_eq!(outcome(late).await, "12 joined at 20");
    assert_eq!(bench.requests().len(), 1);
    // Without a reader nothing is kept.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.limits.totals.buffered_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_that_no_watch_reads_are_dropped_when_others_need_their_memory() {
    let large = WatchEvent::Change {
        event_type: EventType::Modified,
        object: object(9),
        frame: Bytes::from(vec![b' '; BUFFER / 2]),
    };
    let bench = Bench::new([
        open(vec![change(8), bookmark(20)]),
        open(vec![large, bookmark(20)]),
    ]);
    let kept = |selector: &str| {
        let running = bench.bridges.running.lock();
        running.keys().any(|scope| scope.label_selector == selector)
    };
    assert_eq!(outcome(bench.watch(7)).await, "8 joined at 20");
    tokio::time::sleep(super::KEEP_TIME / 2).await;
    assert!(kept(""));
    let reader = bench.watch_selected(7, "app=web");
    tokio::time::sleep(super::GATHER_TIME + super::KEEP_CHECK).await;
    assert!(!kept(""));
    // The events that a watch still needs are kept.
    assert!(kept("app=web"));
    assert_eq!(outcome(reader).await, "9 joined at 20");
    tokio::time::sleep(super::KEEP_CHECK).await;
    assert_eq!(bench.limits.totals.buffered_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn bridges_are_limited_and_a_client_waits_for_a_place_only_some_seconds() {
    let bench = Bench::new([]);
    let silent = |number: usize| {
        let user = format!("user-{number}");
        bench.watch_of(&user, 7, &format!("app={number}"))
    };
    let mut holders: Vec<_> = (0..MAX_OPEN).map(silent).collect();
    // All places are taken first, because bridges wait for a place in the order of their start.
    let started = Instant::now();
    let waiting = outcome(silent(MAX_OPEN));
    assert_eq!(waiting.await, "too old resource version: 7 (20)");
    assert_eq!(started.elapsed(), super::GATHER_TIME + super::PLACE_WAIT);
    assert!(
        bench
            .requests()
            .iter()
            .all(|request| !request.ends_with(&format!("={MAX_OPEN}")))
    );
    // A client that leaves frees the place of its bridge.
    let last = silent(MAX_OPEN + 1);
    bench
        .upstream
        .answers
        .lock()
        .push_back(open(vec![bookmark(20)]));
    holders.truncate(1);
    assert_eq!(outcome(last).await, "joined at 20");
}

#[tokio::test(start_paused = true)]
async fn a_user_with_many_bridges_leaves_places_to_the_others() {
    let bench = Bench::new([]);
    let _many: Vec<_> = (0..10 * MAX_OPEN)
        .map(|number| bench.watch_of("many", 7, &format!("app={number}")))
        .collect();
    // The last one waits for a place of the user with many, until another one joins.
    let waiting = format!("app={}", 10 * MAX_OPEN - 1);
    tokio::time::sleep(2 * super::GATHER_TIME).await;
    assert_eq!(bench.requests().len(), MAX_OPEN / 2);
    for selector in ["of=other", &waiting] {
        let answers = &bench.upstream.answers;
        answers.lock().push_back(open(vec![bookmark(20)]));
        let started = Instant::now();
        let other = bench.watch_of("other", 7, selector);
        assert_eq!(outcome(other).await, "joined at 20", "{selector}");
        assert!(started.elapsed() <= super::GATHER_TIME, "{selector}");
    }
}
