//! Stats: the size of a cache and its counters.

use tokio::time::Instant;

use crate::api::ResourceVersion;

/// Why an epoch ended and a new one began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochCause {
    /// The upstream sent other bytes for an object, although its uid and resource
    /// version have not changed.
    BytesDiffer,
    /// A resource version went back, so it belongs to another history (etcd was restored).
    WentBack,
}

/// The size of a cache, and counters since its start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Number of objects in the store.
    pub objects: usize,
    /// Bytes of the objects in the store.
    pub bytes: usize,
    /// The applied resource version: the cache has all changes up to it. `None` while
    /// the cache is not ready.
    pub applied: Option<ResourceVersion>,
    /// Number of events in the log.
    pub log_events: usize,
    /// Bytes of the events in the log. An object that several events share is counted for each.
    pub log_bytes: usize,
    /// When the oldest event in the log was appended; `None` if the log has no events.
    pub log_oldest: Option<Instant>,
    /// The oldest resource version that a watch can start from; `None` while
    /// the cache is not ready.
    pub log_start: Option<ResourceVersion>,
    /// Number of events appended to the log since the start.
    pub events: u64,
    /// Number of events evicted because of the byte limit, before they reached the retention age.
    pub evicted_early: u64,
    /// Number of lists that were applied since the start, including the first one.
    pub relists: u64,
    /// Number of epochs that ended since the start.
    pub epochs: u64,
    /// Why the last epoch ended; `None` in the first epoch.
    pub last_epoch_cause: Option<EpochCause>,
    /// Number of open watch streams.
    pub watchers: usize,
    /// Number of groups with streams. It equals the number of different
    /// selections that are watched.
    pub groups: usize,
    /// Number of watches that were refused since the start, because clients already watched too
    /// many selections that no index finds.
    pub refused_watches: u64,
    /// Bytes of the queues of all groups. The events are the log's.
    pub queue_bytes: usize,
    /// Number of pinned snapshots.
    pub pinned: usize,
}
