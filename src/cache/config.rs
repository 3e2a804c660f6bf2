//! Config: what a cache is told when it is made.

use std::time::Duration;

/// What one cache indexes, and how much history it keeps.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names of labels that are indexed; selectable fields always are.
    pub indexed_labels: Vec<String>,
    /// How many selectable fields the objects carry.
    pub field_count: usize,
    /// How long events and pinned snapshots are kept, if bytes allow.
    pub retention_age: Duration,
    /// Bytes of events kept at most, and of objects that only pinned snapshots hold.
    /// `None`: the larger of 64 MiB and twice the store.
    pub retention_bytes: Option<usize>,
    /// So many events are kept however old they are, if bytes allow: on a quiet resource a client
    /// may come back after an hour, and need not list again for want of a few events.
    pub retention_events: usize,
}
