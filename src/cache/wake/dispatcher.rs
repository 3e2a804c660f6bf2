//! Dispatcher: wakes the streams of one thread from that thread.
//!
//! To wake a task on another thread takes a lock of that thread's runtime, and often a system call. So
//! the writer wakes one task a runtime, and that one wakes its neighbours.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use crate::cache::wake::wake_list::Inbox;
use crate::cache::wake::wake_list::WakeList;

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
    lists: Vec<Arc<WakeList>>,
    wakers: Vec<Waker>,
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Becomes the dispatcher of whatever waits on the current thread from now on, in place of an
    /// earlier one.
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
