//! The bridge that all watches of one selection share, and its writer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::bridged_watch::BridgedWatch;
use super::gap::Gap;
use super::state::{BridgeProgress, BridgeTotals, Phase, SharedBridge};
use crate::api::{EventType, Object, ResourceVersion, Status};
use crate::cache::log::{Event, Retention};
use crate::cache::watch::LogReach;

/// The events of one short upstream watch, for all clients of a selection that need them.
pub struct Bridge {
    shared: Arc<SharedBridge>,
}

/// Write access to one bridge. Dropping the writer empties the buffer; a bridge that is not
/// complete then ends with 410.
pub struct BridgeWriter {
    shared: Arc<SharedBridge>,
}

// === impl Bridge ===

impl Bridge {
    /// Creates a bridge for the `gap` of its first watch. Returns the writer, the bridge
    /// and that watch. The buffers of all bridges that share `totals` may hold
    /// `buffer_limit` bytes together.
    pub fn new(
        gap: Gap,
        totals: Arc<BridgeTotals>,
        buffer_limit: usize,
    ) -> (BridgeWriter, Arc<Self>, BridgedWatch) {
        let shared = Arc::new(SharedBridge::new(&gap, totals, buffer_limit));
        let writer = BridgeWriter {
            shared: Arc::clone(&shared),
        };
        let receiver = shared.changes.subscribe();
        let watch = BridgedWatch::new(&shared, gap, receiver);
        (writer, Arc::new(Self { shared }), watch)
    }

    /// Opens a watch of this bridge that closes `gap`.
    ///
    /// # Errors
    ///
    /// The gap, if the bridge cannot close it, because the bridge starts at a later
    /// version or has ended.
    pub fn watch(&self, gap: Gap) -> Result<BridgedWatch, Gap> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let has_events = state.log.expired(gap.version).is_none();
        let can_close = match state.phase {
            Phase::Gathering => true,
            Phase::Open => has_events,
            Phase::Complete => {
                let is_served = || shared.epoch.reach(state.reached) == LogReach::Served;
                has_events && gap.version <= state.reached && is_served()
            }
            Phase::Failed | Phase::Closed => false,
        };
        if !can_close || !gap.epoch.is(&shared.epoch) {
            return Err(gap);
        }
        state.versions.insert(gap.version);
        let receiver = shared.changes.subscribe();
        Ok(BridgedWatch::new(shared, gap, receiver))
    }
}

// === impl BridgeWriter ===

impl BridgeWriter {
    /// Ends the gathering, and returns the version that the upstream watch must start from: the
    /// oldest version of all watches.
    pub fn open(&self) -> ResourceVersion {
        self.shared.update(|state| {
            let oldest = state.versions.first().copied();
            state.start_at(oldest.unwrap_or(state.reached));
            state.phase = Phase::Open;
            state.reached
        })
    }

    /// Handles the upstream's 410 for a watch after the version that the bridge has reached. Gives
    /// up the `count` oldest versions, and returns the version that the next upstream watch must
    /// start from. Returns `None` if no version is left, or if some events were delivered already.
    pub fn refuse(&self, status: Status, count: usize) -> Option<ResourceVersion> {
        self.shared.update(|state| {
            let has_begun = state.log.tip() > 0 || Some(&state.reached) != state.versions.first();
            let given_up = if has_begun {
                state.versions.len()
            } else {
                count
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

    /// Adds an event of the upstream watch with its `frame`. An event with a version below the
    /// reached one belongs to another history, and ends the bridge.
    pub fn push(&self, event_type: EventType, object: Object, frame: Bytes) -> BridgeProgress {
        let retention = Retention {
            age: Duration::MAX,
            events: 0,
            bytes: self.shared.buffer_limit,
        };
        let now = Instant::now();
        let (evicted, progress) = self.shared.update(|state| {
            let version = object.resource_version;
            if version < state.reached {
                state.phase = Phase::Failed;
                return (Vec::new(), BridgeProgress::Done);
            }
            let shares_versions = self.shared.epoch.shares_versions();
            if shares_versions {
                // More changes of this version may come, so the bridge has only those before.
                let before = ResourceVersion(version.0.saturating_sub(1)).max(state.reached);
                if state.log.newest() < Some(version)
                    && self.shared.advance(state, before) == BridgeProgress::Done
                {
                    return (Vec::new(), BridgeProgress::Done);
                }
                if state.log.has(event_type, &object) {
                    return (Vec::new(), BridgeProgress::Continue);
                }
            }
            let frame = Some((event_type, frame));
            let event = Event::new(event_type, Arc::new(object), None, frame);
            let mut entries = state.log.new_entries(1);
            entries.push(&Arc::new(event));
            state.log.append(entries, now);
            // Its watches begin with no snapshot, so events of the open version need not stay.
            let evict_all = ResourceVersion(u64::MAX);
            let evicted = state.log.evict(retention, now, usize::MAX, evict_all);
            if !shares_versions {
                return (evicted, self.shared.advance(state, version));
            }
            if evicted
                .iter()
                .any(|event| event.resource_version == version)
            {
                // They could not be recognized if another upstream watch repeated them.
                state.phase = Phase::Failed;
                return (evicted, BridgeProgress::Done);
            }
            (evicted, BridgeProgress::Continue)
        });
        drop(evicted);
        progress
    }

    /// Handles a bookmark of the upstream watch: all events up to `version` were delivered.
    pub fn bookmark(&self, version: ResourceVersion) -> BridgeProgress {
        self.shared.update(|state| {
            if version < state.reached {
                BridgeProgress::Continue
            } else {
                self.shared.advance(state, version)
            }
        })
    }

    /// Returns the reached version: the bridge has all events up to it. If the upstream watch ends,
    /// the next one must start from this version.
    pub fn reached(&self) -> ResourceVersion {
        self.shared.state.lock().reached
    }

    /// Returns true if several changes may have one version, and no bookmarks come.
    pub fn shares_versions(&self) -> bool {
        self.shared.epoch.shares_versions()
    }

    /// Returns true if watches can continue from the log. The buffer still serves watches that are
    /// opened later.
    pub fn is_complete(&self) -> bool {
        self.shared.state.lock().phase == Phase::Complete
    }

    /// Returns true if this is the writer of `bridge`.
    pub fn is_of(&self, bridge: &Arc<Bridge>) -> bool {
        Arc::ptr_eq(&self.shared, &bridge.shared)
    }

    /// Waits until no watch reads the bridge, and then accepts no more watches. Cancel safe.
    pub async fn abandoned(&self) {
        loop {
            self.shared.changes.closed().await;
            let mut state = self.shared.state.lock();
            // A watch may have been opened since.
            if self.shared.changes.receiver_count() == 0 {
                state.phase = Phase::Failed;
                return;
            }
        }
    }
}

impl Drop for BridgeWriter {
    fn drop(&mut self) {
        let evicted = self.shared.update(|state| {
            if matches!(state.phase, Phase::Gathering | Phase::Open) {
                state.phase = Phase::Failed;
            }
            let newest = state.log.newest().unwrap_or_default();
            state.log.forget(state.reached.max(newest))
        });
        drop(evicted);
    }
}
