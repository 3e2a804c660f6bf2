//! Gap: the versions between a client's version and the log of a cache.

use std::sync::Arc;

use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::api::Status;
use crate::cache::state::SharedCache;
use crate::cache::watch::LogReach;
use crate::cache::watch::WatchError;
use crate::cache::watch::WatchStream;

/// The versions from a client's version to the next one that the log of a cache serves.
///
/// A gap belongs to one epoch of its cache.
#[derive(Clone)]
pub struct Gap {
    shared: Arc<SharedCache>,
    pub(super) epoch: u64,
    /// The client's version, up to which it has everything.
    pub(super) version: ResourceVersion,
}

// === impl Gap ===

impl Gap {
    pub(in crate::cache) fn new(
        shared: &Arc<SharedCache>,
        epoch: u64,
        version: ResourceVersion,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            epoch,
            version,
        }
    }

    /// The 410 for the client, in kubefan's words.
    pub fn expired(&self) -> Status {
        let oldest = self.shared.state.read().log.start();
        Status::expired_watch(self.version, oldest)
    }

    /// Whether a client that has everything up to `version` can continue from the log.
    pub(super) fn reach(&self, version: ResourceVersion) -> LogReach {
        LogReach::of(&self.shared.state.read(), self.epoch, version)
    }

    /// Opens a stream for a client that has everything up to `version`.
    pub(super) fn join(
        &self,
        version: ResourceVersion,
        selection: Arc<Selection>,
    ) -> Result<WatchStream, WatchError> {
        WatchStream::open_bridged(&self.shared, self.epoch, version, selection)
    }
}
