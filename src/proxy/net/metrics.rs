//! Metrics of client connections.

use kubefan_core::telemetry::Registry;
use prometheus::{IntCounterVec, IntGaugeVec};

/// Metrics of all listeners. Create them once; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Connections that reached HTTP, by listener and protocol.
    pub(super) connections: IntCounterVec,
    /// Connections that are open now, by listener.
    pub(super) open: IntGaugeVec,
    /// Connections that failed, by listener and stage.
    pub(super) failures: IntCounterVec,
}

impl Metrics {
    /// Registers the metrics in `registry`.
    pub fn new(registry: &Registry) -> Metrics {
        Metrics {
            connections: registry.counter_vec(
                "kubefan_connections_total",
                "Client connections that reached HTTP, by listener and protocol.",
                &["listener", "protocol"],
            ),
            open: registry.gauge_vec(
                "kubefan_connections_open",
                "Client connections that are open now, by listener.",
                &["listener"],
            ),
            failures: registry.counter_vec(
                "kubefan_connection_failures_total",
                "Client connections that failed, by listener and stage (accept, proxy, open, serve).",
                &["listener", "stage"],
            ),
        }
    }
}
