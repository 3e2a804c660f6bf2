//! Group: the streams of one selection, and the queue of what concerns them.
//!
//! The writer judges an event once a group and queues it; each stream is a place in the queue. A
//! stream at the queue's end is at the log's tip, whatever happens to others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::Waker;

use parking_lot::RwLock;

use crate::api::EventType;
use crate::api::Selection;
use crate::cache::log::Batch;
use crate::cache::log::Event;
use crate::cache::wake::Registration;
use crate::cache::wake::ReplacedWaker;
use crate::cache::wake::WakeSet;
use crate::mutation;
use crate::mutation::Mutation;

/// Queues with more room than this give it back when it is no longer needed.
const IDLE_CAPACITY: usize = 16;

/// All streams of one selection.
pub(in crate::cache) struct Group {
    /// Never given twice.
    pub(in crate::cache) id: u64,
    pub(in crate::cache) selection: Arc<Selection>,
    pub(in crate::cache) wakes: WakeSet,
    /// Taken behind the state where both are: what is read here is in the state a moment later.
    queue: RwLock<Queue>,
    /// The number that the next event will have, for a look without the lock; [`NO_TIP`] when none
    /// will follow.
    tip: AtomicU64,
}

/// No stream comes this far.
const NO_TIP: u64 = u64::MAX;

struct Queue {
    /// The retained events that concern the selection, in order.
    entries: VecDeque<QueuedEvent>,
    /// Number of the first entry; numbers count the group's events and never go back.
    first: u64,
    /// The log's tip when the group was made: what came before is not in the queue.
    since: u64,
    status: QueueStatus,
}

struct QueuedEvent {
    /// In the log.
    position: u64,
    event: Arc<Event>,
    verdict: EventType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueStatus {
    Open,
    /// Nothing will follow.
    Closed,
    /// The epoch is over.
    Expired,
}

/// What a stream found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cache) enum QueueRead {
    /// Events were put into the batch; the number of the one behind them.
    Events(u64),
    /// None are left; the stream will be woken.
    AtTip,
    /// None are left and none will come.
    Closed,
    /// The stream has fallen off, or the epoch is over.
    Expired,
}

/// What a queued event takes in memory: here, and in the record of who has queued it.
pub(super) const QUEUED_EVENT_BYTES: usize = size_of::<QueuedEvent>() + size_of::<(u64, u64)>();

// === impl Group ===

impl Group {
    /// The group of `selection`, of what comes from log position `since` on.
    pub(in crate::cache) fn new(id: u64, selection: Arc<Selection>, since: u64) -> Self {
        Self {
            id,
            selection,
            wakes: WakeSet::default(),
            queue: RwLock::new(Queue {
                entries: VecDeque::new(),
                first: 0,
                since,
                status: QueueStatus::Open,
            }),
            tip: AtomicU64::new(0),
        }
    }

    /// The number of the first event from log position `position` on; `None` when the group has not
    /// seen all of them.
    pub(super) fn number_at(&self, position: u64) -> Option<u64> {
        let queue = self.queue.read();
        if position < queue.since && !mutation::is_active(Mutation::GroupStartIgnored) {
            return None;
        }
        let before = |queued: &QueuedEvent| queued.position < position;
        Some(queue.first + queue.entries.partition_point(before) as u64)
    }

    /// The number that the next event will have.
    pub(in crate::cache) fn end(&self) -> u64 {
        self.queue.read().end()
    }

    /// Queues `event` of log position `position`, unless it was; true if it concerns the group.
    pub(super) fn offer(&self, position: u64, event: &Arc<Event>) -> bool {
        let Some(verdict) = event.verdict(&self.selection) else {
            return false;
        };
        let mut queue = self.queue.write();
        if queue
            .entries
            .back()
            .is_some_and(|last| last.position == position)
        {
            return false;
        }
        queue.entries.push_back(QueuedEvent {
            position,
            event: Arc::clone(event),
            verdict,
        });
        // Before the wake-up, in an order that all threads agree on: see `read`.
        self.tip.store(queue.end(), Ordering::SeqCst);
        true
    }

    /// Forgets the events before log position `first`.
    pub(in crate::cache) fn evict(&self, first: u64) {
        let mut queue = self.queue.write();
        while queue
            .entries
            .front()
            .is_some_and(|queued| queued.position < first)
        {
            queue.entries.pop_front();
            if !mutation::is_active(Mutation::EvictionUncounted) {
                queue.first += 1;
            }
        }
        shrink(&mut queue.entries);
    }

    /// Ends the group's streams where they are.
    pub(in crate::cache) fn expire(&self) {
        if mutation::is_active(Mutation::QueueKeptAtEpoch) {
            return;
        }
        let mut queue = self.queue.write();
        queue.status = QueueStatus::Expired;
        queue.first = queue.end();
        queue.entries = VecDeque::new();
        self.tip.store(NO_TIP, Ordering::SeqCst);
    }

    /// Ends the group's streams once they have delivered what is queued.
    pub(in crate::cache) fn close(&self) {
        self.queue.write().status = QueueStatus::Closed;
        self.tip.store(NO_TIP, Ordering::SeqCst);
    }

    /// True when the stream that has come to `number` can go on from there.
    pub(in crate::cache) fn retains(&self, number: u64) -> bool {
        let queue = self.queue.read();
        queue.status != QueueStatus::Expired && queue.first <= number
    }

    /// True when the stream that has come to `number` has everything.
    pub(in crate::cache) fn is_at_tip(&self, number: u64) -> bool {
        let queue = self.queue.read();
        queue.status != QueueStatus::Expired && number == queue.end()
    }

    /// Puts up to `max` events from `number` on into `batch`; where there are none, leaves `waker`.
    pub(in crate::cache) fn read(
        &self,
        number: u64,
        max: usize,
        batch: &mut Batch,
        registration: &mut Registration,
        waker: &Waker,
    ) -> (QueueRead, ReplacedWaker) {
        // Without the lock, which streams on all threads would pull to and fro. Either this finds
        // what was queued meanwhile, or whoever queues it finds the waker.
        let seemed_at_tip = self.tip.load(Ordering::Acquire) == number;
        let mut replaced = if seemed_at_tip {
            registration.register(&self.wakes, waker)
        } else {
            ReplacedWaker::default()
        };
        if seemed_at_tip && self.tip.load(Ordering::SeqCst) == number {
            return (QueueRead::AtTip, replaced);
        }
        let queue = self.queue.read();
        let read = queue.read(number, max, batch);
        if read == QueueRead::AtTip && !seemed_at_tip {
            // Under the lock, so that nothing can come in between.
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

    fn read(&self, number: u64, max: usize, batch: &mut Batch) -> QueueRead {
        let Some(skipped) = number.checked_sub(self.first) else {
            return QueueRead::Expired;
        };
        let from = usize::try_from(skipped).unwrap_or(usize::MAX);
        let from = from.min(self.entries.len());
        let to = from.saturating_add(max).min(self.entries.len());
        for queued in self.entries.range(from..to) {
            batch.push_back((Arc::clone(&queued.event), Some(queued.verdict)));
        }
        match (from < to, self.status) {
            (_, QueueStatus::Expired) => QueueRead::Expired,
            (true, _) => QueueRead::Events(number + (to - from) as u64),
            (false, QueueStatus::Open) => QueueRead::AtTip,
            (false, QueueStatus::Closed) => QueueRead::Closed,
        }
    }
}

/// Gives memory back that a burst took.
pub(super) fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > IDLE_CAPACITY && queue.len() < queue.capacity() / 4 {
        queue.shrink_to(2 * queue.len());
    }
}
