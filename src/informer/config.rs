//! How informers are kept.

use std::time::Duration;

use super::FreshnessPolicies;

/// How the set treats its informers.
#[derive(Clone, Debug)]
pub struct Config {
    /// An informer without watchers and requests for this long is stopped, unless it is pinned.
    /// Default is [`Config::DEFAULT_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// Labels whose values are indexed. Default is none.
    pub indexed_labels: Vec<String>,
    /// How long the event log keeps events at least, memory allowing. Default is
    /// [`Config::DEFAULT_RETENTION_AGE`].
    pub retention_age: Duration,
    /// Bytes that one event log may hold; `None`, the default, is the larger of 64 MiB and twice
    /// the store.
    pub retention_bytes: Option<usize>,
    /// How fresh "the most recent state" has to be. Default is as fresh as the request, everywhere.
    pub freshness: FreshnessPolicies,
    /// Makes the jitter of waits repeatable; `None` (the default) takes it from the system.
    pub seed: Option<u64>,
}

impl Config {
    /// Ten minutes.
    pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
    /// 75 s, what kube-apiserver keeps at least.
    pub const DEFAULT_RETENTION_AGE: Duration = Duration::from_secs(75);
    /// So many events of a resource are kept however old they are, as kube-apiserver keeps a
    /// hundred: the client of a quiet resource may come back after an hour.
    pub const RETENTION_EVENTS: usize = 128;
    /// How long the API server may refuse what it allowed before until the cache is given up.
    pub const REFUSAL_PATIENCE: Duration = Duration::from_secs(10);
    /// How long a 403 of the API server is remembered.
    pub const FORBIDDEN_TTL: Duration = Duration::from_secs(60);
    /// How long a 404 is remembered: discovery should follow soon.
    pub const GONE_TTL: Duration = Duration::from_secs(5);
    /// How long "this resource has no protobuf" is remembered.
    pub const NOT_ACCEPTABLE_TTL: Duration = Duration::from_secs(3600);
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle_timeout: Self::DEFAULT_IDLE_TIMEOUT,
            indexed_labels: Vec::new(),
            retention_age: Self::DEFAULT_RETENTION_AGE,
            retention_bytes: None,
            freshness: FreshnessPolicies::default(),
            seed: None,
        }
    }
}
