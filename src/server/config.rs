//! The limits of requests, and the metrics of their path.

use crate::telemetry::Registry;

use super::deliver::GzipCacheMetrics;
use super::filters::RequestMetrics;
use super::in_flight::InFlightMetrics;

/// Limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Upper limit of GETs and LISTs that are answered concurrently; 0 for no limit. Default is
    /// 4,000.
    pub max_requests_inflight: usize,
}

/// Metrics of the request path. Create them once; clones share them.
#[derive(Clone)]
pub struct Metrics {
    pub(super) requests: RequestMetrics,
    pub(super) gzip_cache: GzipCacheMetrics,
    pub(super) in_flight: InFlightMetrics,
}

impl Config {
    /// The default of [`Config::max_requests_inflight`].
    pub const DEFAULT_MAX_REQUESTS_INFLIGHT: usize = 4_000;
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_requests_inflight: Self::DEFAULT_MAX_REQUESTS_INFLIGHT,
        }
    }
}

impl Metrics {
    /// Registers the metrics in `registry`.
    pub fn new(registry: &Registry) -> Self {
        Self {
            requests: RequestMetrics::new(registry),
            gzip_cache: GzipCacheMetrics::new(registry),
            in_flight: InFlightMetrics::new(registry),
        }
    }
}
