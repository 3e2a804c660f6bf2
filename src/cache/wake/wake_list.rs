//! WakeList: those who wait for the same on the same thread, and the inbox of who wakes them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::task::Waker;

use parking_lot::Mutex;

use crate::cache::wake::slots::Slots;

/// The wakers left since the last wake-up by those who are woken together.
pub(super) struct WakeList {
    /// Who wakes them; `None`: the writer itself.
    inbox: Option<Arc<Inbox>>,
    /// True when someone may have registered since the last notice.
    is_armed: AtomicBool,
    slots: Mutex<Slots>,
}

/// Where writers leave word of whom to wake.
#[derive(Default)]
pub(super) struct Inbox(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    lists: Vec<Arc<WakeList>>,
    waker: Option<Waker>,
    is_closed: bool,
}

thread_local! {
    static INSTALLED: RefCell<Option<Arc<Inbox>>> = const { RefCell::new(None) };
}

// === impl WakeList ===

impl WakeList {
    /// An empty list of the current thread.
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::installed(),
            is_armed: AtomicBool::new(false),
            slots: Mutex::default(),
        }
    }

    /// True when who waits on the current thread belongs on it.
    pub(super) fn is_local(&self) -> bool {
        Inbox::is_installed(self.inbox.as_ref())
    }

    /// A slot for a reader.
    pub(super) fn claim(&self) -> u32 {
        self.slots.lock().claim()
    }

    /// Asks for one wake-up; gives the waker that was left before, to be dropped outside of all locks.
    pub(super) fn arm(&self, slot: u32, waker: &Waker) -> Option<Waker> {
        let mut slots = self.slots.lock();
        let replaced = slots.arm(slot, waker);
        self.is_armed.store(true, Ordering::SeqCst);
        replaced
    }

    /// Takes a reader's slot back, and its waker, to be dropped outside of all locks.
    pub(super) fn release(&self, slot: u32) -> Option<Waker> {
        self.slots.lock().release(slot)
    }

    /// Wakes everyone who registered since the last call; `wakers` is lent for its memory.
    pub(super) fn wake_all(&self, wakers: &mut Vec<Waker>) {
        self.slots.lock().take_armed(wakers);
        wakers.drain(..).for_each(Waker::wake);
    }

    pub(super) fn notify(self: Arc<Self>, wakers: &mut Vec<Waker>) {
        if !self.is_armed.swap(false, Ordering::SeqCst) {
            return;
        }
        match self.inbox.clone() {
            Some(inbox) => inbox.put(self),
            None => self.wake_all(wakers),
        }
    }

    /// True when its dispatcher is gone and nobody else holds it, so that nobody can register.
    pub(super) fn is_abandoned(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.inbox.as_ref().is_some_and(|inbox| inbox.is_closed())
    }

    /// How many slots there are, and how many are armed.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (usize, usize) {
        self.slots.lock().lengths()
    }
}

// === impl Inbox ===

impl Inbox {
    /// An inbox that is the current thread's from now on, in place of an earlier one.
    pub(super) fn install() -> Arc<Self> {
        let inbox = Arc::new(Self::default());
        INSTALLED.set(Some(Arc::clone(&inbox)));
        inbox
    }

    /// The inbox of the current thread's dispatcher, if it has one.
    fn installed() -> Option<Arc<Self>> {
        INSTALLED.with_borrow(Clone::clone)
    }

    /// True when `inbox` is what [`Inbox::installed`] gives.
    fn is_installed(inbox: Option<&Arc<Self>>) -> bool {
        INSTALLED.with_borrow(|installed| match (installed, inbox) {
            (Some(installed), Some(inbox)) => Arc::ptr_eq(installed, inbox),
            (None, None) => true,
            _ => false,
        })
    }

    fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Has everyone on `list` woken, now if there is no dispatcher any more.
    fn put(&self, list: Arc<WakeList>) {
        let waker = {
            let mut pending = self.0.lock();
            if pending.is_closed {
                drop(pending);
                return list.wake_all(&mut Vec::new());
            }
            pending.lists.push(list);
            pending.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes all out and leaves `waker` for the next time.
    pub(super) fn take(&self, waker: &Waker, into: &mut Vec<Arc<WakeList>>) {
        let replaced = {
            let mut pending = self.0.lock();
            std::mem::swap(&mut pending.lists, into);
            pending.waker.replace(waker.clone())
        };
        drop(replaced);
    }

    /// Takes nothing more from now on; gives the lists that are left.
    pub(super) fn close(&self) -> Vec<Arc<WakeList>> {
        let mut pending = self.0.lock();
        pending.is_closed = true;
        std::mem::take(&mut pending.lists)
    }
}
