//! Work: a key that a worker has taken.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use super::schedule::Run;
use super::shared::Shared;

/// The run of a key. While this value exists, no other worker gets the key.
///
/// Dropping it ends the run, even if the worker panics or its task is cancelled. If the key was
/// added during the run, it runs again. Otherwise the queue forgets the key, even after a failed
/// run: a worker that fails first calls
/// [`WorkQueue::add_rate_limited`](super::WorkQueue::add_rate_limited).
#[must_use = "dropping it ends the run of the key"]
pub struct Work<K: Eq + Hash + Send + Sync + 'static> {
    pub(super) run: Run<K>,
    pub(super) queue: Arc<Shared<K>>,
}

impl<K: Eq + Hash + Send + Sync + 'static> Work<K> {
    /// Returns the key to work on.
    pub fn key(&self) -> &K {
        &self.run.key
    }

    /// Returns the highest priority of the requests for this run.
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

debug_fields!(
    [K: Eq + Hash + Send + Sync + Debug + 'static] Work<K>,
    |it| key: it.key(), priority: it.priority()
);
