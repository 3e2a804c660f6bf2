//! Config: the settings of a cache.

use std::time::Duration;

use crate::cache::groups::GroupLimits;
use crate::cache::log::EvictedBytes;

/// Which labels and fields a cache indexes, and how much history it retains.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names of the labels to index. All selectable fields are indexed in any case.
    pub indexed_labels: Vec<String>,
    /// Number of selectable fields of each object.
    pub field_count: usize,
    /// How long events and pinned snapshots are retained, unless `retention_bytes` is exceeded
    /// first. While changes arrive, events may stay up to 1/64 longer, because several are evicted
    /// at once. Default is [`Config::DEFAULT_RETENTION_AGE`].
    pub retention_age: Duration,
    /// Limit of the bytes of all events in the log. The same limit applies separately to the bytes
    /// of objects that only pinned snapshots hold. `None` means 64 MiB or four times the bytes of
    /// the current objects, whichever is more.
    pub retention_bytes: Option<usize>,
    /// Number of newest events that are retained regardless of their age, unless `retention_bytes`
    /// is exceeded. They let a client of a quiet resource resume after an hour without a new list.
    /// Default is 128; kube-apiserver keeps 100.
    pub retention_events: usize,
    /// True if several changes may have one version, and no bookmarks come: so it is with Events,
    /// because etcd deletes all keys of a lease in one transaction. The newest version is then
    /// *open*, until a change of a later version comes. Open watches get its changes at once;
    /// everything else shows the state before it. Default is false.
    pub shares_versions: bool,
    /// Limits of the groups. There is one group for each selection that clients watch.
    pub groups: GroupLimits,
    /// Where the bytes of evicted events are counted. Default is a separate count for the cache.
    pub evicted: EvictedBytes,
}

impl Config {
    /// Default of [`Config::retention_age`]: 75 s, as in kube-apiserver. Clients that reconnect
    /// within this time resume their watches.
    pub const DEFAULT_RETENTION_AGE: Duration = Duration::from_secs(75);
}

impl Default for Config {
    fn default() -> Self {
        Self {
            indexed_labels: Vec::new(),
            field_count: 0,
            retention_age: Self::DEFAULT_RETENTION_AGE,
            retention_bytes: None,
            retention_events: 128,
            shares_versions: false,
            groups: GroupLimits::default(),
            evicted: EvictedBytes::default(),
        }
    }
}
