//! Reader: read access to a cache (snapshots, watches, and waiting for a version).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Instant, timeout_at};

use crate::api::{ResourceVersion, Selection};
use crate::cache::bridge::Gap;
use crate::cache::log::Expired;
use crate::cache::log_cursor::LogCursor;
use crate::cache::objects::Snapshot;
use crate::cache::state::{SharedCache, State};
use crate::cache::stats::Stats;
use crate::cache::watch::{WatchError, WatchFrom, WatchStream};
use crate::mutation;
use crate::mutation::Mutation;

/// Read access to one cache. A clone is cheap, and reads the cache of the original.
#[derive(Clone)]
pub struct Reader {
    pub(super) shared: Arc<SharedCache>,
}

// === impl Reader ===

impl Reader {
    /// Returns true from the first full list on, except between two epochs.
    pub fn is_ready(&self) -> bool {
        self.shared.state.read().content.is_some()
    }

    /// Waits until the cache is ready (returns true) or closed (returns false). Cancel safe.
    pub async fn ready(&self) -> bool {
        self.shared
            .wait_until(|state| state.content.is_some())
            .await
    }

    /// Waits until the cache is closed. Cancel safe.
    pub async fn closed(&self) {
        let shared = &self.shared;
        shared.wait_for_wakes(&shared.end_wakes, |_| false).await;
    }

    /// Waits until all changes up to `rv` are applied, and returns true. Returns false when
    /// `deadline` has passed or the cache was closed. Cancel safe.
    pub async fn wait_for(&self, rv: ResourceVersion, deadline: Instant) -> bool {
        let has_applied = |state: &State| state.applied() >= Some(rv);
        let applied = timeout_at(deadline, self.shared.wait_until(has_applied)).await;
        applied.unwrap_or(false)
    }

    /// Waits until the content comes from a list that began after `time`, and returns true. The
    /// content may include changes after that list. Returns false when `deadline` has passed or the
    /// cache was closed. Cancel safe.
    pub(crate) async fn listed_after(&self, time: Instant, deadline: Instant) -> bool {
        let is_listed = |state: &State| state.content.is_some() && state.list_began > time;
        let listed = timeout_at(deadline, self.shared.wait_until(is_listed)).await;
        listed.unwrap_or(false)
    }

    /// Returns the newest snapshot, or `None` while the cache is not ready.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared.snapshot(&self.shared.state.read())
    }

    /// Returns a snapshot with the objects of `selection` at exactly `rv`: the newest one, or a
    /// pinned one. `None` if there is neither, or if `rv` is inside a hole.
    pub fn snapshot_at(&self, rv: ResourceVersion, selection: &Arc<Selection>) -> Option<Snapshot> {
        let state = self.shared.state.read();
        if state.applied() == Some(rv) {
            return self.shared.snapshot(&state);
        }
        if state.log.hole_around(rv).is_some() {
            return None;
        }
        let age = self.shared.config.retention_age;
        let pins = self.shared.pins.lock();
        pins.get(rv, selection, age, Instant::now())
    }

    /// Returns a copy of `snapshot`, which must be whole, with its version replaced by
    /// `resource_version`. The caller must have proven that the objects of `selection` in
    /// `snapshot` are the state at `resource_version`. If this version is later than that of
    /// `snapshot`, only these objects are proven. Guarded by `the_model_notices_each_broken_rule`.
    ///
    /// A watch of `selection` that starts from the returned snapshot skips changes up to
    /// `resource_version`.
    pub fn proven_at(
        &self,
        snapshot: &Snapshot,
        resource_version: ResourceVersion,
        selection: &Arc<Selection>,
    ) -> Snapshot {
        let proven = &self.shared.proven;
        proven.fetch_max(resource_version.0, Ordering::SeqCst);
        let is_whole = resource_version == snapshot.resource_version
            || selection.is_everything()
            || mutation::is_active(Mutation::PartPinnedAsWhole);
        Snapshot {
            resource_version,
            proven: (!is_whole).then(|| Arc::clone(selection)),
            ..snapshot.clone()
        }
    }

    /// Pins `snapshot`, so that [`Reader::snapshot_at`] finds it within the retention limits. If a
    /// proof covers only the objects of a selection, only these are found. A snapshot of an earlier
    /// epoch is not pinned.
    pub fn pin(&self, snapshot: &Snapshot) {
        let now = Instant::now();
        let evicted = {
            let state = self.shared.state.read();
            let current = state.content.as_ref();
            let Some(content) = current.filter(|_| snapshot.epoch == state.epoch) else {
                return;
            };
            let retention = self.shared.retention(content.store.bytes());
            let mut pins = self.shared.pins.lock();
            pins.add(snapshot.clone(), now);
            let replaced_bytes = self.shared.replaced_bytes.load(Ordering::Relaxed);
            pins.evict(retention, replaced_bytes, now)
        };
        drop(evicted);
    }

    /// Returns the counter of the bytes of all objects that the cache has replaced or deleted. The
    /// increase since [`Snapshot::replaced_bytes`] is an upper bound of the memory that only this
    /// snapshot holds.
    pub fn replaced_bytes(&self) -> &Arc<AtomicU64> {
        &self.shared.replaced_bytes
    }

    /// Opens a watch of the objects that `selection` selects.
    ///
    /// # Errors
    ///
    /// [`WatchError::Expired`] if `start` is older than the log, inside a hole, or probably a
    /// version of an earlier epoch, or if the cache is not ready. [`WatchError::TooManyUnindexed`]
    /// if no index finds the selection, and clients watch too many such selections.
    pub fn watch(
        &self,
        start: WatchFrom,
        selection: Arc<Selection>,
    ) -> Result<WatchStream, WatchError> {
        WatchStream::open(&self.shared, start, selection)
    }

    /// Returns the gap between `version` and the log, if a
    /// [`Bridge`](crate::cache::Bridge) may close it.
    ///
    /// Returns `None` if the log serves `version`, if the cache has not reached `version`, or if
    /// `version` may belong to an earlier epoch.
    ///
    /// # Errors
    ///
    /// [`WatchError::TooManyUnindexed`] as for [`Reader::watch`]. [`WatchError::Expired`] if the
    /// cache has just lost its content.
    pub fn gap(
        &self,
        version: ResourceVersion,
        selection: &Arc<Selection>,
    ) -> Result<Option<Gap>, WatchError> {
        Gap::find(&self.shared, version, selection)
    }

    /// Opens a watch that delivers the objects of `snapshot`, then the changes after it.
    ///
    /// # Errors
    ///
    /// [`WatchError::Expired`] if the log no longer has all changes after `snapshot`, if the
    /// resource version of `snapshot` is inside a hole, or if `snapshot` is of another epoch.
    /// [`WatchError::TooManyUnindexed`] as for [`Reader::watch`].
    pub fn watch_snapshot(
        &self,
        snapshot: Snapshot,
        selection: Arc<Selection>,
    ) -> Result<WatchStream, WatchError> {
        WatchStream::open_at(&self.shared, snapshot, selection)
    }

    /// Opens a watch that delivers only the changes after `snapshot`.
    ///
    /// # Errors
    ///
    /// As for [`Reader::watch_snapshot`].
    pub fn watch_after(
        &self,
        snapshot: &Snapshot,
        selection: Arc<Selection>,
    ) -> Result<WatchStream, WatchError> {
        WatchStream::open_after(&self.shared, snapshot, selection)
    }

    /// Makes the cache remember its last content when a new epoch begins or when it is closed, for
    /// [`Reader::last_snapshot`]. The cache then holds this content until it has new content, or no
    /// reader is left.
    pub fn keep_lost(&self) {
        self.shared.keeps_lost.store(true, Ordering::Relaxed);
    }

    /// Returns the newest snapshot. While the cache is not ready, this is the snapshot of the last
    /// content, if [`Reader::keep_lost`] was called.
    pub fn last_snapshot(&self) -> Option<Snapshot> {
        let state = self.shared.state.read();
        self.shared.snapshot(&state).or_else(|| state.lost.clone())
    }

    /// Returns true if both readers read one cache.
    pub fn is_of_same_cache(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the newest snapshot, and a cursor on the changes after it, or `None` while the cache
    /// is not ready. This is for a view that must never be older than the cache; for clients, call
    /// [`Reader::watch`].
    pub fn follow(&self) -> Option<(Snapshot, LogCursor)> {
        LogCursor::open(&self.shared)
    }

    /// Returns a cursor on the changes after `from`, up to `to`, for a caller that has the state at
    /// `from` in `epoch` and needs the state at `to`. The cache must have applied `to`.
    ///
    /// # Errors
    ///
    /// [`Expired`] if the log does not have all these changes any more, if one of the versions is
    /// inside a hole, or if a new epoch has begun.
    pub fn changes_between(
        &self,
        epoch: u64,
        from: ResourceVersion,
        to: ResourceVersion,
    ) -> Result<LogCursor, Expired> {
        LogCursor::open_between(&self.shared, epoch, from, to)
    }

    /// Waits until the cache has another version or epoch than `snapshot` (returns true), or is
    /// closed (returns false). Cancel safe.
    pub async fn differs_from(&self, snapshot: &Snapshot) -> bool {
        let (epoch, version) = (snapshot.epoch, snapshot.resource_version);
        let differs = |state: &State| state.epoch != epoch || state.applied() != Some(version);
        self.shared.wait_until(differs).await
    }

    /// Returns the applied resource version: the cache has all changes up to it. Returns `None`
    /// while the cache is not ready.
    pub fn applied(&self) -> Option<ResourceVersion> {
        self.shared.state.read().applied()
    }

    /// Returns when the newest change was applied, or `None` if the log retains no change. The
    /// first list of an epoch does not count as a change.
    pub fn changed_at(&self) -> Option<Instant> {
        self.shared.state.read().log.newest_at()
    }

    /// Returns the start of the log: the log has all changes after this version. Returns 0 before
    /// the first list and between epochs.
    pub fn log_start(&self) -> ResourceVersion {
        self.shared.state.read().log.start()
    }

    /// Returns [`Config::shares_versions`](crate::cache::Config::shares_versions).
    pub fn shares_versions(&self) -> bool {
        self.shared.config.shares_versions
    }

    /// Returns the number of open watch streams.
    pub fn watchers(&self) -> usize {
        self.shared.watchers.load(Ordering::Relaxed)
    }

    /// Returns the number of objects in the store, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let state = self.shared.state.read();
        let store = state.content.as_ref().map(|content| &content.store);
        store.map_or((0, 0), |store| (store.len(), store.bytes()))
    }

    /// Returns true if `selection` has conditions on labels or fields, but neither a name, nor a
    /// namespace, nor an index finds its objects. Then a list of it examines all objects.
    pub fn examines_all(&self, selection: &Selection) -> bool {
        let state = self.shared.state.read();
        let content = state.content.as_ref();
        content.is_some_and(|content| content.store.examines_all(selection))
    }

    /// Returns the current size of the cache and its counters, for metrics. It takes three locks.
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.read();
        let store = state.content.as_ref().map(|content| &content.store);
        let (groups, refused_watches, queue_bytes) = {
            let interest = self.shared.interest.lock();
            (interest.len(), interest.refused, interest.queue_bytes())
        };
        Stats {
            objects: store.map_or(0, |store| store.len()),
            bytes: store.map_or(0, |store| store.bytes()),
            applied: state.applied(),
            log_events: state.log.len(),
            log_bytes: state.log.bytes(),
            log_oldest: state.log.oldest_at(),
            log_start: store.map(|_| state.log.start()),
            evicted_early: state.counters.evicted_early + state.log.evicted_early(),
            watchers: self.watchers(),
            groups,
            refused_watches,
            queue_bytes,
            pinned: self.shared.pins.lock().len(),
            ..state.counters.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::api::EventType;
    use crate::cache::cache;
    use crate::cache::tests::support::{config, object};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_the_end_wakes_those_that_wait_for_it() {
        let (mut writer, reader) = cache(config());
        let relist = writer.relist();
        writer.replace(relist, ResourceVersion(1));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut closed = pin!(reader.closed());
        assert!(closed.as_mut().poll(&mut cx).is_pending());
        let added = object("a", "1", 2, "x");
        let applied = writer.apply(EventType::Added, added, None);
        applied.expect("a newer version");
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        drop(writer);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(closed.as_mut().poll(&mut cx).is_ready());
    }
}
