//! LogCursor: reads every change that a cache applies, exactly up to its applied version.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::api::ResourceVersion;
use crate::cache::log::{Batch, Event, Expired};
use crate::cache::objects::Snapshot;
use crate::cache::state::{SharedCache, State};
use crate::mutation;
use crate::mutation::Mutation;

/// Maximum number of changes that a cursor fetches in one step.
const BATCH: usize = 64;

/// A position in the event log, for a view of the cache that must never be older than the cache.
///
/// A [`WatchStream`](crate::cache::WatchStream) may get a change a moment after snapshots show it,
/// because the writer queues changes for its streams. A cursor reads the log itself: after it has
/// returned everything, its reader has exactly the cache's state. It has no waker and belongs to no
/// group. It counts as one of the cache's watchers.
pub struct LogCursor {
    shared: Arc<SharedCache>,
    epoch: u64,
    /// All changes before this log position are fetched.
    position: u64,
    /// The cursor ends at this log position; `None` if it follows the cache.
    end: Option<u64>,
    batch: Batch,
}

// === impl LogCursor ===

impl LogCursor {
    /// Returns the newest snapshot, and a cursor on the changes after it, or `None` while the cache
    /// is not ready.
    pub(super) fn open(shared: &Arc<SharedCache>) -> Option<(Snapshot, Self)> {
        let state = shared.state.read();
        let snapshot = shared.snapshot(&state)?;
        let position = state.log.position_of_open(snapshot.resource_version);
        let cursor = Self::begin(shared, &state, position, None);
        Some((snapshot, cursor))
    }

    /// Returns a cursor on the changes after `from`, up to `to`, which the cache must have applied.
    pub(super) fn open_between(
        shared: &Arc<SharedCache>,
        epoch: u64,
        from: ResourceVersion,
        to: ResourceVersion,
    ) -> Result<Self, Expired> {
        let state = shared.state.read();
        if epoch != state.epoch {
            return Err(state.expired(from));
        }
        let position = state.log.position_after(from)?;
        let end = state.log.position_after(to)?;
        Ok(Self::begin(shared, &state, position, Some(end)))
    }

    fn begin(shared: &Arc<SharedCache>, state: &State, position: u64, end: Option<u64>) -> Self {
        shared.watchers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            epoch: state.epoch,
            position,
            end,
            batch: Batch::default(),
        }
    }

    /// Returns the next change, or `None` if all applied changes, or all up to the cursor's end,
    /// were returned.
    ///
    /// # Errors
    ///
    /// [`Expired`] if the log has dropped the next change, or if a new epoch has begun. Then every
    /// further call returns the error too, and the caller needs a new snapshot.
    pub fn next_applied(&mut self) -> Result<Option<Arc<Event>>, Expired> {
        if self.batch.is_empty() {
            let state = self.shared.state.read();
            let expired = state.expired(state.applied().unwrap_or_default());
            if self.epoch != state.epoch {
                return Err(expired);
            }
            if mutation::is_active(Mutation::CursorSkipsEvicted) {
                self.position = self.position.max(state.log.first());
            }
            let left = self.end.map(|end| end.saturating_sub(self.position));
            let max = left.map_or(BATCH, |left| left.min(BATCH as u64) as usize);
            let read = state.log.read(self.position, max, &mut self.batch);
            self.position = read.ok_or(expired)?;
        }
        Ok(self.batch.pop_front().map(|(event, _)| event))
    }

    /// Returns true if all applied changes were returned, and the cursor has not expired.
    pub fn is_at_tip(&self) -> bool {
        let state = self.shared.state.read();
        self.batch.is_empty() && self.epoch == state.epoch && self.position == state.log.tip()
    }

    /// Waits until [`LogCursor::next_applied`] has something to return, an error included. Returns
    /// false if the cache was closed and everything was returned. Cancel safe.
    pub fn changed(&self) -> impl Future<Output = bool> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        let (epoch, position) = (self.epoch, self.position);
        let is_fetched = self.batch.is_empty();
        let is_beyond = move |state: &State| {
            if state.epoch == epoch {
                state.log.tip() > position
            } else {
                state.content.is_some()
            }
        };
        async move { !is_fetched || shared.wait_until(is_beyond).await }
    }
}

impl Drop for LogCursor {
    fn drop(&mut self) {
        self.shared.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
