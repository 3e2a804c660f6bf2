//! The last proof of everything, for resources whose reads may be some time behind.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::Snapshot;

/// Remembers the last proof of everything.
#[derive(Default)]
pub(super) struct RecentProof {
    last: Mutex<Option<WholeProof>>,
}

/// A proof of everything, and when it was asked for.
struct WholeProof {
    requested_at: Instant,
    epoch: u64,
    version: ResourceVersion,
    /// The state, as long as the cache itself has no newer one.
    snapshot: Option<Snapshot>,
}

// === impl RecentProof ===

impl RecentProof {
    /// Keeps a proof of everything, unless a newer one was kept meanwhile.
    pub(super) fn remember(&self, requested_at: Instant, snapshot: &Snapshot) {
        let mut last = self.last.lock();
        let version = snapshot.resource_version();
        let is_newer = last
            .as_ref()
            .is_none_or(|last| last.epoch != snapshot.epoch() || last.version <= version);
        if is_newer {
            *last = Some(WholeProof {
                requested_at,
                epoch: snapshot.epoch(),
                version,
                snapshot: Some(snapshot.clone()),
            });
        }
    }

    /// The newest state, if all up to a moment less than `bound` ago is in it; the cache's own is
    /// `newest`.
    pub(super) fn within(&self, bound: Duration, newest: Snapshot) -> Option<Snapshot> {
        let mut last = self.last.lock();
        let last = last.as_mut()?;
        if last.requested_at.elapsed() > bound || last.epoch != newest.epoch() {
            return None;
        }
        if newest.resource_version() >= last.version {
            last.snapshot = None;
            return Some(newest);
        }
        // A version that was shown once must not be followed by a lower one.
        last.snapshot.clone()
    }
}
