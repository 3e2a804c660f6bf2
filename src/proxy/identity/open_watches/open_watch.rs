//! The guard of an open watch, which ends the watch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use kubefan_core::body::BodyGuard;
use parking_lot::Mutex;

use super::{MemberId, OpenWatches};
use crate::net::Abort;

/// Ends a body, or an upgraded connection, when its user loses the right to it. While this guard
/// exists, the right is judged repeatedly.
pub struct OpenWatch {
    end: Arc<End>,
    watches: OpenWatches,
    pub(in crate::identity) member: MemberId,
    /// The waker that `end` has. Comparing wakers costs less than storing one at each poll.
    registered: Option<Waker>,
}

/// Whether an open watch must end.
#[derive(Debug, Default)]
pub(super) struct End {
    is_over: AtomicBool,
    /// True while the watch gets no events.
    is_held: AtomicBool,
    /// True once the watch has ended its body.
    is_seen: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// A watch that must end, although it may not be polled.
pub(super) struct Ending {
    end: Weak<End>,
    abort: Option<Abort>,
}

impl OpenWatch {
    pub(super) fn new(end: Arc<End>, watches: OpenWatches, member: MemberId) -> Self {
        Self {
            end,
            watches,
            member,
            registered: None,
        }
    }
}

impl BodyGuard for OpenWatch {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_registered = |waker: &Waker| waker.will_wake(cx.waker());
        if !self.end.is_over.load(Ordering::Acquire) {
            if self.registered.as_ref().is_some_and(is_registered) {
                return Poll::Pending;
            }
            let mut waker = self.end.waker.lock();
            // `End::end` sets the flag under this lock, so the waker cannot be missed.
            if !self.end.is_over.load(Ordering::Acquire) {
                let replaced = waker.replace(cx.waker().clone());
                drop(waker);
                // Dropped outside the lock, because dropping a waker may drop a task, and with it
                // other watches.
                drop(replaced);
                self.registered = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        self.end.is_seen.store(true, Ordering::Release);
        Poll::Ready(())
    }

    /// Returns true while the watch gets no events. The end of a hold wakes a watch that was polled
    /// before.
    fn is_held(&self) -> bool {
        self.end.is_held()
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.close(self.member);
    }
}

impl End {
    /// Ends the watch at its next poll, and wakes it. `abort` is used if the watch is not polled.
    pub(super) fn end(self: &Arc<Self>, abort: Option<Abort>) -> Ending {
        let waker = {
            let mut waker = self.waker.lock();
            self.is_over.store(true, Ordering::Release);
            waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ending {
            end: Arc::downgrade(self),
            abort,
        }
    }

    /// Holds back the events of the watch, or releases those that were held back.
    pub(super) fn hold(&self, is_held: bool) {
        let was_held = self.is_held.swap(is_held, Ordering::AcqRel);
        if was_held && !is_held {
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }
}

impl Ending {
    /// Aborts the watch if it has not ended. Returns true if it was aborted. A watch is not polled
    /// if its client opens no flow-control window, or reads nothing.
    pub(super) fn finish(self) -> bool {
        let is_open = |end: Arc<End>| !end.is_seen.load(Ordering::Acquire);
        match self.abort {
            Some(abort) if self.end.upgrade().is_some_and(is_open) => {
                abort.abort();
                true
            }
            _ => false,
        }
    }
}
