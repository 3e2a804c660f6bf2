//! Retention: how much of the past is kept.

use std::time::Duration;

use crate::cache::config::Config;

/// Bytes of history kept at least, if no limit is configured.
const MIN_RETENTION_BYTES: usize = 64 << 20;

/// What the log may hold.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Retention {
    pub(in crate::cache) age: Duration,
    /// So many events and holes stay however old they are.
    pub(in crate::cache) events: usize,
    pub(in crate::cache) bytes: usize,
}

// === impl Retention ===

impl Retention {
    /// What log and pins may hold beside a store of `store_bytes`.
    pub(in crate::cache) fn new(config: &Config, store_bytes: usize) -> Self {
        let default = || MIN_RETENTION_BYTES.max(store_bytes.saturating_mul(2));
        Self {
            age: config.retention_age,
            events: config.retention_events,
            bytes: config.retention_bytes.unwrap_or_else(default),
        }
    }
}
