//! Retention: the limits of the log and of the pinned snapshots.

use std::time::Duration;

use crate::cache::config::Config;

/// The default byte limit is twice the size of the objects, but at least this.
const MIN_RETENTION_BYTES: usize = 64 << 20;

/// The limits of the log, which also apply to the pinned snapshots.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Retention {
    pub(in crate::cache) age: Duration,
    /// Number of newest events (and of newest holes) that are kept regardless of `age`.
    pub(in crate::cache) events: usize,
    pub(in crate::cache) bytes: usize,
}

// === impl Retention ===

impl Retention {
    /// The limits from `config`, or the default byte limit for a store of `store_bytes` bytes.
    pub(in crate::cache) fn new(config: &Config, store_bytes: usize) -> Self {
        let default = || MIN_RETENTION_BYTES.max(store_bytes.saturating_mul(2));
        Self {
            age: config.retention_age,
            events: config.retention_events,
            bytes: config.retention_bytes.unwrap_or_else(default),
        }
    }
}
