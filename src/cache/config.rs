//! Config: the settings of a cache.

use std::time::Duration;

use crate::cache::groups::GroupLimits;

/// Which labels and fields a cache indexes, and how much history it keeps.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names of the labels to index. All selectable fields are indexed in any case.
    pub indexed_labels: Vec<String>,
    /// Number of selectable fields of each object.
    pub field_count: usize,
    /// How long events and pinned snapshots are kept, unless `retention_bytes` is exceeded first.
    pub retention_age: Duration,
    /// Limit of the bytes of all events in the log, and also of the bytes of objects that only
    /// pinned snapshots hold. `None` means 64 MiB or four times the store, whichever is more.
    pub retention_bytes: Option<usize>,
    /// Number of newest events that are kept regardless of their age, unless `retention_bytes` is
    /// exceeded. They let a client of a quiet resource resume after an hour without a new list.
    pub retention_events: usize,
    /// Limits of the groups, that is, of the different selections that clients watch.
    pub groups: GroupLimits,
}
