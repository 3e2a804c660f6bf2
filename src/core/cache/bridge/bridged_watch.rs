//! BridgedWatch: one client's watch while it gets its events from a bridge.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::gap::Gap;
use super::state::{Phase, SharedBridge};
use crate::api::{ResourceVersion, Status};
use crate::cache::log::{Batch, Event};
use crate::cache::watch::{LogReach, WatchStream};
use crate::concurrency::CoopBudget;
use crate::mutation;
use crate::mutation::Mutation;

/// Maximum number of events that a watch fetches in one step.
const BATCH: usize = 64;
/// Budget units of an event that the watch examines, as for a [`WatchStream`].
const UNITS_PER_EXAMINED: usize = CoopBudget::UNITS / 2048;

/// The watch of a client with a version that the log does not serve, until it can
/// continue from the log.
pub struct BridgedWatch {
    shared: Arc<SharedBridge>,
    changes: watch::Receiver<()>,
    gap: Gap,
    /// The position of the next event to fetch; `None` before the first one.
    next: Option<u64>,
    batch: Batch,
    /// The version of the last event that was returned, or the client's own.
    seen: ResourceVersion,
    /// Limits the work between two yields: the search for one event of the client's shard may
    /// examine thousands of others.
    budget: CoopBudget,
}

/// One item of a [`BridgedWatch`].
pub enum BridgeItem {
    /// An event after the client's version, as the upstream sent it. Its type is the verdict.
    Change(Arc<Event>),
    /// The client has everything up to a version that the log serves. This is the last item.
    Joined {
        /// The changes after that version.
        stream: Box<WatchStream>,
        /// The version, if it is above the last event's: it can be sent as a bookmark.
        bookmark: Option<ResourceVersion>,
    },
    /// The watch cannot continue; the client gets this Status, a 410. This is the last item.
    Expired(Box<Status>),
    /// The cache was closed. This is the last item.
    Closed,
}

enum Step {
    Fetched,
    Wait,
    Join(ResourceVersion),
    Last(BridgeItem),
}

// === impl BridgedWatch ===

impl BridgedWatch {
    pub(super) fn new(shared: &Arc<SharedBridge>, gap: Gap, changes: watch::Receiver<()>) -> Self {
        Self {
            shared: Arc::clone(shared),
            changes,
            seen: gap.version,
            gap,
            next: None,
            batch: Batch::default(),
            budget: CoopBudget::new(),
        }
    }

    /// Returns the watch's [`WatchStream::limited_units`].
    pub fn limited_units(&self) -> usize {
        self.gap.limited_units()
    }

    /// Waits for the next item; call it until it returns the last one. Cancel safe.
    ///
    /// The wait is limited by the task that has the bridge's
    /// [`BridgeWriter`](crate::cache::BridgeWriter).
    pub async fn next(&mut self) -> BridgeItem {
        loop {
            // Before an event is taken, so that none is lost if the caller stops waiting here.
            self.budget.proceed().await;
            if let Some((event, _)) = self.batch.pop_front() {
                self.budget.charge(UNITS_PER_EXAMINED);
                if !self.gap.is_of_shard(&event) {
                    continue;
                }
                self.seen = event.resource_version;
                return BridgeItem::Change(event);
            }
            // Mark the newest change as seen before reading the state, not after it.
            self.changes.borrow_and_update();
            let last = match self.step() {
                Step::Fetched => continue,
                Step::Wait => match self.changes.changed().await {
                    Ok(()) => continue,
                    Err(_) => BridgeItem::Closed,
                },
                Step::Join(version) => self.join(version),
                Step::Last(item) => item,
            };
            let totals = &self.shared.totals;
            match last {
                BridgeItem::Joined { .. } => totals.joined.fetch_add(1, Ordering::Relaxed),
                BridgeItem::Expired(_) => totals.expired.fetch_add(1, Ordering::Relaxed),
                BridgeItem::Change(_) | BridgeItem::Closed => 0,
            };
            return last;
        }
    }

    /// Fetches the next events, or decides what happens at the end of the buffer.
    fn step(&mut self) -> Step {
        let state = self.shared.state.lock();
        if state.phase == Phase::Gathering {
            return Step::Wait;
        }
        // The start is looked up again until an event was fetched: after a refusal, the upstream
        // watch begins at another version.
        let next = match self.next {
            Some(next) => Ok(next),
            None if mutation::is_active(Mutation::BridgeRepeatsKnown) => Ok(state.log.first()),
            None => state.log.position_after(self.gap.version),
        };
        let read = |next| state.log.read(next, BATCH, &mut self.batch);
        let fetched = next.ok().and_then(read);
        if !self.batch.is_empty() {
            self.next = fetched;
            return Step::Fetched;
        }
        match (fetched, state.phase) {
            (None, _) | (_, Phase::Failed) => {
                Step::Last(BridgeItem::Expired(Box::new(state.expired(&self.gap))))
            }
            (_, Phase::Gathering | Phase::Open) => Step::Wait,
            (_, Phase::Complete) => Step::Join(state.reached),
            (_, Phase::Closed) => Step::Last(BridgeItem::Closed),
        }
    }

    fn join(&self, version: ResourceVersion) -> BridgeItem {
        match self.gap.join(version) {
            Ok(stream) => BridgeItem::Joined {
                stream: Box::new(stream),
                bookmark: (version > self.seen).then_some(version),
            },
            Err(_) if self.gap.epoch.reach(version) == LogReach::Closed => BridgeItem::Closed,
            // The epoch has ended, or the log has dropped events after the version in the meantime.
            Err(expired) => {
                let status = Status::expired_watch(expired.requested, expired.oldest);
                BridgeItem::Expired(Box::new(status))
            }
        }
    }
}
