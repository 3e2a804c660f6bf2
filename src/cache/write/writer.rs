//! Writer: the only one who changes a cache. Owned by the task that follows the upstream.

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

/// The only mutator of a cache. Dropping it ends all watches cleanly.
pub struct Writer {
    shared: Arc<SharedCache>,
    reader: Reader,
    /// The groups to wake; empty between changes, as are the wakers.
    to_wake: Vec<Arc<Group>>,
    wakers: Vec<Waker>,
    /// What may be stored in less memory, as the log has forgotten the frames.
    frame_backed: FrameBackedQueue,
}

/// Why [`Writer::apply`] or [`Writer::bookmark`] refused: what came belongs to another history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("resource version went back from {applied} to {received}")]
pub struct WentBack {
    /// What is applied.
    pub applied: ResourceVersion,
    /// What came.
    pub received: ResourceVersion,
}

/// Room for so many groups and wakers is kept between changes.
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

    /// Applies a change that the upstream told; `frame` is how it told it.
    ///
    /// What is stored already, byte for byte, is passed over: a resumed stream may repeat it.
    /// A deletion of an object that isn't stored only moves the applied version on.
    ///
    /// # Errors
    ///
    /// The change is not above what is applied (before the first list: is not expected at all);
    /// nothing was changed.
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

    /// Notes that all changes up to `rv` were applied.
    ///
    /// # Errors
    ///
    /// `rv` is below what is applied already; nothing was changed.
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

    /// Starts a relist. Nothing should be applied until it is handed to [`Writer::replace`].
    ///
    /// It costs a key and a handle for each object that is stored, and the bytes of what differs.
    pub fn relist(&self) -> Relist {
        let stored = self.content().map(|content| content.store);
        let empty = || Arc::new(Store::new(&self.shared.config));
        Relist::new(stored.unwrap_or_else(empty))
    }

    /// Makes the cache equal to the relist, which is complete at `rv`.
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

    /// Drops store, log and snapshots and ends all watches expired; not ready until the next
    /// [`Writer::replace`].
    pub fn new_epoch(&mut self, cause: EpochCause) {
        self.restart(None, Some(cause));
    }

    /// Drops all events and pinned snapshots, as an API server's compaction does: starts below the
    /// applied version expire, and so do open watches that have not yet read to the end.
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

    /// All changes up to here are in; `None` while not ready.
    pub fn applied(&self) -> Option<ResourceVersion> {
        self.shared.state.read().applied()
    }

    /// A reader, to clone.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Ends all watches cleanly, each once it has delivered what is in the log.
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

    /// Makes the relist the first content, of the first or (with a cause) of a new epoch.
    fn begin(&mut self, relist: Relist, rv: ResourceVersion, cause: Option<EpochCause>) {
        let store = relist.to_store(Store::new(&self.shared.config));
        let content = Content {
            store: Arc::new(store),
            applied: rv,
        };
        self.shared.state.write().counters.relists += 1;
        self.restart(Some(content), cause);
    }

    /// Begins with `content` and an empty log.
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
        // Megabytes perhaps, so behind the locks and the wake-up.
        drop(dropped);
    }

    /// The one critical section in which store and log change together; then comes the wake-up.
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
                self.shared.relists.fetch_add(1, Ordering::Release);
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

    /// Wakes who waits for a version, and the streams concerned.
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
        // Streams go on to the end of the log; nobody else is answered from here any more.
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
