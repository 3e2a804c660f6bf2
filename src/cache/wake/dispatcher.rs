//! Dispatcher: wakes the streams of one thread from that thread.
//!
//! To wake a task on another thread takes a lock of that thread's runtime, and often a system call. So
//! the writer wakes one task a runtime, and that one wakes its neighbours.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use parking_lot::Mutex;

use crate::cache::wake::wake_set::WakeList;

/// Wakes what waits for a cache on one thread: a future that this thread's runtime has to run, and that
/// never completes.
///
/// For a runtime that polls its tasks on one thread only, and on that thread:
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let serve = async {};
/// let dispatcher = kubefan::cache::Dispatcher::install();
/// runtime.spawn(dispatcher);
/// runtime.block_on(serve);
/// ```
///
/// Whoever waits on a thread without one is woken by the writer itself, and so is everyone from the
/// moment on when this future is dropped.
#[must_use = "nobody on this thread is woken unless it runs"]
pub struct Dispatcher {
    inbox: Arc<Inbox>,
    /// Taken from the inbox in one go; kept for its memory, as are the wakers.
    round: Vec<Arc<WakeList>>,
    wakers: Vec<Waker>,
}

/// Where writers leave word of whom to wake.
#[derive(Default)]
pub(in crate::cache) struct Inbox(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    lists: Vec<Arc<WakeList>>,
    waker: Option<Waker>,
    is_gone: bool,
}

thread_local! {
    static INSTALLED: RefCell<Option<Arc<Inbox>>> = const { RefCell::new(None) };
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Becomes the dispatcher of whatever waits on the current thread from now on, in place of an
    /// earlier one.
    pub fn install() -> Self {
        let inbox = Arc::new(Inbox::default());
        INSTALLED.set(Some(Arc::clone(&inbox)));
        Self {
            inbox,
            round: Vec::new(),
            wakers: Vec::new(),
        }
    }
}

impl Future for Dispatcher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.inbox.take(cx.waker(), &mut this.round);
        for list in this.round.drain(..) {
            list.wake_all(&mut this.wakers);
        }
        Poll::Pending
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let left = {
            let mut pending = self.inbox.0.lock();
            pending.is_gone = true;
            std::mem::take(&mut pending.lists)
        };
        left.iter().for_each(|list| list.wake_all(&mut self.wakers));
    }
}

// === impl Inbox ===

impl Inbox {
    /// The inbox of the current thread's dispatcher, if it has one.
    pub(in crate::cache) fn installed() -> Option<Arc<Self>> {
        INSTALLED.with_borrow(Clone::clone)
    }

    /// True when `inbox` is what [`Inbox::installed`] gives.
    pub(in crate::cache) fn is_installed(inbox: Option<&Arc<Self>>) -> bool {
        INSTALLED.with_borrow(|installed| match (installed, inbox) {
            (Some(installed), Some(inbox)) => Arc::ptr_eq(installed, inbox),
            (None, None) => true,
            _ => false,
        })
    }

    pub(in crate::cache) fn is_gone(&self) -> bool {
        self.0.lock().is_gone
    }

    /// Has everyone on `list` woken, now if there is no dispatcher any more.
    pub(in crate::cache) fn put(&self, list: Arc<WakeList>) {
        let waker = {
            let mut pending = self.0.lock();
            if pending.is_gone {
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
    fn take(&self, waker: &Waker, into: &mut Vec<Arc<WakeList>>) {
        let replaced = {
            let mut pending = self.0.lock();
            std::mem::swap(&mut pending.lists, into);
            pending.waker.replace(waker.clone())
        };
        drop(replaced);
    }
}

#[cfg(test)]
mod tests;
