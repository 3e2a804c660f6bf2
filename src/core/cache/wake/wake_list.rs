//! WakeList: the readers on one thread that are woken together, and the dispatcher's inbox.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use crate::cache::sync::{AtomicBool, Mutex, thread_local};
use crate::cache::wake::slots::Slots;

/// The readers that are woken together, with the wakers that they registered since the last wake.
pub(super) struct WakeList {
    /// The inbox of the dispatcher that wakes the readers; `None` if the writer wakes them.
    inbox: Option<Arc<Inbox>>,
    /// True if a reader may have registered since the last [`WakeList::notify`].
    is_armed: AtomicBool,
    pub(super) slots: Mutex<Slots>,
}

/// The wake lists that writers have passed to one dispatcher.
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
    /// Creates an empty list for readers on the current thread.
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::installed(),
            is_armed: AtomicBool::new(false),
            slots: Mutex::default(),
        }
    }

    /// Returns true if readers that wait on the current thread belong to this list.
    pub(super) fn is_local(&self) -> bool {
        Inbox::is_installed(self.inbox.as_ref())
    }

    /// Registers `waker` for one wake. Drop the returned earlier waker outside of all locks.
    pub(super) fn arm(&self, slot: u32, waker: &Waker) -> Option<Waker> {
        let mut slots = self.slots.lock();
        let replaced = slots.arm(slot, waker);
        self.is_armed.store(true, Ordering::SeqCst);
        replaced
    }

    /// Frees a reader's slot. Returns its waker, which the caller must drop outside of all locks.
    pub(super) fn release(&self, slot: u32) -> Option<Waker> {
        self.slots.lock().release(slot)
    }

    /// Wakes all readers that registered since the last call. `wakers` lends its memory.
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

    /// Returns true if the dispatcher was dropped and no other reference exists, so no
    /// reader can register.
    pub(super) fn is_abandoned(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.inbox.as_ref().is_some_and(|inbox| inbox.is_closed())
    }
}

// === impl Inbox ===

impl Inbox {
    /// Creates the inbox of the current thread, in place of an earlier one.
    pub(super) fn install() -> Arc<Self> {
        let inbox = Arc::new(Self::default());
        INSTALLED.with(|installed| installed.replace(Some(Arc::clone(&inbox))));
        inbox
    }

    /// Returns the inbox of the current thread's dispatcher, if the thread has one.
    fn installed() -> Option<Arc<Self>> {
        INSTALLED.with(|installed| installed.borrow().clone())
    }

    /// Returns true if `inbox` is the inbox of the current thread, or if both are `None`.
    fn is_installed(inbox: Option<&Arc<Self>>) -> bool {
        INSTALLED.with(|installed| match (&*installed.borrow(), inbox) {
            (Some(installed), Some(inbox)) => Arc::ptr_eq(installed, inbox),
            (None, None) => true,
            _ => false,
        })
    }

    fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Makes the dispatcher wake the readers of `list`. A closed inbox wakes them directly.
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

    /// Moves all lists to the empty `into`, and stores `waker` for the next [`Inbox::put`].
    pub(super) fn take(&self, waker: &Waker, into: &mut Vec<Arc<WakeList>>) {
        let replaced = {
            let mut pending = self.0.lock();
            std::mem::swap(&mut pending.lists, into);
            pending.waker.replace(waker.clone())
        };
        drop(replaced);
    }

    /// Closes the inbox and returns the lists that are still in it.
    pub(super) fn close(&self) -> Vec<Arc<WakeList>> {
        let mut pending = self.0.lock();
        pending.is_closed = true;
        std::mem::take(&mut pending.lists)
    }
}
