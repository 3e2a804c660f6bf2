//! A scripted upstream that records requests, and the functions that run a reflector against it.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::{
    Bookmark, EventType, ListPage, Object, ObjectKey, ObjectValues, ResourceVersion, Selection,
    Status, WatchEvent,
};
use crate::cache;
use crate::cache::{Reader, WatchFrom, WatchItem};
use crate::informer::{
    Cause, Reflector, ReflectorConfig, ReflectorEnd, ReflectorMetrics, RelistHandle, Signals,
    relist_channel,
};
use crate::upstream::{Error, ListCall, ListerWatcher, ResumePoint, WatchCall};

/// The scripted answer to the next request. A request of another kind makes the test panic.
pub(super) enum Answer {
    List(Result<ListPage, Error>),
    Watch(Result<Vec<Item>, Error>),
    Revision(Result<u64, Error>),
    /// No answer to the next request, whatever its kind.
    Never,
}

/// A step of a scripted watch, which ends cleanly after its last item.
pub(super) enum Item {
    Frame(Box<Result<WatchEvent, Error>>),
    Wait(Duration),
    /// A relist is requested through the reflector's `RelistHandle`.
    RelistRequest,
    Hang,
}

pub(super) type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent, Error>> + Send>>;

#[derive(Clone)]
pub(super) struct Script {
    state: Arc<ScriptState>,
}

struct ScriptState {
    started: Instant,
    answers: Mutex<VecDeque<Answer>>,
    recorded: Mutex<Vec<RecordedRequest>>,
    relist: RelistHandle,
    /// Notified when the last answer was used and its watch hangs, or when one more request
    /// arrives.
    played: Notify,
}

/// A received request with its time after the start, and for a watch the requested timeout.
#[derive(Clone, Debug)]
pub(super) struct RecordedRequest {
    pub(super) at: Duration,
    pub(super) request: String,
    pub(super) timeout: Duration,
}

/// The observations after the script was played, or the reflector ended.
pub(super) struct Outcome {
    pub(super) recorded: Vec<RecordedRequest>,
    pub(super) ended: Option<ReflectorEnd>,
    pub(super) metrics: Arc<ReflectorMetrics>,
    pub(super) applied: Option<ResourceVersion>,
    /// All cached objects as `name@rv`; `None` if the cache was not ready.
    pub(super) objects: Option<Vec<String>>,
    pub(super) reader: Reader,
    changes: Changes,
}

type Changes = Box<dyn Fn(u64) -> Option<Vec<String>>>;

// === impl Script ===

impl Script {
    fn record(&self, request: String, timeout: Duration) -> Option<Answer> {
        self.state.recorded.lock().push(RecordedRequest {
            at: self.state.started.elapsed(),
            request,
            timeout,
        });
        let answer = self.state.answers.lock().pop_front();
        if answer.is_none() {
            self.state.played.notify_one();
        }
        answer
    }

    fn play_items(&self, items: Vec<Item>) -> Events {
        let start = (self.clone(), items.into_iter());
        Box::pin(stream::unfold(start, |(script, mut items)| async move {
            loop {
                match items.next()? {
                    Item::Frame(frame) => return Some((*frame, (script, items))),
                    Item::Wait(duration) => tokio::time::sleep(duration).await,
                    Item::RelistRequest => script.state.relist.request(),
                    Item::Hang => {
                        if script.state.answers.lock().is_empty() {
                            script.state.played.notify_one();
                        }
                        pending::<()>().await;
                    }
                }
            }
        }))
    }
}

impl ListerWatcher for Script {
    type Events = Events;

    async fn list(&self, request: ListCall) -> Result<ListPage, Error> {
        let ListCall {
            limit,
            continue_token,
        } = request;
        let token = continue_token.map_or(String::new(), |token| format!(" {token}"));
        match self.record(format!("list {limit}{token}"), Duration::ZERO) {
            Some(Answer::List(result)) => result,
            None | Some(Answer::Never) => pending().await,
            Some(_) => panic!("list {limit}{token} is not in the script"),
        }
    }

    async fn watch(&self, request: WatchCall) -> Result<Events, Error> {
        let text = match request.start {
            ResumePoint::InitialEvents => "watch-list".to_owned(),
            ResumePoint::After(rv) => format!("watch {rv}"),
        };
        match self.record(text.clone(), request.timeout) {
            Some(Answer::Watch(result)) => result.map(|items| self.play_items(items)),
            None | Some(Answer::Never) => pending().await,
            Some(_) => panic!("{text} is not in the script"),
        }
    }

    async fn barrier(&self) -> Result<ResourceVersion, Error> {
        match self.record("revision".to_owned(), Duration::ZERO) {
            Some(Answer::Revision(result)) => result.map(ResourceVersion),
            None | Some(Answer::Never) => pending().await,
            Some(_) => panic!("revision is not in the script"),
        }
    }
}

// === the stage ===

/// Runs a reflector against `answers` until all are used and the last watch hangs, until one more
/// request arrives, or until the reflector ends.
pub(super) async fn play(answers: impl IntoIterator<Item = Answer>) -> Outcome {
    play_with(ReflectorConfig::default(), pending(), answers).await
}

/// Like [`play`], with a configuration and a stop signal.
pub(super) async fn play_with(
    config: ReflectorConfig,
    stop: impl Future<Output = ()> + Send + 'static,
    answers: impl IntoIterator<Item = Answer>,
) -> Outcome {
    play_reflector(config, stop, |reflector| reflector, answers).await
}

/// Like [`play_with`], with a reflector that `customize` returns.
pub(super) async fn play_reflector(
    config: ReflectorConfig,
    stop: impl Future<Output = ()> + Send + 'static,
    customize: impl FnOnce(Reflector<Script>) -> Reflector<Script>,
    answers: impl IntoIterator<Item = Answer>,
) -> Outcome {
    let (writer, reader) = cache::cache(cache_config());
    let (relist, relists) = relist_channel();
    let script = Script {
        state: Arc::new(ScriptState {
            started: Instant::now(),
            answers: Mutex::new(answers.into_iter().collect()),
            recorded: Mutex::default(),
            relist,
            played: Notify::new(),
        }),
    };
    let signals = Signals {
        stop: Box::pin(stop),
        relists,
    };
    let config = ReflectorConfig {
        seed: Some(1),
        ..config
    };
    let reflector = customize(Reflector::new(script.clone(), writer, config, signals));
    let metrics = reflector.metrics();
    // The type checks that the future is `Send`, because the informer set spawns it.
    let mut run: Pin<Box<dyn Future<Output = ReflectorEnd> + Send>> = Box::pin(reflector.run());
    let ended = tokio::select! {
        ended = &mut run => Some(ended),
        () = script.state.played.notified() => None,
    };
    let recorded = script.state.recorded.lock().clone();
    // The events after each version are read while the cache is still open.
    let log: Vec<_> = (0..100).map(|rv| drain(&reader, rv)).collect();
    Outcome {
        recorded,
        ended,
        metrics,
        objects: objects(&reader),
        applied: reader.stats().applied,
        reader,
        changes: Box::new(move |rv| log[rv as usize].clone()),
    }
}

pub(super) fn cache_config() -> cache::Config {
    cache::Config {
        retention_events: 0,
        ..cache::Config::default()
    }
}

pub(super) fn objects(reader: &Reader) -> Option<Vec<String>> {
    let snapshot = reader.snapshot()?;
    let everything = Selection::default();
    let objects = snapshot.list(&everything, None);
    Some(objects.map(|object| name_at(&object)).collect())
}

fn name_at(object: &Object) -> String {
    format!("{}@{}", object.key.name(), object.resource_version)
}

fn drain(reader: &Reader, after: u64) -> Option<Vec<String>> {
    let start = WatchFrom::After(ResourceVersion(after));
    let mut watch = reader.watch(start, Arc::default()).ok()?;
    let mut changes = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(item)) = watch.poll_next(&mut context) {
        match item {
            WatchItem::Change { event, verdict } => {
                changes.push(format!("{} {}", verdict.as_str(), name_at(&event.object)));
            }
            WatchItem::Expired(_) => return None,
            WatchItem::Initial(_) | WatchItem::InitialEnd(_) => {}
        }
    }
    Some(changes)
}

impl Outcome {
    pub(super) fn requests(&self) -> Vec<&str> {
        let requests = self.recorded.iter();
        requests.map(|recorded| recorded.request.as_str()).collect()
    }

    /// Seconds between each request and the one before it.
    pub(super) fn waits(&self) -> Vec<f64> {
        let pairs = self.recorded.windows(2);
        pairs
            .map(|pair| (pair[1].at - pair[0].at).as_secs_f64())
            .collect()
    }

    /// True if the cache's writer was dropped. Detects this by the effects: a new watch ends
    /// without an error, or a cache that is not ready reports that it never becomes ready.
    pub(super) async fn is_closed(&self) -> bool {
        match self.reader.watch(WatchFrom::Tip, Arc::default()) {
            Ok(mut watch) => {
                let mut context = Context::from_waker(Waker::noop());
                matches!(watch.poll_next(&mut context), Poll::Ready(None))
            }
            Err(_) => !self.reader.ready().await,
        }
    }

    /// The events of a watch that starts at version `rv`; `None` if the watch expires.
    pub(super) fn changes_after(&self, rv: u64) -> Option<Vec<String>> {
        (self.changes)(rv)
    }

    pub(super) fn watch_ends(&self, cause: Cause) -> u64 {
        let mut ends = self.metrics.watch_ends();
        ends.find(|(of, _)| *of == cause).map_or(0, |(_, n)| n)
    }
}

// === script items ===

pub(super) fn watch(items: impl IntoIterator<Item = Item>) -> Answer {
    Answer::Watch(Ok(items.into_iter().collect()))
}

/// A watch-list with `a@3` that is complete at version 9, and continues with `items`.
pub(super) fn watch_list(items: impl IntoIterator<Item = Item>) -> Answer {
    watch([added("a", 3), end_bookmark(9)].into_iter().chain(items))
}

pub(super) fn list(rv: u64, items: &[(&str, u64)], token: Option<&str>) -> Answer {
    let items = items.iter().map(|(name, rv)| object(name, *rv)).collect();
    Answer::List(Ok(ListPage {
        resource_version: ResourceVersion(rv),
        continue_token: token.map(str::to_owned),
        items,
    }))
}

pub(super) fn revision(rv: u64) -> Answer {
    Answer::Revision(Ok(rv))
}

pub(super) fn object(name: &str, rv: u64) -> Object {
    object_of_uid(name, rv, &format!("uid-{name}"))
}

pub(super) fn object_of_uid(name: &str, rv: u64, uid: &str) -> Object {
    let values = ObjectValues {
        uid: uid.into(),
        ..ObjectValues::default()
    };
    let key = ObjectKey::new(Some("default"), name);
    Object::new(
        key,
        ResourceVersion(rv),
        &values,
        format!("{name}@{rv}").into(),
    )
}

pub(super) fn change(event_type: EventType, object: Object) -> WatchEvent {
    WatchEvent::Change {
        event_type,
        frame: Bytes::from(format!("{} {}", event_type.as_str(), name_at(&object))),
        object,
    }
}

pub(super) fn added(name: &str, rv: u64) -> Item {
    frame(Ok(change(EventType::Added, object(name, rv))))
}

pub(super) fn modified(name: &str, rv: u64) -> Item {
    frame(Ok(change(EventType::Modified, object(name, rv))))
}

pub(super) fn deleted(name: &str, rv: u64) -> Item {
    frame(Ok(change(EventType::Deleted, object(name, rv))))
}

pub(super) fn bookmark_event(rv: u64, initial_events_end: bool) -> WatchEvent {
    WatchEvent::Bookmark(Bookmark {
        resource_version: ResourceVersion(rv),
        initial_events_end,
        frame: Bytes::from_static(b"BOOKMARK"),
    })
}

pub(super) fn bookmark(rv: u64) -> Item {
    frame(Ok(bookmark_event(rv, false)))
}

pub(super) fn end_bookmark(rv: u64) -> Item {
    frame(Ok(bookmark_event(rv, true)))
}

pub(super) fn error_frame(code: u16) -> Item {
    frame(Ok(WatchEvent::Error(status(code))))
}

pub(super) fn frame(frame: Result<WatchEvent, Error>) -> Item {
    Item::Frame(Box::new(frame))
}

/// The stream breaks off in the middle of a frame.
pub(super) fn cut() -> Item {
    frame(Err(Error::Decode("half a frame".into())))
}

/// The connection was reset.
pub(super) fn reset() -> Item {
    frame(Err(refused()))
}

pub(super) fn wait(seconds: u64) -> Item {
    Item::Wait(Duration::from_secs(seconds))
}

pub(super) fn status(code: u16) -> Status {
    match code {
        410 => Status::failure(410, "Expired", "too old resource version: 1 (2)"),
        504 => Status::failure(
            504,
            "Timeout",
            "Timeout: Too large resource version: 9, current: 2",
        ),
        code => Status::failure(code, "", "scripted"),
    }
}

pub(super) fn answer(code: u16) -> Error {
    Error::Answer {
        status: Box::new(status(code)),
        retry_after: None,
    }
}

pub(super) fn refused() -> Error {
    Error::Transport("connection refused".into())
}
