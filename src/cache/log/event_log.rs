//! EventLog: the changes of the recent past in order, and which starts they can serve.
//!
//! Bounded by age and bytes; bytes win. Positions count events and never go back within an epoch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::log::batch::Batch;
use crate::cache::log::event::Event;
use crate::cache::log::expired::Expired;
use crate::cache::log::retention::Retention;
use crate::mutation;
use crate::mutation::Mutation;

/// The retained events.
pub(in crate::cache) struct EventLog {
    entries: VecDeque<Entry>,
    /// Position of the first entry.
    first: u64,
    /// The oldest resource version whose successors are all retained.
    start: ResourceVersion,
    /// In the order of their places.
    holes: VecDeque<Hole>,
    /// Bytes of all entries, including frames encoded since.
    ledger: Arc<AtomicUsize>,
    evicted_early: u64,
    /// The end of the last hole that is no longer in `holes`.
    evicted_holes_end: ResourceVersion,
}

struct Entry {
    event: Arc<Event>,
    appended_at: Instant,
}

/// A span of history that a relist jumped over; see the room's documentation.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Hole {
    /// What was applied before the list.
    pub(in crate::cache) before: ResourceVersion,
    /// What the list is complete at.
    pub(in crate::cache) list: ResourceVersion,
    /// Position of its first event, or where that would be.
    position: u64,
    recorded_at: Instant,
}

/// The reader's next event is no longer retained.
#[derive(Debug)]
pub(in crate::cache) struct PositionEvicted;

// === impl EventLog ===

impl EventLog {
    /// An empty log of what comes after `start`.
    pub(in crate::cache) fn new(start: ResourceVersion) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            start,
            holes: VecDeque::new(),
            ledger: Arc::default(),
            evicted_early: 0,
            evicted_holes_end: ResourceVersion::ZERO,
        }
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::cache) fn bytes(&self) -> usize {
        self.ledger.load(Ordering::Relaxed)
    }

    pub(in crate::cache) fn start(&self) -> ResourceVersion {
        self.start
    }

    pub(in crate::cache) fn evicted_early(&self) -> u64 {
        self.evicted_early
    }

    /// The position of the oldest event retained, or of the next one.
    pub(in crate::cache) fn first(&self) -> u64 {
        self.first
    }

    /// The position that the next event will have.
    pub(in crate::cache) fn tip(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(in crate::cache) fn append(&mut self, event: Event, now: Instant) -> Arc<Event> {
        event.charge_to(&self.ledger);
        let event = Arc::new(event);
        self.entries.push_back(Entry {
            event: Arc::clone(&event),
            appended_at: now,
        });
        event
    }

    /// Notes that the events appended next, up to `list`, are a relist's.
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

    /// The hole that `version` lies strictly inside of.
    pub(in crate::cache) fn hole_around(&self, version: ResourceVersion) -> Option<&Hole> {
        if mutation::is_active(Mutation::HoleServed) {
            return None;
        }
        let surrounds = |hole: &&Hole| hole.before < version && version < hole.list;
        self.holes.iter().find(surrounds)
    }

    /// The position from which on a client that has seen all up to `start` has to read.
    pub(in crate::cache) fn position_after(&self, start: ResourceVersion) -> Result<u64, Expired> {
        if let Some(expired) = self.expired(start) {
            return Err(expired);
        }
        let known = |entry: &Entry| entry.event.is_known_at(start);
        Ok(self.first + self.entries.partition_point(known) as u64)
    }

    /// Why a start at `requested` can't be served, if so.
    pub(in crate::cache) fn expired(&self, requested: ResourceVersion) -> Option<Expired> {
        let oldest = match self.hole_around(requested) {
            Some(hole) => hole.list,
            None if requested < self.start => self.start,
            None => return None,
        };
        Some(Expired { requested, oldest })
    }

    /// Why an open stream whose start was still to come can't go on, if a relist jumped over it.
    pub(in crate::cache) fn expired_future_start(&self, start: ResourceVersion) -> Option<Expired> {
        let around = self.hole_around(start).map(|hole| hole.list);
        // It was not there when the stream was opened, so it is from before the start to its end.
        let lost = (start < self.evicted_holes_end).then_some(self.evicted_holes_end);
        let oldest = around.or(lost)?.max(self.start);
        Some(Expired {
            requested: start,
            oldest,
        })
    }

    /// True when a reader at `position` has fallen off.
    pub(in crate::cache) fn has_evicted(&self, position: u64) -> bool {
        position < self.first
    }

    /// Puts up to `max` events from `position` on into `batch` and returns the position behind them.
    pub(in crate::cache) fn read(
        &self,
        position: u64,
        max: usize,
        batch: &mut Batch,
    ) -> Result<u64, PositionEvicted> {
        let skipped = position.checked_sub(self.first).ok_or(PositionEvicted)?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let from = skipped.min(self.entries.len());
        let to = from.saturating_add(max).min(self.entries.len());
        batch.extend(
            self.entries
                .range(from..to)
                .map(|entry| (Arc::clone(&entry.event), None)),
        );
        Ok(position + (to - from) as u64)
    }

    /// Takes out what `retention` doesn't allow, for the caller to drop outside of its lock.
    ///
    /// The newest event stays, whatever its size: else no watch could ever be told of it.
    pub(in crate::cache) fn evict(
        &mut self,
        retention: Retention,
        now: Instant,
    ) -> Vec<Arc<Event>> {
        let mut evicted = Vec::new();
        while let Some(entry) = self.entries.front() {
            let is_aged = now.duration_since(entry.appended_at) >= retention.age;
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

    /// Takes out everything, so that no start below `applied` is served any more.
    pub(in crate::cache) fn forget(&mut self, applied: ResourceVersion) -> Vec<Arc<Event>> {
        let mut evicted = Vec::new();
        while let Some(event) = self.evict_first() {
            evicted.push(event);
        }
        while !self.holes.is_empty() {
            self.evict_first_hole();
        }
        self.start = self.start.max(applied);
        evicted
    }

    fn evict_first(&mut self) -> Option<Arc<Event>> {
        let Entry { event, .. } = self.entries.pop_front()?;
        event.discharge();
        let position = self.first;
        self.first += 1;
        self.start = self.start.max(event.resource_version);
        // Without its first event a hole can't serve the starts at its lower end any more.
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
