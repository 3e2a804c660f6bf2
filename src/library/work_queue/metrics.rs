//! The metrics of work queues, under the names that controllers in Go use.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kubefan_core::telemetry::{Registry, Samples};
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

/// Histogram buckets in seconds: those of controllers in Go, from 10 ns to 1,000 s.
const BUCKETS: &[f64] = &[
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1_000.0,
];
/// The label with the name of the queue.
const LABEL: &str = "name";

/// The metrics of all queues of a process. Clones share the metrics.
///
/// Each metric has the label `name`, the name of the queue:
///
/// - `workqueue_depth`: the keys that are ready and wait for a worker.
/// - `workqueue_adds_total`: the requests to run a key; a request with a delay counts when it is
///   due. A request for a key that is waiting already is not counted.
/// - `workqueue_queue_duration_seconds`: how long keys waited for a worker after they were due.
/// - `workqueue_work_duration_seconds`: how long the runs of keys took.
/// - `workqueue_retries_total`: the requests with a delay, and the rate-limited requests.
/// - `workqueue_unfinished_work_seconds`: how long the present runs have taken, added up.
/// - `workqueue_longest_running_processor_seconds`: how long the longest present run has taken.
#[derive(Clone)]
pub struct Metrics {
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    queues: Arc<Mutex<Vec<MeasuredQueue>>>,
}

/// The metrics of one queue; see [`Metrics::queue`].
pub struct QueueMetrics {
    pub(super) adds: IntCounter,
    pub(super) retries: IntCounter,
    pub(super) queue_duration: Histogram,
    pub(super) work_duration: Histogram,
    name: Arc<str>,
    queues: Arc<Mutex<Vec<MeasuredQueue>>>,
}

/// A queue that a scrape measures.
pub(super) trait Measured: Send + Sync {
    fn load(&self) -> Load;
}

/// The present load of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// The number of keys that are ready.
    pub(super) depth: usize,
    /// The durations of the present runs until now, added up.
    pub(super) unfinished: Duration,
    /// The duration of the longest present run until now.
    pub(super) longest: Duration,
}

struct MeasuredQueue {
    name: Arc<str>,
    queue: Weak<dyn Measured>,
}

// === impl Metrics ===

impl Metrics {
    /// Declares the metrics in `registry`.
    ///
    /// # Panics
    /// If the metrics were declared in `registry` before.
    pub fn new(registry: &Registry) -> Self {
        let queues: Arc<Mutex<Vec<MeasuredQueue>>> = Arc::default();
        let measured = Arc::clone(&queues);
        registry.on_scrape(move |samples| scrape(&measured, samples));
        Self {
            adds: registry.counter_vec(
                "workqueue_adds_total",
                "Requests to run a key; a request for a key that waits already is not counted.",
                &[LABEL],
            ),
            retries: registry.counter_vec(
                "workqueue_retries_total",
                "Requests to run a key after a delay, or rate limited.",
                &[LABEL],
            ),
            queue_duration: registry.histogram_vec(
                "workqueue_queue_duration_seconds",
                "How long keys waited for a worker after they were due, in seconds.",
                &[LABEL],
                BUCKETS,
            ),
            work_duration: registry.histogram_vec(
                "workqueue_work_duration_seconds",
                "How long the runs of keys took, in seconds.",
                &[LABEL],
                BUCKETS,
            ),
            queues,
        }
    }

    /// Returns the metrics of the queue `name`, for [`Config::metrics`](super::Config::metrics).
    /// Queues with equal names share their metrics.
    pub fn queue(&self, name: &str) -> QueueMetrics {
        QueueMetrics {
            adds: self.adds.with_label_values(&[name]),
            retries: self.retries.with_label_values(&[name]),
            queue_duration: self.queue_duration.with_label_values(&[name]),
            work_duration: self.work_duration.with_label_values(&[name]),
            name: name.into(),
            queues: Arc::clone(&self.queues),
        }
    }
}

debug_fields!([] Metrics);

/// Adds the gauges of all queues to `samples`. The values of queues with equal names are added up.
fn scrape(queues: &Mutex<Vec<MeasuredQueue>>, samples: &mut Samples) {
    let mut live: Vec<(Arc<str>, Arc<dyn Measured>)> = Vec::new();
    queues.lock().retain(|measured| {
        let queue = measured.queue.upgrade();
        live.extend(
            queue
                .clone()
                .map(|queue| (Arc::clone(&measured.name), queue)),
        );
        queue.is_some()
    });
    let mut loads: BTreeMap<Arc<str>, Load> = BTreeMap::new();
    for (name, queue) in live {
        let (load, of_queue) = (loads.entry(name).or_default(), queue.load());
        load.depth += of_queue.depth;
        load.unfinished += of_queue.unfinished;
        load.longest = load.longest.max(of_queue.longest);
    }
    for (name, load) in &loads {
        let labels = [(LABEL, &**name)];
        samples.gauge(
            "workqueue_depth",
            "Keys that are ready and wait for a worker.",
            &labels,
            load.depth as f64,
        );
        samples.gauge(
            "workqueue_unfinished_work_seconds",
            "How long the present runs have taken, added up, in seconds.",
            &labels,
            load.unfinished.as_secs_f64(),
        );
        samples.gauge(
            "workqueue_longest_running_processor_seconds",
            "How long the longest of the present runs has taken, in seconds.",
            &labels,
            load.longest.as_secs_f64(),
        );
    }
}

// === impl QueueMetrics ===

impl QueueMetrics {
    /// Makes scrapes measure `queue` until the queue is dropped.
    pub(super) fn measure(&self, queue: Weak<dyn Measured>) {
        self.queues.lock().push(MeasuredQueue {
            name: Arc::clone(&self.name),
            queue,
        });
    }
}

debug_fields!([] QueueMetrics, |it| name: it.name);
