//! Sends the spans that wait to the collector, in batches. A batch that could not be sent is sent
//! again a few times, as OTLP over HTTP says.

use std::time::Duration;

use bytes::Bytes;
use kubefan_core::informer::{Backoff, BackoffConfig};
use kubefan_core::upstream::DedicatedConnection;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::collector::{Collector, SendError};
use super::otlp;
use super::queue::{Batch, SpanQueue};

/// How long spans wait for more of them, unless a batch is complete before.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often a batch is sent at most. The pauses take about half a minute.
const ATTEMPTS: usize = 6;
/// The pauses before a batch is sent again.
const BACKOFF: BackoffConfig = BackoffConfig {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(8),
    reset_after: Duration::MAX,
};
/// The longest pause that a collector can request by `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Sends batches over one connection.
pub(super) struct Exporter<'a> {
    collector: &'a Collector,
    connection: Option<DedicatedConnection>,
    backoff: Backoff,
    /// True if the last batch was lost, or spans of it were rejected. The log says so already.
    is_failing: bool,
}

impl<'a> Exporter<'a> {
    pub(super) fn new(collector: &'a Collector) -> Self {
        Self {
            collector,
            connection: None,
            backoff: Backoff::new(BACKOFF, StdRng::from_os_rng()),
            is_failing: false,
        }
    }

    /// Sends the spans that wait in `queue`, again and again. Cancel safe: the spans that were not
    /// sent wait again.
    pub(super) async fn run(&mut self, queue: &SpanQueue) {
        loop {
            // The result does not matter: spans are sent after a while even if they are few.
            let _ = timeout(INTERVAL, queue.has_batch.notified()).await;
            self.flush(queue).await;
        }
    }

    /// Sends all spans that wait in `queue`. Cancel safe as [`Exporter::run`].
    pub(super) async fn flush(&mut self, queue: &SpanQueue) {
        while let Some(batch) = queue.take() {
            self.export(queue, batch).await;
        }
    }

    async fn export(&mut self, queue: &SpanQueue, batch: Batch<'_>) {
        let (metrics, count) = (&queue.metrics, batch.spans.len());
        let bytes = Bytes::from(otlp::request(&self.collector.resource, &batch.spans));
        let sent = self.send(bytes).await;
        // From here on nothing waits, so the spans are counted once.
        batch.finish();
        match &sent {
            Ok(rejected) => {
                let rejected = usize::try_from(*rejected).unwrap_or(count).min(count);
                metrics.exported.inc_by((count - rejected) as u64);
                metrics.rejected.inc_by(rejected as u64);
            }
            Err(_) => metrics.failed.inc_by(count as u64),
        }
        self.report(&sent, count);
    }

    /// Sends a request, up to [`ATTEMPTS`] times. Returns the number of rejected spans.
    async fn send(&mut self, spans: Bytes) -> Result<u64, SendError> {
        self.backoff.reset();
        for _ in 1..ATTEMPTS {
            let sent = self.collector.send(&mut self.connection, spans.clone());
            let error = match sent.await {
                Err(error) if error.is_retryable() => error,
                done => return done,
            };
            tracing::debug!(%error, "spans will be sent again");
            let requested = error.retry_after().unwrap_or_default();
            sleep(self.backoff.next_delay().max(requested.min(LONGEST_PAUSE))).await;
        }
        self.collector.send(&mut self.connection, spans).await
    }

    /// Logs the first of several losses, and their end.
    fn report(&mut self, sent: &Result<u64, SendError>, spans: usize) {
        let collector = self.collector.server();
        match sent {
            Ok(0) if self.is_failing => tracing::info!(collector, "spans are sent again"),
            Ok(0) => {}
            _ if self.is_failing => {}
            Ok(rejected) => {
                tracing::warn!(collector, rejected, "the collector of traces rejects spans");
            }
            Err(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(collector, error, spans, "spans could not be sent");
            }
        }
        self.is_failing = !matches!(sent, Ok(0));
    }
}
