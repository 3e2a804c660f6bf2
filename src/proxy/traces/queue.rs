//! The spans that wait for the collector.

use std::collections::VecDeque;
use std::mem;

use kubefan_core::telemetry::Registry;
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::Notify;

use super::span::Span;

/// The most spans that wait, with those that are being sent. A span has about 400 bytes.
pub(super) const MAX_SPANS: usize = 2_048;
/// The most spans in one request to the collector.
pub(super) const BATCH: usize = 512;

/// The spans that wait for the collector. Adding spans never waits.
pub(super) struct SpanQueue {
    state: Mutex<State>,
    /// Notified when a whole batch waits.
    pub(super) has_batch: Notify,
    pub(super) metrics: TraceMetrics,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Span>,
    /// The number of spans in batches.
    taken: usize,
}

/// Spans that are being sent. When this is dropped, they wait again, unless they are done with.
pub(super) struct Batch<'a> {
    queue: &'a SpanQueue,
    pub(super) spans: Vec<Span>,
    is_done: bool,
}

/// Counts spans by what became of them.
pub(super) struct TraceMetrics {
    /// The collector has accepted them.
    pub(super) exported: IntCounter,
    /// Too many spans waited.
    pub(super) queue_full: IntCounter,
    /// The collector could not be reached, or has refused the request.
    pub(super) failed: IntCounter,
    /// The collector has accepted the request, but not these spans of it.
    pub(super) rejected: IntCounter,
}

impl SpanQueue {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            state: Mutex::default(),
            has_batch: Notify::new(),
            metrics: TraceMetrics::new(registry),
        }
    }

    /// Adds the spans of one trace. If there is no room for all of them, drops and counts them all.
    pub(super) fn push(&self, spans: Vec<Span>) {
        let count = spans.len();
        let mut state = self.state.lock();
        if state.waiting.len() + state.taken + count > MAX_SPANS {
            drop(state);
            self.metrics.queue_full.inc_by(count as u64);
            return;
        }
        state.waiting.extend(spans);
        if state.waiting.len() >= BATCH {
            self.has_batch.notify_one();
        }
    }

    /// Takes the oldest spans, at most a batch. Returns `None` if none waits.
    pub(super) fn take(&self) -> Option<Batch<'_>> {
        let mut state = self.state.lock();
        let count = state.waiting.len().min(BATCH);
        if count == 0 {
            return None;
        }
        state.taken += count;
        Some(Batch {
            queue: self,
            spans: state.waiting.drain(..count).collect(),
            is_done: false,
        })
    }

    /// Returns the number of spans that wait, without those in batches.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl Batch<'_> {
    /// Removes the spans: they were sent, or are given up.
    pub(super) fn finish(mut self) {
        self.is_done = true;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let spans = mem::take(&mut self.spans);
        let mut state = self.queue.state.lock();
        state.taken -= spans.len();
        if !self.is_done {
            for span in spans.into_iter().rev() {
                state.waiting.push_front(span);
            }
        }
    }
}

impl TraceMetrics {
    fn new(registry: &Registry) -> Self {
        let dropped = registry.counter_vec(
            "kubefan_spans_dropped_total",
            "Spans that did not reach the collector, by reason: queue_full (too many waited), \
             failed (the collector could not be reached, or has refused them), rejected (the \
             collector has accepted the others of the request).",
            &["reason"],
        );
        let dropped = |reason| dropped.with_label_values(&[reason]);
        Self {
            exported: registry.counter(
                "kubefan_spans_exported_total",
                "Spans that the collector has accepted.",
            ),
            queue_full: dropped("queue_full"),
            failed: dropped("failed"),
            rejected: dropped("rejected"),
        }
    }
}
