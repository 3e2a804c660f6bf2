//! Traces: spans of requests, sent to a collector of OpenTelemetry by OTLP over HTTP.
//!
//! [`Traces`] decides at the head of a request whether the request is recorded. If not, nothing
//! else happens. If so, the request has a `RequestTrace`, and its spans are made when it has
//! ended. They wait in a queue, which a background task empties with kubefan's own HTTP client.
//!
//! The messages of OTLP are few and do not change, so they are encoded here (`otlp.rs`); the tests
//! decode them with OpenTelemetry's own types.

mod collector;
mod config;
mod context;
mod exporter;
mod otlp;
mod queue;
mod request_trace;
mod sampling;
mod span;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use collector::Collector;
pub use collector::{HeadersError, TracesError};
pub use config::Config;
pub(crate) use context::{Parent, SpanContext, TRACEPARENT, TRACESTATE};
use exporter::Exporter;
use http::HeaderMap;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use queue::SpanQueue;
pub(crate) use request_trace::{Notes, RequestTrace, SharedCall};
pub use sampling::Rate;
pub(crate) use span::{Span, SpanKind, Value};
use tokio::time::timeout;

/// How long the end of the process waits until the last spans are sent.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Records requests and sends their spans to the collector. Cheap to clone.
#[derive(Clone)]
pub struct Traces {
    inner: Arc<Inner>,
}

struct Inner {
    rate: Rate,
    queue: SpanQueue,
    collector: Collector,
}

impl Traces {
    /// Starts the task that sends spans to the collector, as a background task of `shutdown`. The
    /// collector need not be there yet. Call [`Traces::finish`] after the drain.
    ///
    /// # Errors
    /// If a file that `config` names can't be used.
    pub async fn start(
        config: Config,
        registry: &Registry,
        shutdown: &Shutdown,
    ) -> Result<Self, TracesError> {
        let rate = config.rate;
        let collector = Collector::new(config).await?;
        let traces = Self::new(rate, collector, registry);
        shutdown.spawn_background(traces.clone().run());
        Ok(traces)
    }

    async fn run(self) {
        let mut exporter = Exporter::new(&self.inner.collector);
        exporter.run(&self.inner.queue).await;
    }

    fn new(rate: Rate, collector: Collector, registry: &Registry) -> Self {
        let inner = Inner {
            rate,
            queue: SpanQueue::new(registry),
            collector,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Decides whether a request with `headers` is recorded, and begins its trace if so. `is_tls` is
    /// true if its connection is encrypted.
    pub(crate) fn begin(&self, headers: &HeaderMap, is_tls: bool) -> Option<Arc<RequestTrace>> {
        if !self.inner.rate.selects(rand::random()) {
            return None;
        }
        let parent = Parent::of(headers);
        if parent.is_some_and(|parent| !parent.is_sampled) {
            return None;
        }
        Some(Arc::new(RequestTrace::new(self.clone(), parent, is_tls)))
    }

    /// Sends `spans`, which belong together, to the collector later. Never waits: if too many spans
    /// wait, all of these are dropped and counted.
    pub(crate) fn export(&self, spans: Vec<Span>) {
        self.inner.queue.push(spans);
    }

    /// Sends the spans that wait, for at most two seconds. The background task must have ended.
    pub async fn finish(&self) {
        let queue = &self.inner.queue;
        let mut exporter = Exporter::new(&self.inner.collector);
        if timeout(FINISH_TIMEOUT, exporter.flush(queue))
            .await
            .is_err()
        {
            let spans = queue.waiting();
            tracing::warn!(spans, "the collector is too slow; the last spans are lost");
        }
    }
}
