//! Recorder: the handle, and the task that writes.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::events::v1::EventSeries;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::Resource;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio::time::MissedTickBehavior;
use tokio::time::interval;
use tokio::time::sleep;
use tokio::time::timeout;

use crate::shutdown::Shutdown;

use super::Note;
use super::Severity;
use super::series::Aggregator;
use super::series::NewEvent;
use super::series::Recorded;
use super::series::Regarding;
use super::series::SeriesOf;
use super::series::Write;

/// How many events may wait to be written.
const WAITING: usize = 1_000;
/// How often series are looked at.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// How long a write may take.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// How often a write is tried, and the pause before the second time, which doubles.
const TRIES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest reason and action, in bytes.
const MAX_WORD: usize = 128;
/// The longest text, in bytes.
const MAX_TEXT: usize = 1_024;

/// Records events. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<(Regarding, Note, Timestamp)>,
    dropped: Arc<AtomicU64>,
}

/// Where events are written.
pub(super) trait Sink: Send + Sync + 'static {
    /// Creates an event.
    fn create(&self, event: &NewEvent) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Replaces the series of an event.
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
struct KubeSink {
    client: kube::Client,
    controller: String,
    instance: String,
}

// === impl Recorder ===

impl Recorder {
    /// A recorder for the controller `controller`, a name such as `example.com/maps`. Its task
    /// belongs to `shutdown`. The events show the name of this host as the reporting instance.
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
        Self::with_sink(
            KubeSink {
                client,
                controller,
                instance,
            },
            shutdown,
        )
    }

    pub(super) fn with_sink(sink: impl Sink, shutdown: &Shutdown) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        shutdown.spawn_background(write_all(sink, receiver, Arc::clone(&dropped)));
        Self { sender, dropped }
    }

    /// Records that `note` happened to `object`, which the API server knows: it has a name, and a
    /// uid. Returns at once.
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
        let event = (regarding, note, Timestamp::now());
        if self.sender.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped because there were too many, or because they could not be
    /// written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

/// `text` with at most `max` bytes.
fn shortened(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

// === the task ===

/// Writes events until all recorders are dropped.
async fn write_all(
    sink: impl Sink,
    mut receiver: mpsc::Receiver<(Regarding, Note, Timestamp)>,
    dropped: Arc<AtomicU64>,
) {
    let mut aggregator = Aggregator::default();
    let mut ticks = interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let drop_one = || dropped.fetch_add(1, Ordering::Relaxed);
    loop {
        let event = tokio::select! {
            biased;
            _ = ticks.tick() => {
                for series in aggregator.refresh(Instant::now()) {
                    if !write(&sink, Write::Series(series)).await {
                        drop_one();
                    }
                }
                continue;
            }
            event = receiver.recv() => event,
        };
        let Some((regarding, note, time)) = event else {
            return;
        };
        match aggregator.record(regarding, note, Instant::now(), time) {
            Recorded::Counted => {}
            Recorded::Write(event) => {
                if !write(&sink, event).await {
                    drop_one();
                }
            }
            Recorded::Dropped => {
                drop_one();
            }
        }
    }
}

/// Returns false if the event could not be written.
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
        let api = Api::<Event>::namespaced(self.client.clone(), &event.namespace);
        let event = self.event(event);
        let created = api.create(&PostParams::default(), &event).await;
        match created {
            // An attempt before had no answer, but was successful.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created.map(drop).map_err(failure),
        }
    }

    async fn update(&self, series: &SeriesOf) -> Result<(), SinkError> {
        let api = Api::<Event>::namespaced(self.client.clone(), &series.namespace);
        let SeriesOf { count, last, .. } = series;
        let observed = EventSeries {
            count: *count,
            last_observed_time: MicroTime(*last),
        };
        let patch = Patch::Merge(json!({ "series": observed }));
        let params = PatchParams::default();
        let patched = api.patch(&series.name, &params, &patch);
        patched.await.map(drop).map_err(failure)
    }
}

impl KubeSink {
    fn event(&self, event: &NewEvent) -> Event {
        let Regarding {
            api_version,
            kind,
            namespace,
            name,
            uid,
            resource_version,
        } = event.regarding.clone();
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
                api_version: Some(api_version),
                kind: Some(kind),
                namespace,
                name: Some(name),
                uid,
                resource_version,
                ..ObjectReference::default()
            }),
            ..Event::default()
        }
    }
}

/// An answer that is no server error and not 429 will not change.
fn failure(error: kube::Error) -> SinkError {
    match &error {
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => {
            SinkError::Refused(error.into())
        }
        _ => SinkError::Failed(error.into()),
    }
}
