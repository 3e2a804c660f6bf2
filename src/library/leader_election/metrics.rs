//! The metric of leader election, under the name that controllers in Go use.

use kubefan_core::telemetry::Registry;
use prometheus::IntGauge;

/// The metric `leader_election_master_status` with the label `name`, the name of the election: 1 if
/// this candidate leads, otherwise 0. Clones share the metric.
#[derive(Clone)]
pub struct Metrics {
    status: IntGauge,
}

impl Metrics {
    /// Declares the metric in `registry`, for the election `name`.
    ///
    /// # Panics
    /// If the metric was declared in `registry` before.
    pub fn new(registry: &Registry, name: &str) -> Self {
        let gauge = registry.gauge_vec(
            "leader_election_master_status",
            "1 if this candidate leads, else 0.",
            &["name"],
        );
        Self {
            status: gauge.with_label_values(&[name]),
        }
    }

    pub(super) fn set(&self, is_leading: bool) {
        self.status.set(i64::from(is_leading));
    }
}

debug_fields!([] Metrics);
