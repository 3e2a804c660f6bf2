//! Writer: write access to a cache, for its one owner (normally the reflector).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::cache::config::Config;
use crate::cache::groups::Group;
use crate::cache::log::EventLog;
use crate::cache::objects::Content;
use crate::cache::objects::Store;
use crate::cache::reader::Reader;
use crate::cache::state::SharedCache;
use crate::cache::stats::EpochCause;
use crate::cache::update::Update;
use crate::cache::write::difference::ReplaceOutcome;
use crate::cache::write::frame_backed_objects::FrameBackedQueue;
use crate::cache::write::relist::Relist;

/// Write access to a cache. A cache has exactly one writer. Dropping the writer closes the cache
/// and ends all watches cleanly.
pub struct Writer {
    shared: Arc<SharedCache>,
    reader: Reader,
    /// The groups whose streams must be woken; empty between changes, and kept for its memory.
    to_wake: Vec<Arc<Group>>,
    wakers: Vec<Waker>,
    /// Stored objects whose frames the log has evicted; copying their bodies may save memory.
    frame_backed: FrameBackedQueue,
}

/// The error of [`Writer::apply`] and [`Writer::bookmark`]: the received version belongs to another
/// history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("resource version went back from {applied} to {received}")]
pub struct WentBack {
    /// The resource version up to which all changes are applied.
    pub applied: ResourceVersion,
    /// The resource version that was received.
    pub received: ResourceVersion,
}

/// Number of groups and of wakers for which memory is kept between changes.
const IDLE_CAPACITY: usize = 4096;

// === impl Writer ===

impl Writer {
    pub(in crate::cache) fn new(config: Config) -> Self {
        let shared = Arc::new(SharedCache::new(config));
        let reader = Reader::new(shared.clone());
        Self {
            shared,
            reader,
            to_wake: Vec::new(),
            wakers: Vec::new(),
            frame_backed: FrameBackedQueue::default(),
        }
    }

    /// Applies a change that was received from the upstream watch; `frame` is its watch frame.
    ///
    /// An object that is stored already with the same bytes is skipped, because a resumed watch may
    /// repeat it. A deletion of an object that is not stored only increases the applied version.
    ///
    /// # Errors
    ///
    /// The version of the change is not above the applied version, or the first list was not
    /// applied yet. In both cases the cache is unchanged.
    pub fn apply(
        &mut self,
        event_type: EventType,
        object: Object,
        frame: Option<Bytes>,
    ) -> Result<(), WentBack> {
        let received = object.resource_version;
        let content = self.content().ok_or(WentBack {
            applied: ResourceVersion::ZERO,
            received,
        })?;
        if received <= content.applied {
            let stored = content.store.get(object.key.as_str());
            let is_stored = stored.is_some_and(|stored| **stored == object);
            return match event_type {
                EventType::Added | EventType::Modified if is_stored => Ok(()),
                _ => Err(WentBack {
                    applied: content.applied,
                    received,
                }),
            };
        }
        let upstream_frame = frame.map(|frame| (event_type, frame));
        let update = match event_type {
            EventType::Deleted => Update::deletion(&content, object, upstream_frame),
            EventType::Added | EventType::Modified => {
                Update::upsert(&content, object, upstream_frame)
            }
        };
        self.commit(update);
        Ok(())
    }

    /// Records that all changes up to `rv` are applied.
    ///
    /// # Errors
    ///
    /// `rv` is below the applied version, or the first list was not applied yet. In both cases the
    /// cache is unchanged.
    pub fn bookmark(&mut self, rv: ResourceVersion) -> Result<(), WentBack> {
        let applied = self.applied();
        let content = self.content().filter(|content| rv >= content.applied);
        let content = content.ok_or(WentBack {
            applied: applied.unwrap_or_default(),
            received: rv,
        })?;
        self.commit(Update::without_events(content.store, rv));
        Ok(())
    }

    /// Starts a relist. Do not apply changes until the relist is passed to [`Writer::replace`].
    ///
    /// A complete relist takes a key and a handle for each object, and the bytes of the objects
    /// that differ from the store.
    pub fn relist(&self) -> Relist {
        let stored = self.content().map(|content| content.store);
        let empty = || Arc::new(Store::new(&self.shared.config));
        Relist::new(stored.unwrap_or_else(empty))
    }

    /// Makes the cache equal to `relist`, which is complete at `rv`.
    pub fn replace(&mut self, relist: Relist, rv: ResourceVersion) -> ReplaceOutcome {
        let Some(content) = self.content() else {
            self.begin(relist, rv, None);
            return ReplaceOutcome::First;
        };
        match relist.difference(&content.store, content.applied, rv) {
            Ok(difference) => {
                let replaced = difference.outcome();
                let update = difference.into_update(content.applied, rv);
                self.shared.state.write().counters.relists += 1;
                self.commit(update);
                replaced
            }
            Err(cause) => {
                self.begin(relist, rv, Some(cause));
                ReplaceOutcome::NewEpoch(cause)
            }
        }
    }

    /// Starts a new epoch: drops the store, the log and all pinned snapshots, and expires all
    /// watches. The cache is not ready until the next [`Writer::replace`].
    pub fn new_epoch(&mut self, cause: EpochCause) {
        self.restart(None, Some(cause));
    }

    /// Drops all events and pinned snapshots, like a compaction of etcd. Starts below the applied
    /// version expire, and so do open watches that still need a dropped event.
    pub fn forget_history(&mut self) {
        let Some(applied) = self.applied() else {
            return;
        };
        let dropped = {
            let mut state = self.shared.state.write();
            let evicted = state.log.forget(applied);
            let mut interest = self.shared.interest.lock();
            interest.evict(state.log.first());
            self.to_wake.extend(interest.groups().cloned());
            (evicted, self.shared.pins.lock().take())
        };
        self.wake();
        drop(dropped);
    }

    /// The version up to which all changes are applied; `None` while the cache is not ready.
    pub fn applied(&self) -> Option<ResourceVersion> {
        self.shared.state.read().applied()
    }

    /// A reader of this cache, which can be cloned.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Closes the cache. Each watch delivers the events that are in the log, and then ends cleanly.
    pub fn close(self) {
        drop(self);
    }

    #[cfg(test)]
    pub(in crate::cache) fn shared(&self) -> &SharedCache {
        &self.shared
    }

    fn content(&self) -> Option<Content> {
        self.shared.state.read().content.clone()
    }

    /// Makes `relist` the first content of the cache, or of a new epoch if there is a `cause`.
    fn begin(&mut self, relist: Relist, rv: ResourceVersion, cause: Option<EpochCause>) {
        let store = relist.to_store(Store::new(&self.shared.config));
        let content = Content {
            store: Arc::new(store),
            applied: rv,
        };
        self.shared.state.write().counters.relists += 1;
        self.restart(Some(content), cause);
    }

    /// Replaces store and log by `content` and an empty log, in a new epoch if there is a `cause`.
    fn restart(&mut self, content: Option<Content>, cause: Option<EpochCause>) {
        let start = content.as_ref().map(|content| content.applied);
        let log = EventLog::new(start.unwrap_or_default());
        let dropped = {
            let mut state = self.shared.state.write();
            if cause.is_some() {
                state.epoch += 1;
                state.counters.epochs += 1;
                state.counters.last_epoch_cause = cause;
                let proven = ResourceVersion(self.shared.proven.load(Ordering::SeqCst));
                let applied = state.applied().unwrap_or_default();
                state.newest_earlier_version =
                    state.newest_earlier_version.max(applied).max(proven);
            }
            state.counters.evicted_early += state.log.evicted_early();
            let content = std::mem::replace(&mut state.content, content);
            let log = std::mem::replace(&mut state.log, log);
            let interest = self.shared.interest.lock().expire();
            self.to_wake.extend(interest.groups().cloned());
            (content, log, interest, self.shared.pins.lock().take())
        };
        self.wake();
        // Freeing this memory may take long, so do it after unlocking and waking.
        drop(dropped);
    }

    /// Applies `update` to store and log in one critical section, and then wakes the streams.
    /// Guarded by `i1_the_log_tip_is_the_store_version` and `i1_the_wake_up_comes_after_both`.
    fn commit(&mut self, mut update: Update) {
        let now = Instant::now();
        let opens_hole = update.opens_hole;
        let retention = self.shared.retention(update.content.store.bytes());
        let replaced =
            self.frame_backed.detach_bodies(&mut update.content) + update.replaced_bytes();
        let to_wake = &mut self.to_wake;
        let (leftovers, replaced_bytes) = {
            let mut state = self.shared.state.write();
            state.counters.replaced_bytes += replaced;
            let mut interest = self.shared.interest.lock();
            let leftovers = state.append(update, &mut interest, to_wake, retention, now);
            if opens_hole {
                self.shared.opened_holes.fetch_add(1, Ordering::Release);
            }
            (leftovers, state.counters.replaced_bytes)
        };
        self.wake();
        self.frame_backed.extend(&leftovers.evicted);
        let unpinned = self
            .shared
            .pins
            .lock()
            .evict(retention, replaced_bytes, now);
        drop((leftovers, unpinned));
    }

    /// Wakes all readers that wait for a version, and the streams of the groups in `to_wake`.
    fn wake(&mut self) {
        self.shared.wakes.notify(&mut self.wakers);
        for group in self.to_wake.drain(..) {
            group.wakes.notify(&mut self.wakers);
        }
        self.to_wake.shrink_to(IDLE_CAPACITY);
        self.wakers.shrink_to(IDLE_CAPACITY);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Streams still deliver the rest of their queues. All other reads find the cache not ready.
        let dropped = {
            let mut state = self.shared.state.write();
            state.is_closed = true;
            let interest = self.shared.interest.lock();
            self.to_wake.extend(interest.groups().cloned());
            self.to_wake.iter().for_each(|group| group.close());
            (state.content.take(), self.shared.pins.lock().take())
        };
        self.wake();
        drop(dropped);
    }
}
