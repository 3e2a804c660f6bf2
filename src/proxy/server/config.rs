//! The limits of requests, and the metrics of their path.

use std::time::Duration;

use kubefan_core::cache::GroupLimits;
use kubefan_core::telemetry::Registry;
use prometheus::IntCounterVec;

use super::deliver::{ListCounters, chunk_counter};
use super::filters::{RequestMetrics, WebPageRules};
use super::limits::budgets::Budgets;
use super::limits::in_flight::InFlightMetrics;
use super::limits::shares::{UserLimits, refusal_counter};
use super::request::ShardSelectors;
use super::tables::check_counter;
use super::upstream::documents::DocumentMetrics;
use crate::ledger::Limits;
use crate::net;

/// Which requests are accepted, and their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Upper limit of GETs and LISTs that are answered concurrently; 0 for no limit. Default is
    /// 4,000.
    pub max_requests_inflight: usize,
    /// Upper limit of the watched selections of one cache that no index finds. One user may have
    /// half of them. Default is 1,000.
    pub max_unindexed_selectors: usize,
    /// What one user may have at a time.
    pub users: UserLimits,
    /// How long the head of a cache's answer may take, except for a WATCH. A client can shorten it
    /// with the parameter `timeout`. Default is 60 s.
    pub request_timeout: Duration,
    /// How long a client of a WebSocket may take no byte of a watch. Default is five minutes, as
    /// for connections that are not upgraded.
    pub write_timeout: Duration,
    /// Longest URL of a request in bytes, without scheme and authority; longer ones get 414.
    /// Default is 64 KiB. The HTTP library refuses URLs of more than 65,534 bytes, whatever the
    /// limit is.
    pub max_url_bytes: usize,
    /// How a LIST or WATCH with a `shardSelector` is handled. Default is to forward it.
    pub shard_selectors: ShardSelectors,
    /// True if a resource has the freshness policy `session`. Default is false.
    pub has_sessions: bool,
    /// True if answers have the header `Cache-Status`. Default is true.
    pub has_cache_status: bool,
    /// True if the bill counts what each client uses. Default is true.
    pub has_bill: bool,
    /// Which requests may be from a foreign web page, and are refused. Default is for a loopback
    /// listener with callers that are not authenticated.
    pub web_pages: WebPageRules,
}

/// Metrics of the request path, and the budgets that they show. Create them once; clones share
/// them.
#[derive(Clone)]
pub struct Metrics {
    pub(super) budgets: Budgets,
    /// The metrics of the filters, which count every request.
    pub(crate) requests: RequestMetrics,
    pub(super) lists: ListCounters,
    pub(super) initial_chunks: IntCounterVec,
    pub(super) in_flight: InFlightMetrics,
    pub(super) shares: IntCounterVec,
    pub(super) tables: IntCounterVec,
    pub(super) documents: DocumentMetrics,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_requests_inflight: 4_000,
            max_unindexed_selectors: GroupLimits::DEFAULT_UNINDEXED,
            users: UserLimits::default(),
            request_timeout: Duration::from_secs(60),
            write_timeout: net::Config::DEFAULT_WRITE_TIMEOUT,
            max_url_bytes: 64 << 10,
            shard_selectors: ShardSelectors::Forward,
            has_sessions: false,
            has_cache_status: true,
            has_bill: true,
            web_pages: WebPageRules::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics in `registry`. The budgets are within `memory`.
    pub fn new(registry: &Registry, memory: &Limits) -> Self {
        Self {
            budgets: Budgets::new(registry, memory),
            requests: RequestMetrics::new(registry),
            lists: ListCounters::new(registry),
            initial_chunks: chunk_counter(registry),
            in_flight: InFlightMetrics::new(registry),
            shares: refusal_counter(registry),
            tables: check_counter(registry),
            documents: DocumentMetrics::new(registry),
        }
    }
}
