//! The last proof of a whole cache. With the policy `Bounded`, reads use it again until it is too
//! old.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::Snapshot;

/// The last proof of the whole cache, if any.
#[derive(Default)]
pub(super) struct RecentProof {
    last: Mutex<Option<WholeProof>>,
}

/// A proof of the whole cache: it covers all objects, not only those that one reader selects.
struct WholeProof {
    /// When the proof was requested. It covers all changes before this moment.
    requested_at: Instant,
    epoch: u64,
    version: ResourceVersion,
    /// The proven snapshot; `None` once the cache itself was seen to have reached `version`.
    snapshot: Option<Snapshot>,
}

// === impl RecentProof ===

impl RecentProof {
    /// Keeps a proof of the whole cache that was requested at `requested_at`, unless the kept one
    /// has a higher version in the same epoch.
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

    /// A snapshot that contains all changes up to a moment at most `bound` ago; `None` if no proof
    /// in the epoch of `newest`, the cache's newest snapshot, is that recent.
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
        // A list proved a version that the cache has not reached. Readers may have seen this
        // version, so `newest`, with a lower version, must not follow.
        last.snapshot.clone()
    }
}
