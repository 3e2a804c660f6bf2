//! Stats: how a cache fares, as numbers.

use crate::api::ResourceVersion;

/// Why an epoch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochCause {
    /// An object has other bytes at an equal uid and resource version.
    BytesDiffer,
    /// A resource version is below one that was applied: another history.
    WentBack,
}

/// A cache's size and how it fared since its start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Objects stored.
    pub objects: usize,
    /// Bytes of the objects stored.
    pub bytes: usize,
    /// All changes up to here are in; `None` while not ready.
    pub applied: Option<ResourceVersion>,
    /// Events retained.
    pub log_events: usize,
    /// Bytes of the events retained, counted as if they shared no object with each other.
    pub log_bytes: usize,
    /// The oldest resource version at which a watch can start; `None` while not ready.
    pub log_start: Option<ResourceVersion>,
    /// Events appended since the start.
    pub events: u64,
    /// Events that had to go for their bytes before their time.
    pub evicted_early: u64,
    /// Lists taken over since the start, the first included.
    pub relists: u64,
    /// Epochs ended since the start.
    pub epochs: u64,
    /// Why the last epoch ended.
    pub last_epoch_cause: Option<EpochCause>,
    /// Watch streams open.
    pub watchers: usize,
    /// Different selections among those that have caught up.
    pub groups: usize,
    /// Snapshots pinned.
    pub pinned: usize,
}
