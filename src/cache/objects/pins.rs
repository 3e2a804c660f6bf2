//! Pins: snapshots that are kept so that a client can get further pages of its list.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::log::Retention;
use crate::cache::objects::snapshot::Snapshot;

const MAX_PINNED: usize = 1024;

/// The snapshots that are kept for reads at an exact resource version.
#[derive(Default)]
pub(in crate::cache) struct Pins {
    by_version: BTreeMap<ResourceVersion, Pin>,
    /// No pin is older than this. The time may be too early, if a snapshot was pinned again or
    /// evicted. It avoids a search for old pins after each change.
    not_older: Option<Instant>,
}

struct Pin {
    snapshot: Snapshot,
    pinned_at: Instant,
}

// === impl Pins ===

impl Pins {
    pub(in crate::cache) fn len(&self) -> usize {
        self.by_version.len()
    }

    pub(in crate::cache) fn add(&mut self, snapshot: Snapshot, now: Instant) {
        let pin = Pin {
            pinned_at: now,
            snapshot,
        };
        self.not_older.get_or_insert(now);
        self.by_version.insert(pin.snapshot.resource_version, pin);
    }

    /// The snapshot pinned at `version` less than `max_age` ago.
    pub(in crate::cache) fn get(
        &self,
        version: ResourceVersion,
        max_age: Duration,
        now: Instant,
    ) -> Option<Snapshot> {
        let pin = self.by_version.get(&version)?;
        let is_young = now.duration_since(pin.pinned_at) < max_age;
        is_young.then(|| pin.snapshot.clone())
    }

    /// Removes and returns all pins, so that the caller can drop them outside of its locks.
    pub(in crate::cache) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Removes and returns the snapshots that are too old, then the lowest versions until the rest
    /// is within the limits. `replaced_bytes` is the cache's current counter of replaced bytes.
    pub(in crate::cache) fn evict(
        &mut self,
        retention: Retention,
        replaced_bytes: u64,
        now: Instant,
    ) -> Vec<Snapshot> {
        let is_aged = |pinned_at| now.duration_since(pinned_at) >= retention.age;
        let mut evicted = Vec::new();
        if self.not_older.is_some_and(is_aged) {
            let pins = &mut self.by_version;
            let aged = pins.extract_if(.., |_, pin| is_aged(pin.pinned_at));
            evicted.extend(aged.map(|(_, pin)| pin.snapshot));
            self.not_older = pins.values().map(|pin| pin.pinned_at).min();
        }
        while let Some(pin) = self.by_version.first_entry() {
            let held_bytes = replaced_bytes.saturating_sub(pin.get().snapshot.replaced_bytes);
            if held_bytes <= retention.bytes as u64 && self.by_version.len() <= MAX_PINNED {
                break;
            }
            let pin = self.by_version.pop_first();
            evicted.extend(pin.map(|(_, pin)| pin.snapshot));
        }
        evicted
    }
}
