//! The metrics of controllers, under the names that controllers in Go use.

use std::time::Duration;

use kubefan_core::telemetry::Registry;
use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use crate::work_queue;

/// Histogram buckets in seconds: those of controller-runtime, from 5 ms to a minute.
const BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
/// The label with the name of the controller.
const LABEL: &str = "controller";

/// The metrics of all controllers of a process, and of their queues. Clones share the metrics.
///
/// Each metric has the label `controller`, the name of the controller:
///
/// - `controller_runtime_reconcile_total`: the reconciles that ended; the label `result` is
///   `success`, `requeue`, `requeue_after` or `error`.
/// - `controller_runtime_reconcile_errors_total`: the reconciles that failed, panics included.
/// - `controller_runtime_reconcile_panics_total`: the reconciles that panicked.
/// - `controller_runtime_reconcile_time_seconds`: how long the reconciles took.
/// - `controller_runtime_active_workers`: the reconciles that run now.
/// - `controller_runtime_max_concurrent_reconciles`: how many reconciles may run at once.
///
/// [`work_queue::Metrics`] lists the metrics of the queues.
#[derive(Clone)]
pub struct Metrics {
    total: IntCounterVec,
    errors: IntCounterVec,
    panics: IntCounterVec,
    time: HistogramVec,
    active: IntGaugeVec,
    max: IntGaugeVec,
    pub(super) queues: work_queue::Metrics,
}

/// The metrics of one controller.
pub(super) struct ControllerMetrics {
    metrics: Metrics,
    name: String,
    active: IntGauge,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Requeue,
    RequeueAfter,
    Error,
    Panic,
}

/// Counts an active worker while this value exists.
pub(super) struct Active<'a>(&'a IntGauge);

// === impl Metrics ===

impl Metrics {
    /// Declares the metrics in `registry`. `queues` has those of the controllers' queues.
    ///
    /// # Panics
    /// If the metrics were declared in `registry` before.
    pub fn new(registry: &Registry, queues: work_queue::Metrics) -> Self {
        Self {
            total: registry.counter_vec(
                "controller_runtime_reconcile_total",
                "Reconciles that ended, by result.",
                &[LABEL, "result"],
            ),
            errors: registry.counter_vec(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that failed, panics included.",
                &[LABEL],
            ),
            panics: registry.counter_vec(
                "controller_runtime_reconcile_panics_total",
                "Reconciles that panicked.",
                &[LABEL],
            ),
            time: registry.histogram_vec(
                "controller_runtime_reconcile_time_seconds",
                "How long reconciles took, in seconds.",
                &[LABEL],
                BUCKETS,
            ),
            active: registry.gauge_vec(
                "controller_runtime_active_workers",
                "Reconciles that run now.",
                &[LABEL],
            ),
            max: registry.gauge_vec(
                "controller_runtime_max_concurrent_reconciles",
                "How many reconciles may run at once.",
                &[LABEL],
            ),
            queues,
        }
    }

    pub(super) fn controller(&self, name: &str, max: usize) -> ControllerMetrics {
        let labels = &[name];
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.max.with_label_values(labels).set(max);
        // The counters are visible from the start, so that a scrape can see their first increase.
        self.errors.with_label_values(labels);
        self.panics.with_label_values(labels);
        ControllerMetrics {
            metrics: self.clone(),
            name: name.to_owned(),
            active: self.active.with_label_values(labels),
        }
    }
}

debug_fields!([] Metrics);

// === impl ControllerMetrics ===

impl ControllerMetrics {
    /// Counts a reconcile as active while the result exists.
    pub(super) fn active(&self) -> Active<'_> {
        self.active.inc();
        Active(&self.active)
    }

    /// Counts a reconcile that ended.
    pub(super) fn ended(&self, outcome: Outcome, lasted: Duration) {
        let Self { metrics, name, .. } = self;
        let name = name.as_str();
        if outcome == Outcome::Panic {
            metrics.panics.with_label_values(&[name]).inc();
        }
        if matches!(outcome, Outcome::Error | Outcome::Panic) {
            metrics.errors.with_label_values(&[name]).inc();
        }
        let result = outcome.label();
        metrics.total.with_label_values(&[name, result]).inc();
        let time = metrics.time.with_label_values(&[name]);
        time.observe(lasted.as_secs_f64());
    }
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
            Self::Error | Self::Panic => "error",
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
