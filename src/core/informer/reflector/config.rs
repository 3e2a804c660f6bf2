//! Settings of a reflector: timeouts, page size and backoff.

use std::time::Duration;

use super::backoff::BackoffConfig;

/// Settings of one [`Reflector`](super::Reflector).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    /// True to try a watch-list before a LIST. Default is true.
    pub watch_list: bool,
    /// Objects per page of a LIST; 0 requests all objects in one page. Default is 500.
    pub page_size: u32,
    /// A watch without a frame for this long is closed and resumed. The API server sends a bookmark
    /// each minute. Default is 90 s.
    pub silence_limit: Duration,
    /// True if upstream sends bookmarks. Otherwise a watch is only silent if its connection is,
    /// which HTTP/2 pings show. Default is true.
    pub expects_bookmarks: bool,
    /// Limit for upstream to begin the answer to a WATCH. Also the limit for the barrier, a LIST of
    /// one object that returns the current resource version, before a watch is resumed. Default is
    /// 10 s.
    pub call_timeout: Duration,
    /// Limit for one page of a LIST, body included. Default is 5 min.
    pub list_timeout: Duration,
    /// True to relist after upstream ended a watch more than 5 s before its deadline. The API
    /// server does this when the schema of a custom resource changed; its objects may then have
    /// other bytes although their resource versions have not changed. Default is false.
    pub relist_on_early_end: bool,
    /// How long a ready cache stays in use while upstream answers 403, 404 or 406; after that, the
    /// reflector ends. Default is zero.
    pub refusal_patience: Duration,
    /// How long the reflector retries while upstream answers 401; after that, it ends. Default is
    /// ten minutes.
    pub unauthorized_patience: Duration,
    /// Waits between retries after failures.
    pub backoff: BackoffConfig,
    /// Seed of the random waits and watch timeouts, to make them repeatable. `None`, the default,
    /// seeds them from the system.
    pub seed: Option<u64>,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            watch_list: true,
            page_size: 500,
            silence_limit: Duration::from_secs(90),
            expects_bookmarks: true,
            call_timeout: Duration::from_secs(10),
            list_timeout: Duration::from_secs(300),
            relist_on_early_end: false,
            refusal_patience: Duration::ZERO,
            unauthorized_patience: Duration::from_secs(600),
            backoff: BackoffConfig::default(),
            seed: None,
        }
    }
}
