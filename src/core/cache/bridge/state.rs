//! The state that a bridge shares with its writer and its watches, and the totals of all bridges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::gap::{CacheEpoch, Gap};
use crate::api::{ResourceVersion, Status};
use crate::cache::log::{EventLog, EvictedBytes, LogBytes};
use crate::cache::watch::LogReach;

/// The bytes of events and counts of watches of all bridges that share this value.
#[derive(Debug, Default)]
pub struct BridgeTotals {
    /// Bytes of the buffered events.
    buffered: Arc<LogBytes>,
    pub(super) joined: AtomicU64,
    pub(super) expired: AtomicU64,
}

/// What a bridge, its writer and its watches share.
pub(super) struct SharedBridge {
    pub(super) state: Mutex<State>,
    /// Signals each change of `state`; each watch has a receiver.
    pub(super) changes: watch::Sender<()>,
    pub(super) epoch: CacheEpoch,
    pub(super) totals: Arc<BridgeTotals>,
    pub(super) buffer_limit: usize,
}

pub(super) struct State {
    pub(super) log: EventLog,
    pub(super) phase: Phase,
    /// The upstream watch has delivered everything up to this version.
    pub(super) reached: ResourceVersion,
    /// The versions of all watches, except those that the upstream has refused.
    pub(super) versions: BTreeSet<ResourceVersion>,
    /// The upstream's last 410, and the newest version that it refused.
    pub(super) refusal: Option<(ResourceVersion, Status)>,
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
    /// The bridge has reached the cache's event log, or cannot continue.
    Done,
}

// === impl BridgeTotals ===

impl BridgeTotals {
    /// Creates totals that count the bytes of evicted events in `evicted`.
    pub fn new(evicted: EvictedBytes) -> Self {
        Self {
            buffered: Arc::new(LogBytes::new(evicted)),
            ..Self::default()
        }
    }

    /// Returns the number of bytes of the events that all bridges have buffered.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered.retained()
    }

    /// Returns the number of watches that have continued from a log after a bridge.
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// Returns the number of watches that got 410 although there was a bridge for them.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }
}

// === impl SharedBridge ===

impl SharedBridge {
    /// Returns the state for a first watch, which closes `gap`.
    pub(super) fn new(gap: &Gap, totals: Arc<BridgeTotals>, buffer_limit: usize) -> Self {
        let state = State {
            log: EventLog::new(gap.version, Arc::clone(&totals.buffered)),
            phase: Phase::Gathering,
            reached: gap.version,
            versions: BTreeSet::from([gap.version]),
            refusal: None,
        };
        Self {
            state: Mutex::new(state),
            changes: watch::Sender::new(()),
            epoch: gap.epoch.clone(),
            totals,
            buffer_limit,
        }
    }

    /// Changes the state, and then signals the change to all watches.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changes.send_replace(());
        result
    }

    /// Returns the phase and the progress when the upstream watch has reached `version`.
    pub(super) fn advance(&self, state: &mut State, version: ResourceVersion) -> BridgeProgress {
        state.reached = version;
        let is_above_all = state.versions.last().is_none_or(|last| *last <= version);
        state.phase = match self.epoch.reach(version) {
            LogReach::Served if is_above_all => Phase::Complete,
            LogReach::Served | LogReach::Missing => return BridgeProgress::Continue,
            LogReach::Expired => Phase::Failed,
            LogReach::Closed => Phase::Closed,
        };
        BridgeProgress::Done
    }
}

// === impl State ===

impl State {
    /// Returns the 410 for the watch of `gap`: the upstream's 410 if it refused the watch's
    /// version, otherwise a new one.
    pub(super) fn expired(&self, gap: &Gap) -> Status {
        match &self.refusal {
            Some((refused, status)) if gap.version <= *refused => status.clone(),
            _ => gap.expired(),
        }
    }

    /// Starts again with an empty log, after `version`.
    pub(super) fn start_at(&mut self, version: ResourceVersion) {
        self.log.restart(version);
        self.reached = version;
    }
}
