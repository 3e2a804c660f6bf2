//! Settings of the informer set.

use std::time::Duration;

use super::{FreshnessPolicies, FreshnessPolicy, Hooks, InformerSpec};
use crate::cache;
use crate::cache::GroupLimits;

/// Settings that an [`InformerSet`](super::InformerSet) applies to all its informers.
#[derive(Clone, Debug)]
pub struct Config {
    /// An informer that had no watches and no requests for this long is stopped, unless it is
    /// pinned. Default is [`Config::DEFAULT_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// Keys of the labels that each cache indexes by value. Default is none.
    pub indexed_labels: Vec<String>,
    /// The event log may drop an event when it has reached this age; [`Config::retention_bytes`]
    /// has priority. Default is [`Config::DEFAULT_RETENTION_AGE`].
    pub retention_age: Duration,
    /// Maximum size of one event log in bytes. `None`, the default, means 64 MiB, or four times the
    /// size of the store if that is more.
    pub retention_bytes: Option<usize>,
    /// How many different selections clients may watch in each cache, as far as they cost memory or
    /// time for every change. Default is [`GroupLimits::default`].
    pub groups: GroupLimits,
    /// Upper limit of the bytes of the events that bridges of all informers buffer together.
    /// Default is [`Config::DEFAULT_BRIDGE_BYTES`].
    pub bridge_bytes: usize,
    /// How fresh the answer to a read of the most recent state must be, for each resource. Default
    /// is as fresh as the request, for all resources.
    pub freshness: FreshnessPolicies,
    /// How long caches stay in use while the API server answers 401 to kubefan's credentials; after
    /// that, they are treated as after 403. Default is [`Config::DEFAULT_MAX_UNAUTHORIZED`].
    pub max_unauthorized: Duration,
    /// If the watch of a cache was not proven alive for this long, kubefan is not ready. `None`,
    /// the default, means no limit. Over HTTP/2 a live watch is proven every few seconds; over
    /// HTTP/1.1 only by events and by bookmarks, which the API server sends once a minute.
    pub max_staleness: Option<Duration>,
    /// Functions that the informers call. Default is none.
    pub hooks: Hooks,
    /// Seed of the reflectors' random waits and watch timeouts, to make them repeatable. `None`,
    /// the default, seeds them from the system.
    pub seed: Option<u64>,
}

impl Config {
    /// Default of [`Config::idle_timeout`]: ten minutes.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
    /// Default of [`Config::retention_age`]: 10 s. An event handler that is further behind gets the
    /// difference to the present state, but a stream of [`cache::Reader::watch`] ends as expired.
    pub const DEFAULT_RETENTION_AGE: Duration = Duration::from_secs(10);
    /// The retention age of a server of watches, so that clients that reconnect resume: 75 s, as in
    /// kube-apiserver.
    pub const SERVER_RETENTION_AGE: Duration = cache::Config::DEFAULT_RETENTION_AGE;
    /// Default of [`Config::bridge_bytes`]: 64 MiB.
    pub const DEFAULT_BRIDGE_BYTES: usize = 64 << 20;
    /// Default of [`Config::max_unauthorized`]: ten minutes.
    pub const DEFAULT_MAX_UNAUTHORIZED: Duration = Duration::from_secs(600);
    /// How long a ready cache stays in use while the API server answers 403, 404 or 406; after
    /// that, its reflector ends.
    pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);
    /// How long the set does not restart an informer that the API server refused with 403.
    pub const FORBIDDEN_TTL: Duration = Duration::from_secs(60);
    /// How long the set does not restart an informer that the API server refused with 404. The time
    /// is short because discovery should soon lack the resource too.
    pub const GONE_TTL: Duration = Duration::from_secs(5);
    /// How long the set does not restart an informer that the API server refused with 406, as it
    /// does for resources that have no protobuf.
    pub const NOT_ACCEPTABLE_TTL: Duration = Duration::from_secs(3600);

    /// Returns how fresh the answers from the caches of `spec` must be.
    pub(super) fn freshness_of(&self, spec: &InformerSpec) -> FreshnessPolicy {
        let of_rule = spec.settings.freshness;
        of_rule.unwrap_or_else(|| self.freshness.of(&spec.resource.gvr))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle_timeout: Self::DEFAULT_IDLE_TIMEOUT,
            indexed_labels: Vec::new(),
            retention_age: Self::DEFAULT_RETENTION_AGE,
            retention_bytes: None,
            groups: GroupLimits::default(),
            bridge_bytes: Self::DEFAULT_BRIDGE_BYTES,
            freshness: FreshnessPolicies::default(),
            max_unauthorized: Self::DEFAULT_MAX_UNAUTHORIZED,
            max_staleness: None,
            hooks: Hooks::default(),
            seed: None,
        }
    }
}
