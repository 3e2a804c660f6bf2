//! The last proof of all objects of a cache. With the policies `Bounded` and `Session`, reads use
//! the proof again as long as it covers what they need. It holds no objects in memory: a read gets
//! the cache's newest snapshot, or none. Guarded by `a_recent_proof_keeps_no_objects` and
//! `a_proof_serves_later_reads_unless_clients_may_have_seen_a_newer_state`.

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
    shown: Mutex<Option<Shown>>,
}

/// A proof of all objects of the cache, not only of those that one reader selects.
#[derive(Clone, Copy)]
struct WholeProof {
    /// When the proof was requested. It covers all changes before this moment.
    requested_at: Instant,
    epoch: u64,
    version: ResourceVersion,
    /// The newest change of the proven objects. Until the cache has a later one, it has these
    /// objects, even if it has not reached `version`.
    changed: ResourceVersion,
}

/// What clients may have seen by the proofs of an epoch.
#[derive(Clone, Copy)]
struct Shown {
    epoch: u64,
    /// The highest version. A cache that has reached it is older than none of these proofs.
    version: ResourceVersion,
    /// The newest change of the cache when it was proven. A cache without a later change is older
    /// than none of these proofs either. `None` if proofs had different objects: only a cache that
    /// has reached `version` is surely as new as all of them.
    changed: Option<ResourceVersion>,
}

// === impl RecentProof ===

impl RecentProof {
    /// Stores that `proven`, a proof of all objects of the cache, was requested at `requested_at`
    /// or later, unless the stored proof is of a later epoch or has a higher version in its epoch.
    pub(super) fn remember(&self, requested_at: Instant, proven: &Snapshot) {
        let (epoch, version) = (proven.epoch(), proven.resource_version());
        let mut last = self.last.lock();
        let requested_at = match *last {
            Some(last) if (last.epoch, last.version) > (epoch, version) => return,
            // A cache that has reached the higher version also has what the stored proof covers.
            Some(last) if last.epoch == epoch => last.requested_at.max(requested_at),
            _ => requested_at,
        };
        *last = Some(WholeProof {
            requested_at,
            epoch,
            version,
            changed: proven.newest_change(),
        });
    }

    /// Notes that clients may see the objects of `proven`, which may be some or all of the cache.
    pub(super) fn show(&self, proven: &Snapshot) {
        let changed = proven.newest_change();
        let next = Shown {
            epoch: proven.epoch(),
            version: proven.resource_version(),
            changed: Some(changed),
        };
        // All objects of the cache are a state of this version or later.
        let whole_version = if proven.is_whole() {
            next.version
        } else {
            changed
        };
        let mut shown = self.shown.lock();
        *shown = Some(match *shown {
            Some(earlier) if earlier.epoch > next.epoch => earlier,
            Some(earlier) if earlier.epoch == next.epoch && earlier.version > whole_version => {
                Shown {
                    version: earlier.version.max(next.version),
                    changed: earlier.changed.filter(|earlier| *earlier == changed),
                    ..next
                }
            }
            _ => next,
        });
    }

    /// Returns a snapshot of the cache of `reader` that contains all changes up to a moment at most
    /// `bound` ago, and the moment. Returns `None` if there is no such proof, as
    /// [`RecentProof::since`] does.
    pub(super) fn within(&self, bound: Duration, reader: &Reader) -> Option<(Snapshot, Instant)> {
        self.newest(reader, |requested_at| requested_at.elapsed() <= bound)
    }

    /// Returns a snapshot of the cache of `reader` that contains all changes that the API server
    /// had acknowledged by `moment`, and the latest moment for which this holds. Returns `None` if
    /// the cache's epoch has no proof that was requested at `moment` or later. Also returns `None`
    /// if the cache has changed since the proof, but has not reached the proven version, or is
    /// behind what another proof has shown: clients may have seen this version, and must not get an
    /// older state afterwards.
    pub(super) fn since(&self, moment: Instant, reader: &Reader) -> Option<(Snapshot, Instant)> {
        self.newest(reader, |requested_at| requested_at >= moment)
    }

    /// Returns true if `newest`, the cache's newest snapshot, may be older than what a proof in its
    /// epoch has shown.
    pub(super) fn is_ahead_of(&self, newest: &Snapshot) -> bool {
        let shown = *self.shown.lock();
        shown.is_some_and(|shown| {
            shown.epoch == newest.epoch()
                && shown.version > newest.resource_version()
                && shown.changed != Some(newest.newest_change())
        })
    }

    fn newest(
        &self,
        reader: &Reader,
        is_fresh_enough: impl FnOnce(Instant) -> bool,
    ) -> Option<(Snapshot, Instant)> {
        let last = (*self.last.lock())?;
        let newest = reader.snapshot()?;
        let is_of_epoch = last.epoch == newest.epoch();
        if !is_fresh_enough(last.requested_at) || !is_of_epoch || self.is_ahead_of(&newest) {
            return None;
        }
        if newest.resource_version() >= last.version {
            return Some((newest, last.requested_at));
        }
        let has_proven_objects = newest.newest_change() == last.changed;
        has_proven_objects.then(|| {
            let proven = reader.proven_at(&newest, last.version, &Arc::default());
            (proven, last.requested_at)
        })
    }
}
