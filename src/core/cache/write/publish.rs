//! After a change: queues its events in the groups that need them, and wakes their streams.

use std::sync::atomic::Ordering;

use super::pace::CHECKED_AT_ONCE;
use super::writer::Writer;

/// The buffers for groups and wakers retain at most this capacity between changes.
const IDLE_CAPACITY: usize = 4096;

impl Writer {
    /// Queues the appended events, except the last `keep`, in the groups that need them. Releases
    /// the lock between slices, so that streams can join and leave.
    pub(in crate::cache) fn publish(&mut self, keep: usize) {
        while self.unpublished.len() > keep {
            self.publish_slice(keep, CHECKED_AT_ONCE);
        }
    }

    /// Queues the next of the appended events, except the last `keep`, in one critical section that
    /// checks about `at_once` events and groups. Returns how many it has checked.
    ///
    /// Between two slices, streams read and join. A stream that joins may have read some of the
    /// events from the log already; it skips them in the queue. Guarded by
    /// `model_needs_events_read_from_the_log_to_be_skipped` and
    /// `model_needs_bookmarks_to_wait_for_the_queues`.
    pub(super) fn publish_slice(&mut self, keep: usize, at_once: usize) -> usize {
        let mut interest = self.shared.interest.lock();
        let mut checked = 0;
        while checked < at_once
            && self.unpublished.len() > keep
            && let Some((position, event)) = self.unpublished.pop_front()
        {
            checked += 1 + interest.publish(position, &event, &mut self.to_wake);
            // Evict after each event, so that the queues never exceed their limit.
            checked += interest.evict(0, usize::MAX).0;
            let queued_to = position + 1;
            self.shared.queued_to.store(queued_to, Ordering::Release);
        }
        checked
    }

    /// Wakes all streams.
    pub(super) fn wake_all(&mut self) {
        self.to_wake.clear();
        let groups = self.shared.interest.lock();
        self.to_wake.extend(groups.groups().cloned());
        drop(groups);
        self.wake_streams();
    }

    /// Wakes the readers that wait for a version, and the streams that need the changes that were
    /// applied since the last wake. Then drops what exceeds the limits of [`Config`].
    ///
    /// [`Config`]: crate::cache::Config
    pub fn wake(&mut self) {
        self.wake_streams();
        self.housekeep();
    }

    /// Does what [`Writer::wake`] does, without the housekeeping.
    pub(super) fn wake_streams(&mut self) {
        self.shared.wakes.notify(&mut self.wakers);
        for group in self.to_wake.drain(..) {
            group.wake(&mut self.wakers);
        }
        self.to_wake.shrink_to(IDLE_CAPACITY);
        self.wakers.shrink_to(IDLE_CAPACITY);
    }
}
