//! The wakers of the futures that wait for a phase. A future registers its waker once, not at each
//! poll.

use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::shutdown::Phase;

/// The current phase, and the wakers of all futures that wait for a later one.
pub(super) struct Waiters {
    phase: AtomicU8,
    pub(super) slots: Mutex<Slots>,
}

#[derive(Default)]
pub(super) struct Slots {
    pub(super) wakers: Vec<Option<(Phase, Waker)>>,
    free: Vec<usize>,
}

/// The registration of one future, which must be returned with [`Waiters::unregister`].
#[derive(Default)]
pub(super) struct Waiter {
    slot: Option<usize>,
    /// A copy of the registered waker, so that a repeated poll with an unchanged
    /// waker takes no lock.
    waker: Option<Waker>,
}

impl Waiters {
    pub(super) fn new() -> Waiters {
        Waiters {
            phase: AtomicU8::new(Phase::Serving as u8),
            slots: Mutex::default(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        let now = self.phase.load(Ordering::Acquire);
        let reached = |phase: &Phase| *phase as u8 <= now;
        Phase::ALL
            .into_iter()
            .rfind(reached)
            .unwrap_or(Phase::Serving)
    }

    /// Enters `phase` and wakes the futures that wait for it or an earlier phase. Returns false if
    /// `phase` was reached before.
    pub(super) fn enter(&self, phase: Phase) -> bool {
        let before = self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        if before >= phase as u8 {
            return false;
        }
        // A future that registers after this sees the new phase, because `poll` checks the phase
        // again after registering.
        let wakers: Vec<_> = {
            let mut slots = self.slots.lock();
            let is_due = |entry: &mut (Phase, Waker)| entry.0 <= phase;
            let wakers = slots.wakers.iter_mut();
            wakers.filter_map(|slot| slot.take_if(is_due)).collect()
        };
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
        true
    }

    pub(super) fn poll(&self, phase: Phase, waiter: &mut Waiter, cx: &Context<'_>) -> Poll<()> {
        let is_reached = || self.phase.load(Ordering::Acquire) >= phase as u8;
        if is_reached() {
            return Poll::Ready(());
        }
        let is_registered = |waker: &Waker| waker.will_wake(cx.waker());
        if waiter.waker.as_ref().is_some_and(is_registered) {
            return Poll::Pending;
        }
        waiter.waker = Some(cx.waker().clone());
        let replaced = {
            let mut slots = self.slots.lock();
            let slot = *waiter.slot.get_or_insert_with(|| slots.claim());
            slots.wakers[slot].replace((phase, cx.waker().clone()))
        };
        // Dropped outside the lock: dropping a waker may drop a task, which may hold other waiters.
        drop(replaced);
        if is_reached() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Removes the future's waker, and makes its slot free for others.
    pub(super) fn unregister(&self, waiter: &mut Waiter) {
        let Some(slot) = waiter.slot.take() else {
            return;
        };
        let waker = {
            let mut slots = self.slots.lock();
            slots.free.push(slot);
            slots.wakers[slot].take()
        };
        drop(waker);
    }
}

impl Slots {
    fn claim(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() - 1
        })
    }
}
