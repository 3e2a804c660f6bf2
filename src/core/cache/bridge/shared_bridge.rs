//! The bridge that all watches of one selection share, and its writer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::bridged_watch::BridgedWatch;
use super::gap::{CacheEpoch, Gap};
use crate::api::{EventType, Object, ResourceVersion, Status};
use crate::cache::log::{Event, EventLog, EvictedBytes, LogBytes, Retention};
use crate::cache::watch::LogReach;

/// The bytes of events and counts of watches of all bridges that share this value.
#[derive(Debug, Default)]
pub struct BridgeTotals {
    /// Bytes of the buffered events.
    buffered: Arc<LogBytes>,
    pub(super) joined: AtomicU64,
    pub(super) expired: AtomicU64,
}

/// The events of one short upstream watch, for all clients of a selection that need them.
pub struct Bridge {
    pub(super) state: Mutex<State>,
    /// Signals each change of `state`; each watch has a receiver.
    pub(super) changes: watch::Sender<()>,
    epoch: CacheEpoch,
    pub(super) totals: Arc<BridgeTotals>,
    buffer_limit: usize,
}

pub(super) struct State {
    pub(super) log: EventLog,
    pub(super) phase: Phase,
    /// The version up to which the upstream watch has delivered everything.
    pub(super) reached: ResourceVersion,
    /// The versions of all watches, except those that the upstream has refused.
    versions: BTreeSet<ResourceVersion>,
    /// The upstream's last 410, and the newest version that it concerns.
    refusal: Option<(ResourceVersion, Status)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The upstream watch was not opened yet, so its start can still become older.
    Gathering,
    /// The upstream watch is open.
    Open,
    /// All watches can continue from the log at `State::reached`.
    Complete,
    /// The watches that did not get all events get 410.
    Failed,
    /// The cache was closed, so the watches end.
    Closed,
}

/// Whether a bridge needs more of the upstream watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeProgress {
    /// The bridge needs the next event or bookmark.
    Continue,
    /// The bridge is complete, or cannot continue.
    Done,
}

/// Write access to one bridge. Dropping it empties the buffer, and a bridge that is not complete
/// ends with 410.
pub struct BridgeWriter {
    bridge: Arc<Bridge>,
}

// === impl BridgeTotals ===

impl BridgeTotals {
    /// Totals that count the bytes of evicted events in `evicted`.
    pub fn new(evicted: EvictedBytes) -> Self {
        Self {
            buffered: Arc::new(LogBytes::new(evicted)),
            ..Self::default()
        }
    }

    /// Bytes of the events that all bridges have buffered.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered.retained()
    }

    /// Number of watches that have continued from a log after a bridge.
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// Number of watches that got 410 although there was a bridge for them.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }
}

// === impl Bridge ===

impl Bridge {
    /// A bridge for the gap of a first watch, and that watch. The buffers of all bridges with the
    /// same `totals` may hold `buffer_limit` bytes together.
    pub fn new(
        gap: Gap,
        totals: Arc<BridgeTotals>,
        buffer_limit: usize,
    ) -> (BridgeWriter, Arc<Self>, BridgedWatch) {
        let state = State {
            log: EventLog::new(gap.version, Arc::clone(&totals.buffered)),
            phase: Phase::Gathering,
            reached: gap.version,
            versions: BTreeSet::from([gap.version]),
            refusal: None,
        };
        let (changes, receiver) = watch::channel(());
        let bridge = Arc::new(Self {
            state: Mutex::new(state),
            changes,
            epoch: gap.epoch.clone(),
            totals,
            buffer_limit,
        });
        let writer = BridgeWriter {
            bridge: Arc::clone(&bridge),
        };
        let watch = BridgedWatch::new(&bridge, gap, receiver);
        (writer, bridge, watch)
    }

    /// A watch of this bridge that closes `gap`.
    ///
    /// # Errors
    ///
    /// The gap, if the bridge cannot close it, because it starts later or has ended.
    pub fn watch(self: &Arc<Self>, gap: Gap) -> Result<BridgedWatch, Gap> {
        let mut state = self.state.lock();
        let has_events = state.log.expired(gap.version).is_none();
        let can_close = match state.phase {
            Phase::Gathering => true,
            Phase::Open => has_events,
            Phase::Complete => {
                let is_served = || self.epoch.reach(state.reached) == LogReach::Served;
                has_events && gap.version <= state.reached && is_served()
            }
            Phase::Failed | Phase::Closed => false,
        };
        if !can_close || !gap.epoch.is(&self.epoch) {
            return Err(gap);
        }
        state.versions.insert(gap.version);
        let receiver = self.changes.subscribe();
        Ok(BridgedWatch::new(self, gap, receiver))
    }

    /// Changes the state, and then signals the change to all watches.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changes.send_replace(());
        result
    }

    /// The phase and the progress when the upstream watch has reached `version`.
    fn advance(&self, state: &mut State, version: ResourceVersion) -> BridgeProgress {
        state.reached = version;
        let is_above_all = state.versions.last().is_none_or(|last| *last <= version);
        state.phase = match self.epoch.reach(version) {
            LogReach::Served if is_above_all => Phase::Complete,
            LogReach::Served | LogReach::Missing => return BridgeProgress::Continue,
            LogReach::Expired(_) => Phase::Failed,
            LogReach::Closed => Phase::Closed,
        };
        BridgeProgress::Done
    }
}

// === impl State ===

impl State {
    /// The 410 for the watch of `gap`: the upstream's own, if it concerns this watch.
    pub(super) fn expired(&self, gap: &Gap) -> Status {
        match &self.refusal {
            Some((refused, status)) if gap.version <= *refused => status.clone(),
            _ => gap.expired(),
        }
    }
}

// === impl BridgeWriter ===

impl BridgeWriter {
    /// Ends the gathering, and returns the version after which the upstream watch must start: the
    /// oldest one of all watches.
    pub fn open(&self) -> ResourceVersion {
        self.bridge.update(|state| {
            let oldest = state.versions.first().copied();
            state.start_at(oldest.unwrap_or(state.reached));
            state.phase = Phase::Open;
            state.reached
        })
    }

    /// Handles the upstream's 410 for a watch after the version that the bridge has reached. Gives
    /// up the `count` oldest versions, and returns the version after which the next upstream watch
    /// must start. `None` if no version is left, or if some events were delivered already.
    pub fn refuse(&self, status: Status, count: usize) -> Option<ResourceVersion> {
        self.bridge.update(|state| {
            let has_begun = state.log.tip() > 0 || Some(&state.reached) != state.versions.first();
            let given_up = match has_begun {
                true => state.versions.len(),
                false => count,
            };
            let mut refused = state.reached;
            for _ in 0..given_up {
                refused = state.versions.pop_first().unwrap_or(refused);
            }
            state.refusal = Some((refused, status));
            let Some(next) = state.versions.first().copied() else {
                state.phase = Phase::Failed;
                return None;
            };
            state.start_at(next);
            Some(next)
        })
    }

    /// Adds an event of the upstream watch with its `frame`. An event below the version that was
    /// reached is of another history, and ends the bridge.
    pub fn push(&self, event_type: EventType, object: Object, frame: Bytes) -> BridgeProgress {
        let retention = Retention {
            age: Duration::MAX,
            events: 0,
            bytes: self.bridge.buffer_limit,
        };
        let now = Instant::now();
        let (evicted, progress) = self.bridge.update(|state| {
            let version = object.resource_version;
            if version < state.reached {
                state.phase = Phase::Failed;
                return (Vec::new(), BridgeProgress::Done);
            }
            let frame = Some((event_type, frame));
            let event = Event::new(event_type, Arc::new(object), None, frame);
            let mut entries = state.log.new_entries(1);
            entries.push(&Arc::new(event));
            state.log.append(entries, now);
            let evicted = state.log.evict(retention, now, usize::MAX);
            (evicted, self.bridge.advance(state, version))
        });
        drop(evicted);
        progress
    }

    /// Handles a bookmark of the upstream watch: all events up to `version` were delivered.
    pub fn bookmark(&self, version: ResourceVersion) -> BridgeProgress {
        self.bridge.update(|state| match version < state.reached {
            true => BridgeProgress::Continue,
            false => self.bridge.advance(state, version),
        })
    }

    /// The version up to which all events were delivered, after which a new upstream watch must
    /// start if the old one ended.
    pub fn reached(&self) -> ResourceVersion {
        self.bridge.state.lock().reached
    }

    /// True if watches can continue from the log. The buffer still serves watches that come later.
    pub fn is_complete(&self) -> bool {
        self.bridge.state.lock().phase == Phase::Complete
    }

    /// True if this is the writer of `bridge`.
    pub fn is_of(&self, bridge: &Arc<Bridge>) -> bool {
        Arc::ptr_eq(&self.bridge, bridge)
    }

    /// Waits until no watch reads the bridge, and then accepts no more watches. Cancel safe.
    pub async fn abandoned(&self) {
        loop {
            self.bridge.changes.closed().await;
            let mut state = self.bridge.state.lock();
            // A watch may have been opened since.
            if self.bridge.changes.receiver_count() == 0 {
                state.phase = Phase::Failed;
                return;
            }
        }
    }
}

impl State {
    /// Starts again with an empty log, after `version`.
    fn start_at(&mut self, version: ResourceVersion) {
        self.log.restart(version);
        self.reached = version;
    }
}

impl Drop for BridgeWriter {
    fn drop(&mut self) {
        let evicted = self.bridge.update(|state| {
            if matches!(state.phase, Phase::Gathering | Phase::Open) {
                state.phase = Phase::Failed;
            }
            state.log.forget(state.reached)
        });
        drop(evicted);
    }
}
