//! What is counted about connections.

use prometheus::IntCounterVec;
use prometheus::IntGaugeVec;

use crate::telemetry::Registry;

/// Metrics of all listeners; declare once, clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// By listener and protocol.
    pub(super) connections: IntCounterVec,
    /// By listener.
    pub(super) open: IntGaugeVec,
    /// By listener and stage.
    pub(super) failures: IntCounterVec,
}

impl Metrics {
    /// Declares them.
    pub fn new(registry: &Registry) -> Metrics {
        Metrics {
            connections: registry.counter_vec(
                "kubefan_connections_total",
                "Client connections that got as far as HTTP, by listener and protocol.",
                &["listener", "protocol"],
            ),
            open: registry.gauge_vec(
                "kubefan_connections_open",
                "Client connections that are open now, by listener.",
                &["listener"],
            ),
            failures: registry.counter_vec(
                "kubefan_connection_failures_total",
                "Client connections that failed, by listener and stage (accept, open, serve).",
                &["listener", "stage"],
            ),
        }
    }
}
