//! Tests of the aggregation, and of a recorder with a sink in memory, in paused time.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kubefan_core::shutdown;
use kubefan_core::shutdown::{Outcome, Shutdown};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::service_fn;

use super::recorder::{KubeSink, Sink, SinkError};
use super::series::{Aggregator, NewEvent, Recorded, Regarding, SeriesOf, Write};
use super::{Note, Recorder, Severity};

const MINUTE: Duration = Duration::from_secs(60);

fn note(reason: &str) -> Note {
    Note {
        severity: Severity::Normal,
        reason: reason.to_owned(),
        action: "Reconcile".to_owned(),
        text: format!("{reason} happened"),
    }
}

fn regarding(name: &str) -> Regarding {
    Regarding {
        kind: "ConfigMap".to_owned(),
        namespace: Some("n".to_owned()),
        name: name.to_owned(),
        ..Regarding::default()
    }
}

/// An aggregator, and its clock.
struct Test {
    aggregator: Aggregator,
    origin: Instant,
    now: Instant,
}

impl Test {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            aggregator: Aggregator::default(),
            origin: now,
            now,
        }
    }

    fn time(&self) -> Timestamp {
        let since = i64::try_from((self.now - self.origin).as_secs()).expect("a short test");
        Timestamp::from_second(since).expect("a time")
    }

    fn record(&mut self, name: &str, reason: &str) -> Recorded {
        let (now, time) = (self.now, self.time());
        let aggregator = &mut self.aggregator;
        aggregator.record(regarding(name), note(reason), now, time)
    }

    /// Returns the counts of the series that are to be written now.
    fn refresh(&mut self) -> Vec<i32> {
        let series = self.aggregator.refresh(self.now);
        series.iter().map(|series| series.count).collect()
    }
}

fn is_new(recorded: &Recorded) -> bool {
    matches!(recorded, Recorded::Write(Write::Create(_)))
}

#[test]
fn equal_events_are_one_event_with_a_series() {
    let mut test = Test::new();
    let Recorded::Write(Write::Create(first)) = test.record("a", "Made") else {
        panic!("the first is created");
    };
    assert_eq!(
        (first.namespace.as_str(), &first.note),
        ("n", &note("Made"))
    );
    test.now += MINUTE;
    let series = SeriesOf {
        event: first,
        count: 2,
        last: test.time(),
    };
    let second = test.record("a", "Made");
    assert_eq!(second, Recorded::Write(Write::Series(series.clone())));
    assert!(test.refresh().is_empty());
    // From the third event on, only the count grows, until half an hour has passed.
    for _ in 0..29 {
        test.now += MINUTE;
        assert_eq!(test.record("a", "Made"), Recorded::Counted);
        assert!(test.refresh().is_empty());
    }
    test.now += MINUTE;
    assert_eq!(test.record("a", "Made"), Recorded::Counted);
    assert_eq!(test.refresh(), [32]);
    assert!(test.refresh().is_empty());
    // The last count is written when the series has ended. Then there is a new event.
    assert_eq!(test.record("a", "Made"), Recorded::Counted);
    test.now += 6 * MINUTE;
    assert_eq!(test.refresh(), [33]);
    let next = test.record("a", "Made");
    assert!(is_new(&next));
    assert_ne!(next, Recorded::Write(Write::Series(series)));
}

#[test]
fn the_end_of_a_series_is_written_if_an_equal_event_comes_before_that() {
    let mut test = Test::new();
    for _ in 0..3 {
        test.record("a", "Synced");
    }
    test.now += 7 * MINUTE;
    assert!(is_new(&test.record("a", "Synced")));
    assert_eq!(test.aggregator.unwritten(), 1);
    assert_eq!(test.refresh(), [3]);
    assert_eq!((test.aggregator.unwritten(), test.refresh()), (0, vec![]));
}

#[test]
fn other_events_are_other_events() {
    let mut test = Test::new();
    for (name, reason) in [("a", "Made"), ("a", "Changed"), ("b", "Made")] {
        assert!(is_new(&test.record(name, reason)), "{name} {reason}");
    }
}

#[test]
fn an_object_has_a_limit_of_new_events_and_others_their_own() {
    let mut test = Test::new();
    for number in 0..25 {
        assert!(is_new(&test.record("a", &format!("Reason{number}"))));
    }
    assert_eq!(test.record("a", "One"), Recorded::Dropped);
    assert!(is_new(&test.record("b", "One")));
    // Equal events are only counted, and use up no token.
    assert!(matches!(test.record("a", "Reason0"), Recorded::Write(_)));
    test.now += 5 * MINUTE;
    assert!(is_new(&test.record("a", "One")));
    assert_eq!(test.record("a", "Two"), Recorded::Dropped);
}

#[test]
fn the_name_of_an_event_is_unique_and_valid() {
    let mut test = Test::new();
    let long = "x".repeat(253);
    let mut names = Vec::new();
    for reason in ["One", "Two"] {
        let Recorded::Write(Write::Create(event)) = test.record(&long, reason) else {
            panic!("it is created");
        };
        assert!(event.name.len() <= 253);
        names.push(event.name.clone());
    }
    assert_ne!(names[0], names[1]);
}

/// A sink that records what is written.
#[derive(Clone, Default)]
struct Memory(Arc<State>);

#[derive(Default)]
struct State {
    written: Mutex<Vec<String>>,
    /// The answers to the next writes: true for a failure, false for a refusal.
    failures: Mutex<Vec<bool>>,
    tries: Mutex<usize>,
    changed: Notify,
    hangs: Mutex<bool>,
}

impl Memory {
    async fn write(&self, text: String) -> Result<(), SinkError> {
        *self.0.tries.lock() += 1;
        let hangs = *self.0.hangs.lock();
        if hangs {
            return std::future::pending().await;
        }
        let failure = self.0.failures.lock().pop();
        match failure {
            Some(true) => Err(SinkError::Failed("no connection".into())),
            Some(false) => Err(SinkError::Refused("forbidden".into())),
            None => {
                self.0.written.lock().push(text);
                self.0.changed.notify_one();
                Ok(())
            }
        }
    }

    async fn until(&self, count: usize) -> Vec<String> {
        let written = async {
            while self.0.written.lock().len() < count {
                self.0.changed.notified().await;
            }
        };
        let written = tokio::time::timeout(600 * MINUTE, written).await;
        written.expect("it is written");
        self.0.written.lock().clone()
    }
}

impl Sink for Memory {
    async fn create(&self, event: &NewEvent) -> Result<(), SinkError> {
        self.write(event.note.text.clone()).await
    }

    async fn update(&self, series: &SeriesOf) -> Result<(), SinkError> {
        self.write(format!("{} times", series.count)).await
    }
}

fn recorder(sink: &Memory) -> Recorder {
    recorder_and_shutdown(sink).0
}

fn recorder_and_shutdown(sink: &Memory) -> (Recorder, Shutdown) {
    let shutdown = Shutdown::new(shutdown::Config::default());
    (Recorder::with_sink(sink.clone(), &shutdown), shutdown)
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test(start_paused = true)]
async fn a_recorder_writes_events_and_the_end_of_a_series() {
    let sink = Memory::default();
    let recorder = recorder(&sink);
    for _ in 0..5 {
        recorder.record(&map("a"), note("Made"));
    }
    recorder.record(&map("b"), note("Made"));
    let written = sink.until(4).await;
    let expected = ["Made happened", "2 times", "Made happened", "5 times"];
    assert_eq!(written, expected);
    assert_eq!(recorder.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_tried_again_and_a_refused_one_is_not() {
    let sink = Memory::default();
    let recorder = recorder(&sink);
    sink.0.failures.lock().extend([true, true]);
    recorder.record(&map("a"), note("Made"));
    sink.until(1).await;
    assert_eq!((*sink.0.tries.lock(), recorder.dropped()), (3, 0));
    sink.0.failures.lock().extend([true, true, true]);
    recorder.record(&map("b"), note("Made"));
    recorder.record(&map("c"), note("Made"));
    sink.until(2).await;
    assert_eq!((*sink.0.tries.lock(), recorder.dropped()), (7, 1));
    sink.0.failures.lock().extend([false]);
    recorder.record(&map("d"), note("Made"));
    recorder.record(&map("e"), note("Made"));
    sink.until(3).await;
    assert_eq!((*sink.0.tries.lock(), recorder.dropped()), (9, 2));
}

#[tokio::test(start_paused = true)]
async fn recording_never_waits_and_counts_what_is_dropped() {
    let sink = Memory::default();
    *sink.0.hangs.lock() = true;
    let recorder = recorder(&sink);
    for number in 0..1_500 {
        recorder.record(&map(&format!("map-{number}")), note("Made"));
    }
    assert_eq!(recorder.dropped(), 500);
    // A write that hangs is aborted, so that the other writes follow.
    tokio::time::sleep(MINUTE).await;
    *sink.0.hangs.lock() = false;
    sink.until(900).await;
    assert!((501..520).contains(&recorder.dropped()));
}

#[tokio::test(start_paused = true)]
async fn long_texts_are_cut_off() {
    let sink = Memory::default();
    let long = Note {
        text: "ä".repeat(1_000),
        ..note("Made")
    };
    recorder(&sink).record(&map("a"), long);
    let written = sink.until(1).await;
    assert_eq!(written, ["ä".repeat(512)]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_writes_what_waits_and_the_series() {
    let sink = Memory::default();
    let (recorder, shutdown) = recorder_and_shutdown(&sink);
    for _ in 0..5 {
        recorder.record(&map("a"), note("Made"));
    }
    recorder.record(&map("b"), note("Made"));
    let began = Instant::now();
    assert_eq!(shutdown.drain().await, Outcome::Drained);
    assert!(began.elapsed() < MINUTE / 60);
    let written = sink.0.written.lock().clone();
    let expected = ["Made happened", "2 times", "Made happened", "5 times"];
    assert_eq!(
        (written, recorder.dropped()),
        (expected.map(String::from).into(), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_series_that_a_task_goes_on_with_in_a_drain_is_written() {
    let sink = Memory::default();
    let (recorder, shutdown) = recorder_and_shutdown(&sink);
    recorder.record(&map("a"), note("Made"));
    sink.until(1).await;
    let last = recorder.clone();
    shutdown.spawn(async move {
        for _ in 0..4 {
            tokio::time::sleep(MINUTE / 20).await;
            last.record(&map("a"), note("Made"));
        }
    });
    assert_eq!(shutdown.drain().await, Outcome::Drained);
    let written = sink.0.written.lock().clone();
    assert_eq!(written.last().map(String::as_str), Some("5 times"));
    assert_eq!(recorder.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_drain_cannot_write_is_counted() {
    let sink = Memory::default();
    let (recorder, shutdown) = recorder_and_shutdown(&sink);
    for _ in 0..3 {
        recorder.record(&map("series"), note("Made"));
    }
    sink.until(2).await;
    *sink.0.hangs.lock() = true;
    for number in 0..10 {
        recorder.record(&map(&format!("map-{number}")), note("Made"));
    }
    assert!(matches!(shutdown.drain().await, Outcome::Unfinished { .. }));
    // Ten events, and the series with a third event that was only counted.
    assert_eq!(recorder.dropped(), 11);
    recorder.record(&map("late"), note("Made"));
    assert_eq!(recorder.dropped(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_series_whose_event_is_gone_creates_it_again() {
    let requests: Arc<Mutex<Vec<(Method, Value)>>> = Arc::default();
    let received = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Body>| {
        let received = Arc::clone(&received);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let object: Value = serde_json::from_slice(&body)?;
            let is_missing = head.method == Method::PATCH;
            received.lock().push((head.method, object.clone()));
            let (code, answer) = if is_missing {
                let status = kubefan_core::api::Status::failure(404, "NotFound", "not found");
                (StatusCode::NOT_FOUND, serde_json::to_vec(&status)?)
            } else {
                (StatusCode::CREATED, body.to_vec())
            };
            let mut response = Response::new(Body::from(answer));
            *response.status_mut() = code;
            Ok::<_, tower::BoxError>(response)
        }
    });
    let sink = KubeSink {
        client: kube::Client::new(service, "default"),
        controller: "test".to_owned(),
        instance: "test-1".to_owned(),
    };
    let shutdown = Shutdown::new(shutdown::Config::default());
    let recorder = Recorder::with_sink(sink, &shutdown);
    for _ in 0..3 {
        recorder.record(&map("a"), note("Made"));
    }
    assert_eq!(shutdown.drain().await, Outcome::Drained);
    assert_eq!(recorder.dropped(), 0);
    let requests = requests.lock();
    let methods: Vec<_> = requests.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST", "PATCH", "POST"]);
    let (created, again) = (&requests[0].1, &requests[4].1);
    assert_eq!(again["series"]["count"], 3);
    assert!(created.get("series").is_none());
    for field in ["metadata", "regarding", "reason", "note", "eventTime"] {
        assert_eq!(created[field], again[field], "{field}");
    }
}
