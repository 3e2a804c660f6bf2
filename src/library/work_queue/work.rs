//! Work: a key that a worker has taken.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::schedule::Run;
use super::shared::Shared;

/// The run of a key. While it exists, no other worker gets the key.
///
/// Dropping it ends the run, even if the worker panics or its task is cancelled. If the key was
/// added during the run, it runs again. Otherwise the queue forgets it, whatever the result of the
/// run was: a worker that fails calls
/// [`WorkQueue::add_rate_limited`](super::WorkQueue::add_rate_limited) first.
#[must_use = "dropping it ends the run of the key"]
pub struct Work<K: Eq + Hash + Send + Sync + 'static> {
    run: Run<K>,
    queue: Arc<Shared<K>>,
}

impl<K: Eq + Hash + Send + Sync + 'static> Work<K> {
    pub(super) fn new(run: Run<K>, queue: Arc<Shared<K>>) -> Self {
        Self { run, queue }
    }

    /// The key to work on.
    pub fn key(&self) -> &K {
        &self.run.key
    }

    /// The highest priority with which the key was added since its last run.
    pub fn priority(&self) -> i32 {
        self.run.priority
    }

    /// Ends the run, like dropping this value.
    pub fn done(self) {}
}

impl<K: Eq + Hash + Send + Sync + 'static> Drop for Work<K> {
    fn drop(&mut self) {
        self.queue.done(&self.run);
    }
}

impl<K: Eq + Hash + Send + Sync + fmt::Debug + 'static> fmt::Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("key", self.key())
            .field("priority", &self.priority())
            .finish_non_exhaustive()
    }
}
