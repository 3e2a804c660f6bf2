//! Metrics of authentication and authorization.

use std::time::Duration;

use kubefan_core::telemetry::{Registry, SECONDS_BUCKETS};
use prometheus::{HistogramVec, IntCounter, IntCounterVec};

use super::asking::queue::QueueMetrics;

/// Metrics of [`AccessControl`](super::AccessControl). Clones share them.
#[derive(Clone)]
pub struct Metrics {
    pub(super) reviews: ReviewMetrics,
    pub(super) token_queue: QueueMetrics,
    pub(super) access_queue: QueueMetrics,
    pub(super) unaccepted: QueueMetrics,
    /// Counts requests without credentials that got 429 because their address sent too many.
    pub(super) anonymous: IntCounter,
    /// Counts requests that got 429 because their address failed too often.
    pub(super) limited: IntCounter,
    /// Counts reads that caches may answer although the API server could not be asked again.
    pub(super) stale: IntCounter,
}

/// Metrics of the reviews that were sent. The metrics with the prefix `apiserver_` have the names
/// that API servers use for reviews that they delegate to another API server.
#[derive(Clone)]
pub(super) struct ReviewMetrics {
    reviews: IntCounterVec,
    authentication: ByCode,
    authorization: ByCode,
}

#[derive(Clone)]
struct ByCode {
    total: IntCounterVec,
    seconds: HistogramVec,
}

impl Metrics {
    /// Declares the metrics.
    pub fn new(registry: &Registry) -> Self {
        let waiting = registry.gauge_vec(
            "kubefan_reviews_waiting",
            "Questions that wait until a review can be sent for them now.",
            &["about"],
        );
        let refused = registry.counter_vec(
            "kubefan_reviews_refused_total",
            "Questions that were not asked because too many waited.",
            &["about"],
        );
        let queue = |about| QueueMetrics {
            waiting: waiting.with_label_values(&[about]),
            refused: refused.with_label_values(&[about]),
        };
        let unaccepted = QueueMetrics {
            waiting: registry.gauge(
                "kubefan_unaccepted_requests_waiting",
                "Requests of callers that the API server has not accepted yet, which wait to be forwarded.",
            ),
            refused: registry.counter(
                "kubefan_unaccepted_requests_refused_total",
                "Requests of such callers that got 429 because too many of them waited.",
            ),
        };
        Self {
            reviews: ReviewMetrics::new(registry),
            token_queue: queue("token"),
            access_queue: queue("access"),
            unaccepted,
            anonymous: registry.counter(
                "kubefan_anonymous_requests_limited_total",
                "Requests without a token that got 429 because their address sent too many.",
            ),
            limited: registry.counter(
                "kubefan_failed_authentication_limited_total",
                "Requests that got 429 because too many authentications of their address failed.",
            ),
            stale: registry.counter(
                "kubefan_stale_decisions_total",
                "Reads that were allowed by an older decision, or for the last known owner of a token, because the API server did not answer (authorization.stale).",
            ),
        }
    }
}

impl ReviewMetrics {
    fn new(registry: &Registry) -> Self {
        let by_code = |name: &str| {
            let of = |suffix| format!("apiserver_delegated_{name}_request_{suffix}");
            ByCode {
                total: registry.counter_vec(
                    &of("total"),
                    "Number of HTTP requests partitioned by status code.",
                    &["code"],
                ),
                seconds: registry.histogram_vec(
                    &of("duration_seconds"),
                    "Request latency in seconds. Broken down by status code.",
                    &["code"],
                    SECONDS_BUCKETS,
                ),
            }
        };
        Self {
            reviews: registry.counter_vec(
                "kubefan_reviews_total",
                "Reviews that were sent to the API server, by their kind and the code of its answer.",
                &["kind", "code"],
            ),
            authentication: by_code("authn"),
            authorization: by_code("authz"),
        }
    }

    /// Counts a review, by the first word of its API group and its kind. `code` is the status of
    /// its answer, if there was one.
    pub(super) fn sent(&self, (group, kind): (&str, &str), code: Option<u16>, duration: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.reviews.with_label_values(&[kind, &code]).inc();
        let by_code = if group == "authorization" {
            &self.authorization
        } else {
            &self.authentication
        };
        let code = &[code.as_str()];
        by_code.total.with_label_values(code).inc();
        let seconds = by_code.seconds.with_label_values(code);
        seconds.observe(duration.as_secs_f64());
    }
}
