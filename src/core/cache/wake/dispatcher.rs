//! Dispatcher: wakes the streams of one thread from that thread.
//!
//! Waking a task on another thread needs a lock of that thread's runtime, and often a system call.
//! So the writer wakes only one task per thread, and this task wakes the streams of its thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::cache::wake::wake_list::{Inbox, WakeList};

/// A future that wakes the readers of all caches that wait on one thread. It never completes, and
/// the thread's runtime must run it.
///
/// Use it only with a runtime that polls its tasks on one thread, and install it on that thread:
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let serve = async {};
/// let dispatcher = kubefan_core::cache::Dispatcher::install();
/// runtime.spawn(dispatcher);
/// runtime.block_on(serve);
/// ```
///
/// The writer itself wakes the readers on a thread without a dispatcher, and also the readers of a
/// dispatcher that was dropped.
#[must_use = "no reader on this thread is woken unless it runs"]
pub struct Dispatcher {
    inbox: Arc<Inbox>,
    /// The lists taken from the inbox. Empty between polls; the vector is reused to save
    /// allocations.
    lists: Vec<Arc<WakeList>>,
    wakers: Vec<Waker>,
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Creates the dispatcher of the current thread, which replaces an earlier one for new waits.
    pub fn install() -> Self {
        Self {
            inbox: Inbox::install(),
            lists: Vec::new(),
            wakers: Vec::new(),
        }
    }
}

impl Future for Dispatcher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.inbox.take(cx.waker(), &mut this.lists);
        for list in this.lists.drain(..) {
            list.wake_all(&mut this.wakers);
        }
        Poll::Pending
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let left = self.inbox.close();
        left.iter().for_each(|list| list.wake_all(&mut self.wakers));
    }
}

#[cfg(test)]
mod tests;
