//! How a reflector goes about its work.

use std::time::Duration;

use super::backoff::BackoffConfig;

/// How a [`Reflector`](super::Reflector) goes about its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorConfig {
    /// Whether to try watch-list before LIST. Default is true.
    pub watch_list: bool,
    /// Items a page of a LIST; 0 asks for all at once. Default is 500.
    pub page_size: u32,
    /// A watch that brings no frame for this long is given up; bookmarks come each minute.
    /// Default is 90 s.
    pub silence_limit: Duration,
    /// Limit for the answer to begin of a watch, and for the proof before one. Default is 60 s.
    pub call_timeout: Duration,
    /// Limit for a page of a LIST, body included. Default is 5 min.
    pub list_timeout: Duration,
    /// Whether a watch that upstream ends well before its deadline is followed by a relist: so the
    /// API server tells that a custom resource's schema changed, after which objects may read
    /// differently at the same resource version. Default is false.
    pub relist_on_early_end: bool,
    /// How long upstream may refuse (403, 404, 406) what it allowed before until the reflector ends.
    /// Default is zero.
    pub refusal_patience: Duration,
    /// Waits after failures.
    pub backoff: BackoffConfig,
    /// Makes jitter repeatable; `None` (the default) takes it from the system.
    pub seed: Option<u64>,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            watch_list: true,
            page_size: 500,
            silence_limit: Duration::from_secs(90),
            call_timeout: Duration::from_secs(60),
            list_timeout: Duration::from_secs(300),
            relist_on_early_end: false,
            refusal_patience: Duration::ZERO,
            backoff: BackoffConfig::default(),
            seed: None,
        }
    }
}
