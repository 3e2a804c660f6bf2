//! What one lock guards, and what stands around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::Config;
use crate::cache::EpochCause;
use crate::cache::Snapshot;
use crate::cache::groups::Interest;
use crate::cache::log::EventLog;
use crate::cache::log::Retention;
use crate::cache::objects::Store;
use crate::cache::wake::WakeSet;

/// Bytes of history kept at least, if no limit is configured.
const MIN_RETENTION_BYTES: usize = 64 << 20;
/// Snapshots pinned at most.
const MAX_PINNED: usize = 1024;

/// What writer and readers share.
pub(super) struct Shared {
    pub(super) config: Config,
    /// Taken before any other lock where both are.
    pub(super) state: RwLock<State>,
    pub(super) pins: Mutex<Pins>,
    /// Changes together with the log. Whoever joins at the log's tip must hold the state to know it.
    pub(super) interest: Mutex<Interest>,
    /// Those who wait for a version or the first list; streams wait in their groups.
    pub(super) wakes: WakeSet,
    /// Relists that were appended to a log so far.
    pub(super) relists: AtomicU32,
    pub(super) watchers: AtomicUsize,
    /// The newest version that a snapshot was proven to be the state at.
    pub(super) proven: AtomicU64,
}

/// Store and log: they change together.
pub(super) struct State {
    pub(super) epoch: u64,
    /// `None` while not ready.
    pub(super) content: Option<Content>,
    pub(super) log: EventLog,
    /// The newest version of any earlier epoch that a client may have.
    pub(super) abandoned: ResourceVersion,
    pub(super) is_closed: bool,
    pub(super) counters: Counters,
}

/// The objects, and the resource version whose state they are.
#[derive(Clone)]
pub(super) struct Content {
    pub(super) store: Arc<Store>,
    pub(super) applied: ResourceVersion,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) events: u64,
    pub(super) evicted_early: u64,
    pub(super) relists: u64,
    pub(super) epochs: u64,
    pub(super) last_epoch_cause: Option<EpochCause>,
    /// Bytes of the objects that were replaced or deleted since the start.
    pub(super) replaced_bytes: u64,
}

/// Snapshots kept for exact reads, by resource version.
#[derive(Default)]
pub(super) struct Pins(BTreeMap<ResourceVersion, Pin>);

struct Pin {
    snapshot: Snapshot,
    pinned: Instant,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            state: RwLock::new(State {
                epoch: 0,
                content: None,
                log: EventLog::new(ResourceVersion::ZERO),
                abandoned: ResourceVersion::ZERO,
                is_closed: false,
                counters: Counters::default(),
            }),
            pins: Mutex::default(),
            interest: Mutex::default(),
            wakes: WakeSet::default(),
            relists: AtomicU32::new(0),
            watchers: AtomicUsize::new(0),
            proven: AtomicU64::new(0),
        }
    }

    /// What log and pins may hold beside a store of `store_bytes`.
    pub(super) fn retention(&self, store_bytes: usize) -> Retention {
        let default = || MIN_RETENTION_BYTES.max(store_bytes.saturating_mul(2));
        Retention {
            age: self.config.retention_age,
            events: self.config.retention_events,
            bytes: self.config.retention_bytes.unwrap_or_else(default),
        }
    }
}

// === impl State ===

impl State {
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let content = self.content.as_ref()?;
        Some(Snapshot {
            store: content.store.clone(),
            resource_version: content.applied,
            epoch: self.epoch,
            replaced_bytes: self.counters.replaced_bytes,
        })
    }

    pub(super) fn applied(&self) -> Option<ResourceVersion> {
        self.content.as_ref().map(|content| content.applied)
    }
}

// === impl Pins ===

impl Pins {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, snapshot: Snapshot, now: Instant) {
        let pin = Pin {
            pinned: now,
            snapshot,
        };
        self.0.insert(pin.snapshot.resource_version, pin);
    }

    /// The snapshot pinned at `version` less than `max_age` ago.
    pub(super) fn get(
        &self,
        version: ResourceVersion,
        max_age: Duration,
        now: Instant,
    ) -> Option<Snapshot> {
        let pin = self.0.get(&version)?;
        let is_young = now.duration_since(pin.pinned) < max_age;
        is_young.then(|| pin.snapshot.clone())
    }

    /// Takes all out, for the caller to drop outside of its locks.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Takes out what `retention` doesn't allow: by age, then the oldest by bytes and count.
    pub(super) fn evict(
        &mut self,
        retention: Retention,
        replaced_bytes: u64,
        now: Instant,
    ) -> Vec<Snapshot> {
        let is_aged = |pin: &Pin| now.duration_since(pin.pinned) >= retention.age;
        let aged = self.0.extract_if(.., |_, pin| is_aged(pin));
        let mut evicted: Vec<_> = aged.map(|(_, pin)| pin.snapshot).collect();
        while let Some(pin) = self.0.first_entry() {
            let held = replaced_bytes.saturating_sub(pin.get().snapshot.replaced_bytes);
            if held <= retention.bytes as u64 && self.0.len() <= MAX_PINNED {
                break;
            }
            evicted.extend(self.0.pop_first().map(|(_, pin)| pin.snapshot));
        }
        evicted
    }
}
