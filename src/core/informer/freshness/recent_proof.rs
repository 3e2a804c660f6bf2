//! The last proof of all objects of a cache. With the policies `Bounded` and `Session`, reads use
//! the proof again as long as it covers what they need. It holds no objects in memory: a read gets
//! the cache's newest snapshot, or none. Guarded by `a_recent_proof_keeps_no_objects`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::{Reader, Snapshot};

/// The last proof of all objects of the cache, if any.
#[derive(Default)]
pub(super) struct RecentProof {
    last: Mutex<Option<WholeProof>>,
    /// The epoch and the highest version of the proofs of some objects, which clients may have seen.
    shown: Mutex<Option<(u64, ResourceVersion)>>,
}

/// A proof of all objects of the cache, not only of those that one reader selects.
#[derive(Clone, Copy)]
struct WholeProof {
    /// When the proof was requested. It covers all changes before this moment.
    requested_at: Instant,
    epoch: u64,
    version: ResourceVersion,
    /// The version that the cache had applied. It is below `version` if a list proved the objects
    /// for a later version.
    applied: ResourceVersion,
}

// === impl RecentProof ===

impl RecentProof {
    /// Stores that `proven`, a proof of all objects of the cache, was requested at `requested_at` or
    /// later, unless the stored proof has a higher version in its epoch. `newest` is the
    /// cache's newest snapshot.
    pub(super) fn remember(&self, requested_at: Instant, proven: &Snapshot, newest: &Snapshot) {
        let version = proven.resource_version();
        let applied = newest.resource_version();
        let has_proven_objects = applied >= version || newest.has_no_change_since(proven);
        if newest.epoch() != proven.epoch() || !has_proven_objects {
            return;
        }
        let mut last = self.last.lock();
        // A cache that has reached the higher version also has what the stored proof covers.
        let requested_at = match *last {
            Some(last) if last.epoch == proven.epoch() => {
                if last.version > version {
                    return;
                }
                last.requested_at.max(requested_at)
            }
            _ => requested_at,
        };
        *last = Some(WholeProof {
            requested_at,
            epoch: proven.epoch(),
            version,
            applied,
        });
    }

    /// Notes that some objects of the cache were proven for the version of `part`.
    pub(super) fn show(&self, part: &Snapshot) {
        let part = (part.epoch(), part.resource_version());
        let mut shown = self.shown.lock();
        *shown = (*shown).max(Some(part));
    }

    /// Returns a snapshot of the cache of `reader` that contains all changes up to a moment at most
    /// `bound` ago. Returns `None` if there is no such proof, as [`RecentProof::since`] does.
    pub(super) fn within(&self, bound: Duration, reader: &Reader) -> Option<Snapshot> {
        self.newest(reader, |requested_at| requested_at.elapsed() <= bound)
    }

    /// Returns a snapshot of the cache of `reader` that contains all changes that the API server
    /// had acknowledged by `moment`. Returns `None` if the cache's epoch has no proof that was
    /// requested at `moment` or later. Also returns `None` if the cache has changed since the
    /// proof, but has not reached the proven version: clients may have seen this version, and must
    /// not get an older one afterwards.
    pub(super) fn since(&self, moment: Instant, reader: &Reader) -> Option<Snapshot> {
        self.newest(reader, |requested_at| requested_at >= moment)
    }

    /// Returns true if the epoch of `newest` has a proof for a later version.
    pub(super) fn is_ahead_of(&self, newest: &Snapshot) -> bool {
        let last = *self.last.lock();
        last.is_some_and(|last| {
            last.epoch == newest.epoch() && last.version > newest.resource_version()
        })
    }

    fn shown_in(&self, epoch: u64) -> ResourceVersion {
        let shown = *self.shown.lock();
        let shown = shown.filter(|(of_epoch, _)| *of_epoch == epoch);
        shown.map_or(ResourceVersion::ZERO, |(_, version)| version)
    }

    fn newest(
        &self,
        reader: &Reader,
        is_fresh_enough: impl FnOnce(Instant) -> bool,
    ) -> Option<Snapshot> {
        let last = (*self.last.lock())?;
        let newest = reader.snapshot()?;
        if !is_fresh_enough(last.requested_at) || last.epoch != newest.epoch() {
            return None;
        }
        match newest.resource_version() {
            applied if applied >= last.version.max(self.shown_in(last.epoch)) => Some(newest),
            applied if applied == last.applied => {
                Some(reader.proven_at(&newest, last.version, &Arc::default()))
            }
            _ => None,
        }
    }
}
