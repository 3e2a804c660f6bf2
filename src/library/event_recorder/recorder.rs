//! Recorder: the handle, and the task that writes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use kubefan_core::shutdown::{Hold, Shutdown};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::series::{Aggregator, NewEvent, Recorded, Regarding, SeriesOf, Write};
use super::{Note, Severity};

/// How many events may wait to be written.
const WAITING: usize = 1_000;
/// How often the recorder looks for series that are to be written.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// How long a write may take.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// How often a write is tried, and the pause before the second try. The pause doubles
/// for each further try.
const TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest reason and action, in bytes.
const MAX_WORD: usize = 128;
/// The longest text, in bytes.
const MAX_TEXT: usize = 1_024;

/// Records events. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Waiting>,
    dropped: Arc<AtomicU64>,
    shutdown: Shutdown,
}

/// An event that waits to be written.
struct Waiting {
    regarding: Regarding,
    note: Note,
    time: Timestamp,
    /// Makes a drain wait until the event is written.
    hold: Hold,
}

/// Where events are written.
pub(super) trait Sink: Send + Sync + 'static {
    /// Creates an event.
    fn create(&self, event: &NewEvent) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Replaces the series of an event, or creates the event with it if there is none.
    fn update(&self, series: &SeriesOf) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// Why an event was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    /// The API server will not accept it later either.
    #[error("refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The API server.
pub(super) struct KubeSink {
    pub(super) client: kube::Client,
    pub(super) controller: String,
    pub(super) instance: String,
}

/// The task that writes.
struct Writer<S> {
    sink: S,
    receiver: mpsc::Receiver<Waiting>,
    aggregator: Aggregator,
    shutdown: Shutdown,
    /// Makes a drain wait while a series has a count that was not written.
    unwritten: Option<Hold>,
    /// How many writes have begun, or wait for one that has begun.
    writing: usize,
    dropped: Arc<AtomicU64>,
}

// === impl Recorder ===

impl Recorder {
    /// Starts a recorder for the controller `controller`, a name such as `example.com/maps`. Its
    /// task belongs to `shutdown`, and a drain waits until all events are written. The events have
    /// the name of this host in their reporting instance.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(client: kube::Client, controller: impl Into<String>, shutdown: &Shutdown) -> Self {
        let controller = shortened(controller.into(), MAX_WORD);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = match host.trim() {
            "" => "unknown",
            host => host,
        };
        let instance = shortened(format!("{controller}-{host}"), MAX_WORD);
        let sink = KubeSink {
            client,
            controller,
            instance,
        };
        Self::with_sink(sink, shutdown)
    }

    pub(super) fn with_sink(sink: impl Sink, shutdown: &Shutdown) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let shutdown = shutdown.clone();
        let writer = Writer {
            sink,
            receiver,
            aggregator: Aggregator::default(),
            shutdown: shutdown.clone(),
            unwritten: None,
            writing: 0,
            dropped: Arc::clone(&dropped),
        };
        shutdown.spawn_background(writer.run());
        Self {
            sender,
            dropped,
            shutdown,
        }
    }

    /// Records that `note` happened to `object`. The API server must have the object, so that it
    /// has a name and a uid. Returns at once.
    pub fn record<K: Resource<DynamicType = ()>>(&self, object: &K, note: Note) {
        let metadata = object.meta();
        let regarding = Regarding {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        };
        let note = Note {
            severity: note.severity,
            reason: shortened(note.reason, MAX_WORD),
            action: shortened(note.action, MAX_WORD),
            text: shortened(note.text, MAX_TEXT),
        };
        let waiting = Waiting {
            regarding,
            note,
            time: Timestamp::now(),
            hold: self.shutdown.hold(),
        };
        if self.sender.try_send(waiting).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the events that were dropped because there were too many, because they could not be
    /// written, or because the drain ended before they were written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

debug_fields!([] Recorder, |it| dropped: it.dropped());

/// Shortens `text` to at most `max` bytes.
fn shortened(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

// === impl Writer ===

impl<S: Sink> Writer<S> {
    /// Writes events until all recorders are dropped. In a drain, it also writes the series that
    /// would otherwise wait.
    async fn run(mut self) {
        let mut ticks = interval(REFRESH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut draining = pin!(self.shutdown.draining());
        let mut is_draining = false;
        loop {
            if is_draining && self.receiver.is_empty() {
                self.flush().await;
            }
            let waiting = tokio::select! {
                biased;
                _ = ticks.tick() => {
                    let series = self.aggregator.refresh(Instant::now());
                    self.write_series(series).await;
                    continue;
                }
                () = &mut draining, if !is_draining => {
                    is_draining = true;
                    continue;
                }
                waiting = self.receiver.recv() => waiting,
            };
            match waiting {
                Some(waiting) => self.record(waiting).await,
                None => return self.flush().await,
            }
        }
    }

    async fn record(&mut self, waiting: Waiting) {
        let now = Instant::now();
        let (regarding, note) = (waiting.regarding, waiting.note);
        match self.aggregator.record(regarding, note, now, waiting.time) {
            Recorded::Counted => self.unwritten = Some(waiting.hold),
            Recorded::Write(event) => {
                self.writing = 1;
                self.write(event).await;
            }
            Recorded::Dropped => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn flush(&mut self) {
        if let Some(_hold) = self.unwritten.take() {
            let series = self.aggregator.take_unwritten(Instant::now());
            self.write_series(series).await;
        }
    }

    async fn write_series(&mut self, series: Vec<SeriesOf>) {
        self.writing = series.len();
        for series in series {
            self.write(Write::Series(series)).await;
        }
    }

    /// Writes an event that `self.writing` counts.
    async fn write(&mut self, event: Write) {
        let is_written = write(&self.sink, event).await;
        self.writing -= 1;
        if !is_written {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S> Drop for Writer<S> {
    fn drop(&mut self) {
        let lost = self.writing + self.receiver.len() + self.aggregator.unwritten();
        if lost > 0 {
            self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
            tracing::warn!(lost, "events were not written before the end");
        }
    }
}

/// Writes an event, with retries. Returns false if it could not be written.
async fn write(sink: &impl Sink, event: Write) -> bool {
    for number in 0..TRIES {
        if number > 0 {
            sleep(RETRY_PAUSE * (1 << (number - 1))).await;
        }
        let written = async {
            match &event {
                Write::Create(event) => sink.create(event).await,
                Write::Series(series) => sink.update(series).await,
            }
        };
        match timeout(WRITE_LIMIT, written).await {
            Ok(Ok(())) => return true,
            Ok(Err(error @ SinkError::Refused(_))) => {
                let source = &error as &(dyn std::error::Error + 'static);
                tracing::warn!(error = source, "an event was not written");
                return false;
            }
            Ok(Err(error @ SinkError::Failed(_))) => {
                let source = &error as &(dyn std::error::Error + 'static);
                tracing::debug!(error = source, number, "an event is written again");
            }
            Err(_) => tracing::debug!(number, "an event was not written in time"),
        }
    }
    tracing::warn!("an event was not written");
    false
}

// === impl KubeSink ===

impl Sink for KubeSink {
    async fn create(&self, event: &NewEvent) -> Result<(), SinkError> {
        match self.post(event, None).await {
            // An earlier attempt was successful, but its answer was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created.map_err(failure),
        }
    }

    async fn update(&self, series: &SeriesOf) -> Result<(), SinkError> {
        let SeriesOf { event, count, last } = series;
        let api = Api::<Event>::namespaced(self.client.clone(), &event.namespace);
        let observed = EventSeries {
            count: *count,
            last_observed_time: MicroTime(*last),
        };
        let patch = Patch::Merge(json!({ "series": observed }));
        let params = PatchParams::default();
        match api.patch(&event.name, &params, &patch).await {
            // The Event has expired, or was never created.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let created = self.post(event, Some(observed)).await;
                created.map_err(|error| match &error {
                    // The Event was created after the patch, but without this series.
                    kube::Error::Api(status) if status.code == 409 => {
                        SinkError::Failed(error.into())
                    }
                    _ => failure(error),
                })
            }
            patched => patched.map(drop).map_err(failure),
        }
    }
}

impl KubeSink {
    async fn post(&self, event: &NewEvent, series: Option<EventSeries>) -> kube::Result<()> {
        let api = Api::<Event>::namespaced(self.client.clone(), &event.namespace);
        let event = Event {
            series,
            ..self.event(event)
        };
        let created = api.create(&PostParams::default(), &event).await;
        created.map(drop)
    }

    fn event(&self, event: &NewEvent) -> Event {
        let regarding = event.regarding.clone();
        let severity = match event.note.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(event.name.clone()),
                namespace: Some(event.namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(event.time)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(event.note.action.clone()),
            reason: Some(event.note.reason.clone()),
            note: Some(event.note.text.clone()),
            type_: Some(severity.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(regarding.api_version),
                kind: Some(regarding.kind),
                namespace: regarding.namespace,
                name: Some(regarding.name),
                uid: regarding.uid,
                resource_version: regarding.resource_version,
                ..ObjectReference::default()
            }),
            ..Event::default()
        }
    }
}

/// Classifies an error. An answer that is neither a server error nor 429 will not change.
fn failure(error: kube::Error) -> SinkError {
    match &error {
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => {
            SinkError::Refused(error.into())
        }
        _ => SinkError::Failed(error.into()),
    }
}
