//! Group: the streams with one selection, and the queue of the events that they need.
//!
//! The writer determines the verdict of an event once per group, and queues the event if the
//! verdict is not `None`. Each stream is a position in the queue. A stream at the end of the
//! queue has everything up to the log's tip, even if the log has evicted events without a
//! verdict for the group.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::api::{EventType, Selection};
use crate::cache::log::{Batch, Event, batch_length};
use crate::cache::sync::{AtomicU64, RwLock};
use crate::cache::wake::{Registration, ReplacedWaker, WakeSet};
use crate::mutation;
use crate::mutation::Mutation;

/// A queue with at most this capacity does not release unused memory, unless it is empty.
const IDLE_CAPACITY: usize = 16;

/// All streams with one selection.
pub(in crate::cache) struct Group {
    /// The group's number, which is never reused in this cache.
    pub(in crate::cache) id: u64,
    pub(in crate::cache) selection: Arc<Selection>,
    /// See [`Selection::units`].
    pub(super) units: usize,
    pub(in crate::cache) wakes: WakeSet,
    /// A thread that needs this lock and the state's lock takes the state's lock first.
    pub(super) queue: RwLock<Queue>,
    /// The number that the group's next event will get, readable without the lock. [`NO_TIP`] if
    /// the queue has expired or was closed.
    tip: AtomicU64,
    /// True while the group is in the writer's list of the groups to wake. Only the writer uses it,
    /// so its order does not matter.
    is_listed: AtomicBool,
}

/// The value of [`Group::tip`] once the queue has expired or was closed. No event has this
/// number, so a stream does not wait for a wake. It reads the queue, and finds there that
/// the queue has ended.
const NO_TIP: u64 = u64::MAX;

pub(super) struct Queue {
    /// The retained events with a verdict for the selection, in order.
    pub(super) entries: VecDeque<QueuedEvent>,
    /// Number of the first entry. The group's events are numbered in order, from 0.
    first: u64,
    /// From this log position on, the queue has all events with a verdict for the selection.
    /// It is the log's tip when the group was created, or the position after the last event
    /// that left the queue.
    start_position: u64,
    status: QueueStatus,
}

pub(in crate::cache) struct QueuedEvent {
    /// The event's position in the log.
    position: u64,
    event: Arc<Event>,
    verdict: EventType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueStatus {
    Open,
    /// The cache was closed, so no event will follow.
    Closed,
    /// The epoch has ended.
    Expired,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::cache) enum QueueRead {
    /// Events were read. Holds the number of the event after them, and its lowest log position.
    Events(u64, u64),
    /// The stream is at the end of the queue, and will be woken.
    AtTip,
    /// The stream is at the end of the queue, and the cache was closed.
    Closed,
    /// An event that the stream still needs has left the queue. The log may still have it.
    Behind,
    /// The epoch has ended.
    Expired,
}

/// Bytes that a queued event takes in the group's queue.
pub(super) const QUEUED_EVENT_BYTES: usize = size_of::<QueuedEvent>();

// === impl Group ===

impl Group {
    pub(in crate::cache) fn new(id: u64, selection: Arc<Selection>, start_position: u64) -> Self {
        Self {
            id,
            units: selection.units(),
            selection,
            wakes: WakeSet::default(),
            queue: RwLock::new(Queue {
                entries: VecDeque::new(),
                first: 0,
                start_position,
                status: QueueStatus::Open,
            }),
            tip: AtomicU64::new(0),
            is_listed: AtomicBool::new(false),
        }
    }

    /// Returns true if the writer must add the group to its list of the groups to wake, and false
    /// if it has done so already.
    pub(super) fn begin_wake(&self) -> bool {
        let is_listed = self.is_listed.load(Ordering::Relaxed);
        self.is_listed.store(true, Ordering::Relaxed);
        !is_listed
    }

    /// Wakes the group's streams, which the writer has taken from its list. `wakers` lends its
    /// memory.
    pub(in crate::cache) fn wake(&self, wakers: &mut Vec<Waker>) {
        self.is_listed.store(false, Ordering::Relaxed);
        self.wakes.notify(wakers);
    }

    /// Returns the number of the group's first event at or after log position `position`, or `None`
    /// if the queue does not have all events from there. Guarded by
    /// `model_needs_a_queue_to_record_where_it_begins`.
    pub(in crate::cache) fn number_at(&self, position: u64) -> Option<u64> {
        let queue = self.queue.read();
        if position < queue.start_position && !mutation::is_active(Mutation::GroupStartIgnored) {
            return None;
        }
        let before = |queued: &QueuedEvent| queued.position < position;
        Some(queue.first + queue.entries.partition_point(before) as u64)
    }

    /// Returns the capacity of the queue, in events.
    pub(super) fn capacity(&self) -> usize {
        self.queue.read().entries.capacity()
    }

    /// Queues `event`, which has log position `position`, if it has a verdict for the group's
    /// selection. Returns by how many events the queue's capacity grew, or `None` if the event has
    /// no verdict or was queued before.
    pub(super) fn offer(&self, position: u64, event: &Arc<Event>) -> Option<usize> {
        let verdict = event.verdict(&self.selection)?;
        let mut queue = self.queue.write();
        let last = queue.entries.back();
        if last.is_some_and(|last| last.position == position) {
            return None;
        }
        let capacity = queue.entries.capacity();
        if queue.entries.len() == capacity {
            queue.entries.reserve_exact(growth(capacity, self.id));
        }
        queue.entries.push_back(QueuedEvent {
            position,
            event: Arc::clone(event),
            verdict,
        });
        // This store comes before the wake and uses `SeqCst`, so that `read` cannot miss the event.
        self.tip.store(queue.end(), Ordering::SeqCst);
        Some(queue.entries.capacity() - capacity)
    }

    /// Drops the events before log position `first`, and returns by how many events the queue's
    /// capacity shrank. A stream that still needs a dropped event reads the log, and expires if the
    /// log has dropped the event too. Guarded by `model_needs_streams_to_fall_off_their_queue`.
    pub(super) fn evict(&self, first: u64) -> usize {
        let mut queue = self.queue.write();
        let before = queue.entries.capacity();
        let is_dropped = |queued: &mut QueuedEvent| queued.position < first;
        while queue.entries.pop_front_if(is_dropped).is_some() {
            if !mutation::is_active(Mutation::EvictionUncounted) {
                queue.first += 1;
            }
        }
        queue.start_position = queue.start_position.max(first);
        shrink(&mut queue.entries);
        before - queue.entries.capacity()
    }

    /// Makes the group's streams expire at their next read, because the epoch has ended. Returns
    /// the queued events, so that the caller can drop them outside of its locks. Guarded by
    /// `model_needs_queues_to_end_with_their_epoch`.
    pub(super) fn expire(&self) -> VecDeque<QueuedEvent> {
        if mutation::is_active(Mutation::QueueKeptAtEpoch) {
            return VecDeque::new();
        }
        let mut queue = self.queue.write();
        queue.status = QueueStatus::Expired;
        queue.first = queue.end();
        self.tip.store(NO_TIP, Ordering::SeqCst);
        std::mem::take(&mut queue.entries)
    }

    /// Makes the group's streams end when they have delivered the queued events.
    pub(in crate::cache) fn close(&self) {
        self.queue.write().status = QueueStatus::Closed;
        self.tip.store(NO_TIP, Ordering::SeqCst);
    }

    /// Returns true if a stream that needs event `number` next can continue.
    pub(in crate::cache) fn retains(&self, number: u64) -> bool {
        let queue = self.queue.read();
        queue.status != QueueStatus::Expired && queue.first <= number
    }

    /// Returns true if a stream that needs event `number` next has all events of the queue.
    pub(in crate::cache) fn is_at_tip(&self, number: u64) -> bool {
        let queue = self.queue.read();
        queue.status != QueueStatus::Expired && number == queue.end()
    }

    /// Returns how many events of the queue a stream that needs event `number` next has not
    /// fetched, and the log position of the first of them that is retained. Returns `None` if the
    /// queue has expired or was closed.
    pub(in crate::cache) fn not_fetched(&self, number: u64) -> Option<(u64, Option<u64>)> {
        // Most streams have everything, and need no lock.
        if self.tip.load(Ordering::Acquire) == number {
            return Some((0, None));
        }
        let queue = self.queue.read();
        if queue.status != QueueStatus::Open {
            return None;
        }
        let index = usize::try_from(number.saturating_sub(queue.first)).ok()?;
        let first = queue.entries.get(index).map(|queued| queued.position);
        Some((queue.end().saturating_sub(number), first))
    }

    /// Adds up to `max` events from `number` to `batch`, or registers `waker` at the queue's end.
    /// Skips events before log position `position`, which the stream has read from the log.
    pub(in crate::cache) fn read(
        &self,
        (number, position): (u64, u64),
        max: usize,
        batch: &mut Batch,
        registration: &mut Registration,
        waker: &Waker,
    ) -> (QueueRead, ReplacedWaker) {
        // Read the tip without the lock, because streams of all threads would compete for the
        // lock. The waker is registered before the tip is read again, and the writer moves the
        // tip before it takes the wakers. So either this stream sees a new event, or the
        // writer finds the waker. Guarded by
        // `an_event_before_the_waker_is_registered_is_not_missed` and by tests/loom.
        let seemed_at_tip = self.tip.load(Ordering::Acquire) == number;
        let mut replaced = if seemed_at_tip {
            registration.register(&self.wakes, waker)
        } else {
            ReplacedWaker::default()
        };
        let is_at_tip = self.tip.load(Ordering::SeqCst) == number
            || mutation::is_active(Mutation::TipNotReadAgain);
        if seemed_at_tip && is_at_tip {
            return (QueueRead::AtTip, replaced);
        }
        let queue = self.queue.read();
        let read = queue.read(number, position, max, batch);
        if read == QueueRead::AtTip && !seemed_at_tip {
            // The queue's lock is held, so no event can be queued before the waker is registered.
            replaced = registration.register(&self.wakes, waker);
        }
        drop(queue);
        (read, replaced)
    }
}

// === impl Queue ===

impl Queue {
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn read(&self, number: u64, position: u64, max: usize, batch: &mut Batch) -> QueueRead {
        if self.status == QueueStatus::Expired {
            return QueueRead::Expired;
        }
        let Some(skipped) = number.checked_sub(self.first) else {
            return QueueRead::Behind;
        };
        let from = usize::try_from(skipped).unwrap_or(usize::MAX);
        let from = from.min(self.entries.len());
        let waiting = self.entries.range(from..).map(|queued| &queued.event);
        let to = from + batch_length(waiting, max);
        let mut next = position;
        for queued in self.entries.range(from..to) {
            // The writer queues an event after it has appended it to the log, so the stream may
            // have read it there. Guarded by `model_needs_events_read_from_the_log_to_be_skipped`.
            if queued.position >= next || mutation::is_active(Mutation::QueuedAgain) {
                batch.push_back((Arc::clone(&queued.event), Some(queued.verdict)));
                next = queued.position + 1;
            }
        }
        match self.status {
            _ if from < to => QueueRead::Events(number + (to - from) as u64, next),
            QueueStatus::Closed => QueueRead::Closed,
            QueueStatus::Open | QueueStatus::Expired => QueueRead::AtTip,
        }
    }
}

/// Returns by how many events a full queue of `capacity` events grows: by a half to three halves,
/// depending on its group. If all queues grew alike, a thousand groups that get equal events would
/// move their queues at one event, which takes some milliseconds. The number of different growths
/// equals the default limit of groups that are checked for each change.
fn growth(capacity: usize, group: u64) -> usize {
    const STEPS: u64 = 1_000;
    let part = (group % STEPS) as usize;
    capacity / 2 + capacity * part / STEPS as usize + 2
}

/// Releases memory that a burst of events has allocated. Afterwards, at least half of a large
/// queue's memory is in use. An empty queue has no memory, because there may be many thousands of
/// empty queues.
pub(super) fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() {
        *queue = VecDeque::new();
    } else if queue.capacity() > IDLE_CAPACITY && queue.len() < queue.capacity() / 2 {
        queue.shrink_to(queue.len() + queue.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_moves_the_queues_of_many_groups() {
        const EVENTS: usize = 2_000;
        let mut moved = vec![0; EVENTS];
        for group in 0..1_000 {
            let mut capacity = 0;
            while capacity < EVENTS {
                let grown = capacity + growth(capacity, group);
                moved[capacity] += (capacity + grown) * QUEUED_EVENT_BYTES;
                capacity = grown;
            }
        }
        // Together the queues have 64 MB.
        let most = moved.into_iter().max().unwrap_or_default();
        assert!(most < 1 << 20, "{most} bytes");
    }
}
