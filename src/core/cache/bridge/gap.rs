//! Gap: the versions between a client's version and the log of a cache.

use std::sync::Arc;

use crate::api::{ResourceVersion, Selection, Status};
use crate::cache::log::{Event, Expired};
use crate::cache::state::SharedCache;
use crate::cache::watch::{LogReach, WatchError, WatchFrom, WatchStream, needs_bridge};

/// The events that a client misses: from the client's version up to the first later version that
/// the log of the cache can serve.
///
/// A gap belongs to one epoch of its cache.
pub struct Gap {
    pub(super) epoch: CacheEpoch,
    /// The client's version: the client has everything up to it.
    pub(super) version: ResourceVersion,
    /// A stream that is never read. It holds a place in the group of the client's selection. So a
    /// selection beyond the limit of unindexed selections is refused before the bridge starts, and
    /// not at its end. Guarded by `a_selection_over_the_limit_gets_no_bridge`.
    placeholder: WatchStream,
}

/// One epoch of a cache.
#[derive(Clone)]
pub(super) struct CacheEpoch {
    shared: Arc<SharedCache>,
    number: u64,
}

// === impl Gap ===

impl Gap {
    /// Returns the gap between `version` and the log, or `None` if there is none
    /// that a bridge may close.
    pub(in crate::cache) fn find(
        shared: &Arc<SharedCache>,
        version: ResourceVersion,
        selection: &Arc<Selection>,
    ) -> Result<Option<Self>, WatchError> {
        let number = {
            let state = shared.state.read();
            if !needs_bridge(&state, version) {
                return Ok(None);
            }
            state.epoch
        };
        Ok(Some(Self {
            epoch: CacheEpoch {
                shared: Arc::clone(shared),
                number,
            },
            version,
            placeholder: WatchStream::open(shared, WatchFrom::Tip, Arc::clone(selection))?,
        }))
    }

    /// Returns a 410 for the client, with kubefan's message.
    pub fn expired(&self) -> Status {
        let oldest = self.epoch.shared.state.read().log.start();
        Status::expired_watch(self.version, oldest)
    }

    /// Returns [`WatchStream::limited_units`] of the placeholder.
    pub(super) fn limited_units(&self) -> usize {
        self.placeholder.limited_units()
    }

    /// Returns true if the object of `event` belongs to the client's shard. The upstream does not
    /// select by shards, because not every API server can. An object stays in its shard, so the
    /// upstream's event type is the verdict. Guarded by `a_bridge_gives_each_watch_its_shard`.
    pub(super) fn is_of_shard(&self, event: &Event) -> bool {
        self.placeholder.selection().is_of_shard(&event.object)
    }

    /// Opens a stream for a client that has everything up to `version`.
    pub(super) fn join(&self, version: ResourceVersion) -> Result<WatchStream, Expired> {
        WatchStream::open_bridged(&self.placeholder, self.epoch.number, version)
    }
}

// === impl CacheEpoch ===

impl CacheEpoch {
    /// Returns whether a client that has everything up to `version` can continue from the log.
    pub(super) fn reach(&self, version: ResourceVersion) -> LogReach {
        LogReach::of(&self.shared.state.read(), self.number, version)
    }

    pub(super) fn shares_versions(&self) -> bool {
        self.shared.config.shares_versions
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.number == other.number
    }
}
