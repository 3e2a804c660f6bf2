//! Pins: snapshots that are held so that a client can get further pages of its list.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{ResourceVersion, Selection};
use crate::cache::log::Retention;
use crate::cache::objects::snapshot::Snapshot;

const MAX_PINNED: usize = 1024;

/// The snapshots for reads at an exact resource version. If only the objects of a selection are
/// proven in a snapshot, only reads of that selection get it.
#[derive(Default)]
pub(in crate::cache) struct Pins {
    by_version: BTreeMap<ResourceVersion, Parts>,
    /// The number of all pins.
    count: usize,
    /// No pin is older than this. The time may be too early, if a snapshot was pinned again or
    /// evicted. It avoids a search for old pins after each change.
    not_older: Option<Instant>,
}

/// The pins of one version.
#[derive(Default)]
struct Parts {
    /// The pins by their proven selection; `None` for snapshots with all objects proven.
    pins: HashMap<Option<Arc<Selection>>, Pin>,
    /// The least of the snapshots' counters of replaced bytes.
    replaced_bytes: u64,
}

struct Pin {
    snapshot: Snapshot,
    pinned_at: Instant,
}

// === impl Pins ===

impl Pins {
    pub(in crate::cache) fn len(&self) -> usize {
        self.count
    }

    pub(in crate::cache) fn add(&mut self, snapshot: Snapshot, now: Instant) {
        self.not_older.get_or_insert(now);
        let parts = self.by_version.entry(snapshot.resource_version);
        let parts = parts.or_insert_with(|| Parts {
            replaced_bytes: snapshot.replaced_bytes,
            ..Parts::default()
        });
        parts.replaced_bytes = parts.replaced_bytes.min(snapshot.replaced_bytes);
        let proven = snapshot.proven.clone();
        let pin = Pin {
            pinned_at: now,
            snapshot,
        };
        let replaced = parts.pins.insert(proven, pin);
        self.count += usize::from(replaced.is_none());
    }

    /// Returns a snapshot that was pinned at `version` less than `max_age` ago, and has all objects
    /// of `selection` at this version.
    pub(in crate::cache) fn get(
        &self,
        version: ResourceVersion,
        selection: &Arc<Selection>,
        max_age: Duration,
        now: Instant,
    ) -> Option<Snapshot> {
        let parts = self.by_version.get(&version)?;
        let keys = [None, Some(Arc::clone(selection))];
        let mut pins = keys.iter().filter_map(|proven| parts.pins.get(proven));
        let young = pins.find(|pin| now.duration_since(pin.pinned_at) < max_age)?;
        Some(young.snapshot.clone())
    }

    /// Removes and returns the snapshots that are too old, then those of the lowest versions until
    /// the rest is within the limits. While there are too many, removes the oldest pin of the
    /// lowest version. `replaced_bytes` is the cache's current counter of replaced bytes.
    pub(in crate::cache) fn evict(
        &mut self,
        retention: Retention,
        replaced_bytes: u64,
        now: Instant,
    ) -> Vec<Snapshot> {
        let is_aged = |pinned_at| now.duration_since(pinned_at) >= retention.age;
        let mut evicted = Vec::new();
        if self.not_older.is_some_and(is_aged) {
            for parts in self.by_version.values_mut() {
                let aged = parts.pins.extract_if(|_, pin| is_aged(pin.pinned_at));
                evicted.extend(aged.map(|(_, pin)| pin.snapshot));
            }
            self.by_version.retain(|_, parts| !parts.pins.is_empty());
            self.count -= evicted.len();
            let parts = self.by_version.values();
            let pins = parts.flat_map(|parts| parts.pins.values());
            self.not_older = pins.map(|pin| pin.pinned_at).min();
        }
        while let Some(lowest) = self.by_version.first_entry() {
            let held_bytes = replaced_bytes.saturating_sub(lowest.get().replaced_bytes);
            if held_bytes <= retention.bytes as u64 {
                break;
            }
            let pins = lowest.remove().pins;
            self.count -= pins.len();
            evicted.extend(pins.into_values().map(|pin| pin.snapshot));
        }
        while self.count > MAX_PINNED
            && let Some(mut lowest) = self.by_version.first_entry()
        {
            evicted.extend(lowest.get_mut().remove_oldest());
            if lowest.get().pins.is_empty() {
                lowest.remove();
            }
            self.count -= 1;
        }
        evicted
    }
}

// === impl Parts ===

impl Parts {
    fn remove_oldest(&mut self) -> Option<Snapshot> {
        let oldest = self.pins.iter().min_by_key(|(_, pin)| pin.pinned_at);
        let proven = oldest.map(|(proven, _)| proven.clone())?;
        self.pins.remove(&proven).map(|pin| pin.snapshot)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::LabelSelector;
    use crate::cache::objects::store::Store;
    use crate::cache::tests::support::config;

    fn part(number: usize) -> Snapshot {
        let labels = format!("n={number}");
        let selection = Selection {
            labels: LabelSelector::parse(&labels).expect("a selector"),
            ..Selection::default()
        };
        Snapshot {
            store: Arc::new(Store::new(&config())),
            resource_version: ResourceVersion::ZERO,
            changed: ResourceVersion::ZERO,
            epoch: 0,
            replaced_bytes: 0,
            list_began: Instant::now(),
            proven: Some(Arc::new(selection)),
        }
    }

    #[test]
    fn one_selection_too_many_ends_only_the_oldest_pin() {
        let (mut pins, start) = (Pins::default(), Instant::now());
        let retention = Retention {
            age: Duration::from_secs(75),
            events: 0,
            bytes: 1 << 20,
        };
        let at = |number: usize| start + Duration::from_millis(number as u64);
        for number in 0..MAX_PINNED + 2 {
            pins.add(part(number), at(number));
            let evicted = pins.evict(retention, 0, at(number));
            assert_eq!(evicted.len(), usize::from(number >= MAX_PINNED));
        }
        let found = |number| {
            let proven = part(number).proven.expect("a part");
            let now = at(MAX_PINNED + 2);
            pins.get(ResourceVersion::ZERO, &proven, retention.age, now)
        };
        assert!(found(0).is_none() && found(1).is_none());
        assert!((2..MAX_PINNED + 2).all(|number| found(number).is_some()));
        assert_eq!(pins.len(), MAX_PINNED);
    }
}
