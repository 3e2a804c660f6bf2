//! Housekeeping: what the writer does after it has woken the streams. It drops what exceeds the
//! retention, and copies the bodies of objects out of frames that the log has dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::cache::groups::DROPPED_AT_ONCE;
use crate::cache::log::{Event, Retention};
use crate::cache::write::pace::CHECKED_AT_ONCE;
use crate::cache::write::writer::{Housekeeping, Writer};
use crate::mutation;
use crate::mutation::Mutation;

/// Aged events are evicted after this number of changes, or after a part of the retention age,
/// whichever comes first. So most changes do not take the locks that an eviction needs.
const EVICTED_TOGETHER: usize = 32;
/// How many of these parts the retention age has.
const EVICTIONS_PER_AGE: u32 = 64;
/// Number of events that one critical section evicts. It limits the pause of readers.
pub(super) const EVICTED_AT_ONCE: usize = 64;
/// A bookmark drops idle groups, and copies bodies, in at most this number of slices each, which
/// take some milliseconds together. On a quiet resource only bookmarks arrive, and this work delays
/// no client.
const SLICES_OF_BOOKMARK: usize = 16;
/// Number of stored objects that one critical section replaces.
const DETACHED_IN_ONE_SECTION: usize = 8;

/// What one critical section has evicted.
pub(super) struct Evicted {
    pub(super) events: Vec<Arc<Event>>,
    /// The number of queue entries that were visited: a group counts once for each event that left
    /// its queue.
    pub(super) queues: usize,
    pub(super) has_more_events: bool,
    pub(super) has_more_groups: bool,
}

// === impl Writer ===

impl Writer {
    /// Does what the changes since the last call have left to do.
    pub(super) fn housekeep(&mut self) {
        let Some(housekeeping) = self.housekeeping.take() else {
            return;
        };
        let Housekeeping {
            retention,
            exceeds_bytes,
            is_change,
            applied_at,
            before,
        } = housekeeping;
        // First, so that the copied bodies are stored without a copy of shared parts of the store.
        drop(before);
        let slices = if is_change { 1 } else { SLICES_OF_BOOKMARK };
        let is_due = self.has_more_idle || self.is_eviction_due(retention, applied_at);
        if !is_change || exceeds_bytes || is_due {
            self.unevicted = 0;
            self.evicted_at = applied_at;
            let evicted = self.evict(retention, applied_at, slices);
            self.add_frame_backed(&evicted);
        }
        for _ in 0..slices {
            if !self.detach_bodies(is_change) {
                break;
            }
        }
        drop(self.shared.evict_pins(retention, applied_at));
    }

    /// Returns true if enough changes or time have passed since the last eviction.
    fn is_eviction_due(&self, retention: Retention, now: Instant) -> bool {
        let interval = retention.age / EVICTIONS_PER_AGE;
        self.unevicted >= EVICTED_TOGETHER || now.duration_since(self.evicted_at) >= interval
    }

    /// Adds the stored objects of events that the log evicted to those whose bodies will be copied.
    pub(super) fn add_frame_backed(&mut self, evicted: &[Arc<Event>]) {
        if evicted.is_empty() {
            return;
        }
        let (content, tip) = {
            let state = self.shared.state.read();
            (state.content.clone(), state.log.tip())
        };
        if let Some(content) = content {
            self.frame_backed.extend(evicted, &content.store, tip);
        }
    }

    /// Returns the number of objects whose bodies may be copied later.
    #[cfg(test)]
    pub(in crate::cache) fn frame_backed_objects(&self) -> usize {
        self.frame_backed.len()
    }

    /// Copies the bodies of the next objects that still hold an evicted frame, so that the frame
    /// can be freed. No reader sees a difference. Returns false if no object is next.
    ///
    /// With `waits`, objects are left for later if the log still has events from before they were
    /// evicted: objects that change often are replaced by then, and need no copy.
    pub(super) fn detach_bodies(&mut self, waits: bool) -> bool {
        if self.frame_backed.is_empty() || mutation::is_active(Mutation::FramesKept) {
            return false;
        }
        let (detached, has_more) = {
            let state = self.shared.state.read();
            let Some(content) = &state.content else {
                return false;
            };
            let tip = if waits { state.log.first() } else { u64::MAX };
            let detached = self.frame_backed.detach_bodies(&content.store, tip);
            (detached, self.frame_backed.has_added_by(tip))
        };
        // Only this writer changes the objects, so they are still stored.
        for slice in detached.chunks(DETACHED_IN_ONE_SECTION) {
            // The replaced objects are freed after the lock is released.
            let mut replaced = Vec::with_capacity(slice.len());
            let mut state = self.shared.state.write();
            let Some(content) = &mut state.content else {
                return false;
            };
            let store = Arc::make_mut(&mut content.store);
            for object in slice {
                replaced.extend(store.replace(Arc::clone(object)));
            }
            let bytes: usize = replaced.iter().map(|object| object.size()).sum();
            let counter = &self.shared.replaced_bytes;
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        has_more
    }

    /// Drops what exceeds `retention` from the log, then from the groups' queues, a few events per
    /// critical section. Returns the dropped events. Groups that were idle for too long are dropped
    /// in up to `idle_slices` critical sections; if there are more, the next change drops some of
    /// them.
    fn evict(
        &mut self,
        retention: Retention,
        now: Instant,
        mut idle_slices: usize,
    ) -> Vec<Arc<Event>> {
        let mut evicted = Vec::new();
        loop {
            let slice = self.evict_slice(retention, now, EVICTED_AT_ONCE);
            evicted.extend(slice.events);
            idle_slices = idle_slices.saturating_sub(1);
            let is_done = !slice.has_more_groups || idle_slices == 0;
            if is_done && !slice.has_more_events {
                self.has_more_idle = slice.has_more_groups;
                return evicted;
            }
        }
    }

    /// Drops up to `at_once` events and some idle groups, in one critical section each.
    pub(super) fn evict_slice(
        &mut self,
        retention: Retention,
        now: Instant,
        at_once: usize,
    ) -> Evicted {
        let (events, first) = {
            let mut state = self.shared.state.write();
            let applied = state.applied().unwrap_or_default();
            let events = state.log.evict(retention, now, at_once, applied);
            (events, state.log.first())
        };
        let ((queues, has_more), idle) = {
            let mut interest = self.shared.interest.lock();
            let evicted = interest.evict(first, CHECKED_AT_ONCE);
            (evicted, interest.remove_idle(now))
        };
        Evicted {
            has_more_events: has_more || events.len() == at_once,
            has_more_groups: idle.len() == DROPPED_AT_ONCE,
            queues,
            events,
        }
    }
}
