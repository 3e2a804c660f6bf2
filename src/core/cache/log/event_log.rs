//! EventLog: the recent changes in order, and the resource versions that a watch can start from.
//!
//! The log is limited by age and by bytes; the byte limit has priority. Each event has a position:
//! the number of events before it in its epoch.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::api::{EventType, Object, ResourceVersion};
use crate::cache::log::batch::{Batch, batch_length};
use crate::cache::log::charge::LogBytes;
use crate::cache::log::event::Event;
use crate::cache::log::expired::Expired;
use crate::cache::log::retention::Retention;
use crate::mutation;
use crate::mutation::Mutation;

/// The retained events of one epoch, and the holes between them.
pub(in crate::cache) struct EventLog {
    entries: VecDeque<Entry>,
    /// Position of the first entry, or of the next event if there are no entries.
    first: u64,
    /// The log retains all events after this resource version.
    start: ResourceVersion,
    /// The recorded holes, by position. A hole is removed with its first event, or by age.
    holes: VecDeque<Hole>,
    /// Bytes of all entries, including frames that were encoded after the append.
    bytes: Arc<LogBytes>,
    evicted_early: u64,
    /// The highest `Hole::list` of the holes that were removed from `holes`.
    evicted_holes_end: ResourceVersion,
}

struct Entry {
    event: Arc<Event>,
    appended_at: Instant,
}

/// Events that are ready to be appended. Creating this takes a while for a large relist,
/// so it is created before the lock is taken. The bytes of events that are never appended
/// are subtracted again.
pub(in crate::cache) struct NewEntries {
    events: Vec<Arc<Event>>,
    /// The byte counts of the log that the events will be appended to.
    bytes: Arc<LogBytes>,
}

/// A range of resource versions for which the log does not have the individual events, because a
/// relist showed only their result. The docs of [`crate::cache`] have the rules.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Hole {
    /// The resource version that was applied before the relist. It is not part of the hole.
    pub(in crate::cache) before: ResourceVersion,
    /// The resource version of the new list. It is not part of the hole.
    pub(in crate::cache) list: ResourceVersion,
    /// Position of the first event of the difference, or of the next event if nothing differed.
    position: u64,
    recorded_at: Instant,
}

// === impl EventLog ===

impl EventLog {
    /// Creates an empty log of the events after resource version `start`, which adds their bytes to
    /// `bytes`. Logs that share this value share their byte limit too.
    pub(in crate::cache) fn new(start: ResourceVersion, bytes: Arc<LogBytes>) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            start,
            holes: VecDeque::new(),
            bytes,
            evicted_early: 0,
            evicted_holes_end: ResourceVersion::ZERO,
        }
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::cache) fn bytes(&self) -> usize {
        self.bytes.retained()
    }

    pub(in crate::cache) fn start(&self) -> ResourceVersion {
        self.start
    }

    pub(in crate::cache) fn evicted_early(&self) -> u64 {
        self.evicted_early
    }

    /// Returns the position of the oldest retained event, or of the next event if the log is empty.
    pub(in crate::cache) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the position that the next appended event will have.
    pub(in crate::cache) fn tip(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns when the newest retained event was appended, or `None` if there are no events.
    pub(in crate::cache) fn newest_at(&self) -> Option<Instant> {
        self.entries.back().map(|entry| entry.appended_at)
    }

    /// Returns when the oldest retained event was appended, or `None` if there are no events.
    pub(in crate::cache) fn oldest_at(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.appended_at)
    }

    /// Returns when the event at `position` was appended; for an earlier position, that of the
    /// oldest retained event. Returns `None` if there is no such event.
    pub(in crate::cache) fn appended_at(&self, position: u64) -> Option<Instant> {
        let index = usize::try_from(position.saturating_sub(self.first)).ok()?;
        self.entries.get(index).map(|entry| entry.appended_at)
    }

    /// Makes room for `capacity` events to append.
    pub(in crate::cache) fn new_entries(&self, capacity: usize) -> NewEntries {
        NewEntries {
            events: Vec::with_capacity(capacity),
            bytes: Arc::clone(&self.bytes),
        }
    }

    /// Appends `entries`. Their age counts from `now`.
    pub(in crate::cache) fn append(&mut self, mut entries: NewEntries, now: Instant) {
        let entry = |event| Entry {
            event,
            appended_at: now,
        };
        self.entries.extend(entries.events.drain(..).map(entry));
    }

    /// Records a hole. Call this before appending the events of the relist's difference.
    pub(in crate::cache) fn open_hole(
        &mut self,
        before: ResourceVersion,
        list: ResourceVersion,
        now: Instant,
    ) {
        self.holes.push_back(Hole {
            before,
            list,
            position: self.tip(),
            recorded_at: now,
        });
    }

    /// Returns the hole that contains `version`, without its ends, if there is one. Guarded by
    /// `model_needs_starts_inside_a_hole_to_expire`.
    pub(in crate::cache) fn hole_around(&self, version: ResourceVersion) -> Option<&Hole> {
        if mutation::is_active(Mutation::HoleServed) {
            return None;
        }
        let surrounds = |hole: &&Hole| hole.before < version && version < hole.list;
        self.holes.iter().find(surrounds)
    }

    /// Returns the position of the first event that a client needs if it has seen
    /// everything up to `start`.
    pub(in crate::cache) fn position_after(&self, start: ResourceVersion) -> Result<u64, Expired> {
        if let Some(expired) = self.expired(start) {
            return Err(expired);
        }
        let known = |entry: &Entry| entry.event.is_known_at(start);
        Ok(self.first + self.entries.partition_point(known) as u64)
    }

    /// Returns the position of the first event above `applied`. Such events belong to the open
    /// version.
    pub(in crate::cache) fn position_of_open(&self, applied: ResourceVersion) -> u64 {
        let is_open = |entry: &&Entry| entry.event.resource_version > applied;
        let open = self.entries.iter().rev().take_while(is_open).count();
        self.tip() - open as u64
    }

    /// Returns true if the log has this change of `object`, which has the newest version.
    pub(in crate::cache) fn has(&self, event_type: EventType, object: &Object) -> bool {
        let newest_first = self.entries.iter().rev().map(|entry| &*entry.event);
        newest_first
            .take_while(|event| event.resource_version == object.resource_version)
            .any(|event| event.repeats(event_type, object))
    }

    /// Returns the version of the newest event; `None` if the log has none.
    pub(in crate::cache) fn newest(&self) -> Option<ResourceVersion> {
        self.entries
            .back()
            .map(|entry| entry.event.resource_version)
    }

    /// Returns the reason why a watch cannot start at `requested`, or `None` if it can.
    pub(in crate::cache) fn expired(&self, requested: ResourceVersion) -> Option<Expired> {
        let oldest = match self.hole_around(requested) {
            Some(hole) => hole.list,
            None if requested < self.start => self.start,
            None => return None,
        };
        Some(Expired { requested, oldest })
    }

    /// Returns the reason why a stream that waits for the future version `start` cannot continue,
    /// if a hole was opened around `start`.
    pub(in crate::cache) fn expired_future_start(&self, start: ResourceVersion) -> Option<Expired> {
        let around = self.hole_around(start).map(|hole| hole.list);
        // The evicted hole was opened after the stream, when `start` was in the future. So the hole
        // began below `start`, and `start` is inside it if `start` is below its end.
        let lost = (start < self.evicted_holes_end).then_some(self.evicted_holes_end);
        let oldest = around.or(lost)?.max(self.start);
        Some(Expired {
            requested: start,
            oldest,
        })
    }

    /// Appends up to `max` events from `position` to `batch`; returns the position after them.
    /// Returns `None` if the event at `position` is no longer retained.
    pub(in crate::cache) fn read(
        &self,
        position: u64,
        max: usize,
        batch: &mut Batch,
    ) -> Option<u64> {
        let skipped = position.checked_sub(self.first)?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let from = skipped.min(self.entries.len());
        let next = self.entries.range(from..).map(|entry| &entry.event);
        let to = from + batch_length(next, max);
        let read = self.entries.range(from..to);
        for entry in read {
            batch.push_back((Arc::clone(&entry.event), None));
        }
        Some(position + (to - from) as u64)
    }

    /// Removes the holes and up to `max` events that exceed `retention`, and returns the events, so
    /// that the caller can drop them outside of its lock.
    ///
    /// The newest event stays even if it exceeds the byte limit; otherwise no watch could get it.
    /// Events above `applied` stay, because watches that begin with a snapshot need them.
    pub(in crate::cache) fn evict(
        &mut self,
        retention: Retention,
        now: Instant,
        max: usize,
        applied: ResourceVersion,
    ) -> Vec<Arc<Event>> {
        let mut evicted = Vec::new();
        while let Some(entry) = self.entries.front().filter(|_| evicted.len() < max) {
            if entry.event.resource_version > applied {
                break;
            }
            let is_aged = now.duration_since(entry.appended_at) >= retention.age
                || mutation::is_active(Mutation::AgeIgnored);
            let is_over = self.entries.len() > 1 && self.bytes() > retention.bytes;
            let is_done = is_aged && self.entries.len() > retention.events;
            if !is_over && !is_done {
                break;
            }
            self.evicted_early += u64::from(!is_aged);
            evicted.extend(self.evict_first());
        }
        while let Some(hole) = self.holes.front().copied() {
            let is_aged = now.duration_since(hole.recorded_at) >= retention.age;
            if self.holes.len() <= retention.events || !is_aged {
                break;
            }
            self.start = self.start.max(hole.list);
            self.evict_first_hole();
        }
        evicted
    }

    /// Removes and returns all events up to `applied`. After this, a start below `applied` expires.
    pub(in crate::cache) fn forget(&mut self, applied: ResourceVersion) -> Vec<Arc<Event>> {
        let is_applied = |entry: &Entry| entry.event.resource_version <= applied;
        let evict = || {
            self.entries.front().filter(|entry| is_applied(entry))?;
            self.evict_first()
        };
        let evicted = std::iter::from_fn(evict).collect();
        while !self.holes.is_empty() {
            self.evict_first_hole();
        }
        self.start = self.start.max(applied);
        evicted
    }

    /// Drops everything and begins again with the events after `start`.
    pub(in crate::cache) fn restart(&mut self, start: ResourceVersion) {
        *self = Self::new(start, Arc::clone(&self.bytes));
    }

    fn evict_first(&mut self) -> Option<Arc<Event>> {
        let Entry { event, .. } = self.entries.pop_front()?;
        event.charge.end();
        let position = self.first;
        self.first += 1;
        self.start = self.start.max(event.resource_version);
        // The rest of a block alone would be a wrong history, so starts below the hole's end expire
        // as soon as its first event is evicted. Guarded by `model_needs_a_torn_block_to_expire`.
        while let Some(hole) = self.holes.front().filter(|hole| hole.position <= position) {
            if !mutation::is_active(Mutation::HoleEvictedAsEvents) {
                self.start = self.start.max(hole.list);
            }
            self.evict_first_hole();
        }
        Some(event)
    }

    fn evict_first_hole(&mut self) {
        if let Some(hole) = self.holes.pop_front() {
            self.evicted_holes_end = self.evicted_holes_end.max(hole.list);
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        let entries = self.entries.iter();
        entries.for_each(|entry| entry.event.charge.end());
    }
}

// === impl NewEntries ===

impl NewEntries {
    /// Adds `event`, and its bytes to the log's total.
    pub(in crate::cache) fn push(&mut self, event: &Arc<Event>) {
        event.charge.begin(&self.bytes);
        self.events.push(Arc::clone(event));
    }
}

impl Drop for NewEntries {
    fn drop(&mut self) {
        self.events.iter().for_each(|event| event.charge.end());
    }
}
