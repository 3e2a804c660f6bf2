//! Writer: write access to a cache, for its one owner (normally the reflector).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::{EventType, Object, ResourceVersion};
use crate::cache::config::Config;
use crate::cache::groups::Group;
use crate::cache::log::{Event, NewEntries, Retention};
use crate::cache::objects::{Content, Store};
use crate::cache::reader::Reader;
use crate::cache::state::{SharedCache, new_log};
use crate::cache::stats::EpochCause;
use crate::cache::update::{NewObjects, Update};
use crate::cache::write::frame_backed_objects::FrameBackedQueue;
use crate::cache::write::open_version::OpenVersion;
use crate::cache::write::pace::CHECKED_AT_ONCE;
use crate::cache::write::relist::Relist;
use crate::concurrency::drop_elsewhere;

/// Write access to a cache. A cache has exactly one writer. Dropping the writer closes the cache
/// and ends all watches cleanly.
pub struct Writer {
    pub(in crate::cache) shared: Arc<SharedCache>,
    reader: Reader,
    /// The groups with streams that must be woken. Empty after a wake; the vector is reused to save
    /// allocations.
    pub(super) to_wake: Vec<Arc<Group>>,
    pub(super) wakers: Vec<Waker>,
    /// Appended events that are not in the groups' queues yet, with their log positions. Empty
    /// between changes, except after a relist that was interrupted.
    pub(in crate::cache) unpublished: VecDeque<(u64, Arc<Event>)>,
    /// True if a relist has opened a hole and was interrupted before it woke all streams.
    pub(super) owes_wakes: bool,
    /// Stored objects that still hold a watch frame that the log has evicted. Their bodies will be
    /// copied, so that the frames can be freed.
    pub(super) frame_backed: FrameBackedQueue,
    /// The changes of the newest version, if more of them may come.
    pub(super) open: OpenVersion,
    /// What is left to do after the next wake.
    pub(super) housekeeping: Option<Housekeeping>,
    /// The number of changes since the last eviction, and its time.
    pub(super) unevicted: usize,
    pub(super) evicted_at: Instant,
    /// True if the last eviction has left groups that were idle for too long.
    pub(super) has_more_idle: bool,
    #[cfg(test)]
    pub(in crate::cache) held_back: usize,
}

/// The error of [`Writer::apply`] and [`Writer::bookmark`]: the received version belongs to another
/// history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("resource version went back from {applied} to {received}")]
pub struct WentBack {
    /// The cache has applied all changes up to this resource version.
    pub applied: ResourceVersion,
    /// The resource version that was received.
    pub received: ResourceVersion,
}

/// The writer wakes the streams, and does its housekeeping, after this number of changes, unless
/// [`Writer::wake`] comes first. A reflector wakes earlier; this is for other callers of
/// [`Writer::apply_without_wake`].
const MAX_UNEVICTED: usize = 64;
/// A writer that is dropped queues the events of an interrupted relist in at most this number of
/// critical sections, which take some milliseconds together.
const SLICES_AT_DROP: usize = 64;

/// What [`Writer::append`] leaves to its caller.
pub(super) struct Appended {
    pub(super) retention: Retention,
    /// True if the log has more bytes than it may retain.
    pub(super) exceeds_bytes: bool,
    /// The store before, if it was replaced.
    pub(super) before: Option<Arc<Store>>,
}

/// What the newest change has left to do after its wake. That includes what is left of the changes
/// before it.
pub(super) struct Housekeeping {
    pub(super) retention: Retention,
    pub(super) exceeds_bytes: bool,
    /// False if the last update appended nothing to the log, as at a bookmark.
    pub(super) is_change: bool,
    pub(super) applied_at: Instant,
    /// The store before, if it was replaced. Freeing it may take long.
    pub(super) before: Option<Arc<Store>>,
}

// === impl Writer ===

impl Writer {
    pub(in crate::cache) fn new(config: Config) -> Self {
        let shared = Arc::new(SharedCache::new(config));
        let reader = Reader {
            shared: Arc::clone(&shared),
        };
        Self {
            shared,
            reader,
            to_wake: Vec::new(),
            wakers: Vec::new(),
            unpublished: VecDeque::new(),
            owes_wakes: false,
            frame_backed: FrameBackedQueue::default(),
            open: OpenVersion::default(),
            housekeeping: None,
            unevicted: 0,
            evicted_at: Instant::now(),
            has_more_idle: false,
            #[cfg(test)]
            held_back: 0,
        }
    }

    /// Applies a change that was received from the upstream watch; `frame` is its watch frame.
    ///
    /// An object that is stored already with equal bytes is skipped, because a resumed watch may
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
        self.apply_change(event_type, object, frame, true)
    }

    /// Applies a change like [`Writer::apply`], but leaves the wake to [`Writer::wake`], which the
    /// caller calls soon. So the streams are woken once for changes that have arrived together, and
    /// do not wait while old events are dropped. After 64 changes without a wake, the writer wakes
    /// them itself.
    ///
    /// # Errors
    ///
    /// As for [`Writer::apply`].
    pub fn apply_without_wake(
        &mut self,
        event_type: EventType,
        object: Object,
        frame: Option<Bytes>,
    ) -> Result<(), WentBack> {
        self.apply_change(event_type, object, frame, false)
    }

    fn apply_change(
        &mut self,
        event_type: EventType,
        object: Object,
        frame: Option<Bytes>,
        wakes: bool,
    ) -> Result<(), WentBack> {
        let received = object.resource_version;
        let went_back = |applied| WentBack { applied, received };
        let content = self.content().ok_or(went_back(ResourceVersion::ZERO))?;
        if received <= content.applied {
            let stored = content.store.get(object.key.as_str());
            let is_stored = stored.is_some_and(|stored| **stored == object);
            return match event_type {
                EventType::Added | EventType::Modified if is_stored => Ok(()),
                _ => Err(went_back(content.applied)),
            };
        }
        let frame = frame.map(|frame| (event_type, frame));
        let update = match event_type {
            _ if self.shared.config.shares_versions => {
                match self.open.change(&content, event_type, object, frame) {
                    Some(update) => update,
                    None => return Ok(()),
                }
            }
            EventType::Deleted => Update::deletion(&content, object, frame),
            EventType::Added | EventType::Modified => Update::upsert(&content, object, frame),
        };
        // Otherwise the commit would find the store shared, and copy it.
        drop(content);
        self.commit(update, wakes);
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
        if applied.is_none_or(|applied| rv < applied) {
            return Err(WentBack {
                applied: applied.unwrap_or_default(),
                received: rv,
            });
        }
        let content = self.content().filter(|_| self.open.is_closed_by(rv));
        let update = match content {
            None => Update::without_events(NewObjects::Unchanged, rv),
            Some(content) => self.open.close(&content.store, rv),
        };
        self.commit(update, true);
        Ok(())
    }

    /// Starts a relist. Call this before the list is sent: the time of this call becomes
    /// [`Snapshot::list_began`](crate::cache::Snapshot::list_began). Do not apply changes until the
    /// relist is passed to [`Writer::replace`].
    ///
    /// A complete relist takes a key and a handle for each object, and the bytes of the objects
    /// that differ from the store.
    pub fn relist(&self) -> Relist {
        let stored = self.content().map(|content| content.store);
        Relist::new(stored.unwrap_or_else(|| Arc::new(Store::new(&self.shared.config))))
    }

    /// Starts a new epoch: drops the store, the log and all pinned snapshots, and expires all
    /// watches. The cache is not ready until the next [`Writer::replace`].
    pub fn new_epoch(&mut self, cause: EpochCause) {
        self.restart(None, Instant::now(), Some(cause));
    }

    /// Drops all events and pinned snapshots, like a compaction of etcd. Starts below the applied
    /// version expire, and so do open watches that still need a dropped event.
    pub fn forget_history(&mut self) {
        let Some(applied) = self.applied() else {
            return;
        };
        self.publish(0);
        let (evicted, pins) = {
            let mut state = self.shared.state.write();
            let evicted = state.log.forget(applied);
            let mut interest = self.shared.interest.lock();
            interest.evict(state.log.first(), usize::MAX);
            self.to_wake.extend(interest.groups().cloned());
            (evicted, std::mem::take(&mut *self.shared.pins.lock()))
        };
        self.wake();
        self.add_frame_backed(&evicted);
        drop((evicted, pins));
    }

    /// Returns the applied version: the cache has all changes up to it. Returns `None` while the
    /// cache is not ready.
    pub fn applied(&self) -> Option<ResourceVersion> {
        self.shared.state.read().applied()
    }

    /// Returns the newest version that was received: the applied version, or the open one after it.
    pub fn newest(&self) -> Option<ResourceVersion> {
        let state = self.shared.state.read();
        state
            .applied()
            .map(|applied| applied.max(state.log.newest().unwrap_or_default()))
    }

    /// Returns a reader of this cache, which can be cloned.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Closes the cache. Each watch delivers the events that are in the log, and then ends cleanly.
    /// After a relist that was interrupted, it ends earlier: it may deliver only the first events.
    pub fn close(self) {
        drop(self);
    }

    pub(super) fn content(&self) -> Option<Content> {
        self.shared.state.read().content.clone()
    }

    /// Replaces store and log by `content` and an empty log, in a new epoch if there is a `cause`.
    /// The list of `content` began at `list_began`.
    pub(super) fn restart(
        &mut self,
        content: Option<Content>,
        list_began: Instant,
        cause: Option<EpochCause>,
    ) {
        self.publish(0);
        self.owes_wakes = false;
        self.open = OpenVersion::default();
        self.frame_backed = FrameBackedQueue::default();
        let start = content.as_ref().map(|content| content.applied);
        let log = new_log(&self.shared.config, start.unwrap_or_default());
        let dropped = {
            let mut state = self.shared.state.write();
            if cause.is_some() {
                state.epoch += 1;
                state.counters.epochs += 1;
                state.counters.last_epoch_cause = cause;
                let proven = ResourceVersion(self.shared.proven.load(Ordering::SeqCst));
                let newest = state.applied().max(state.log.newest()).unwrap_or_default();
                state.newest_earlier_version = state.newest_earlier_version.max(newest).max(proven);
            }
            state.counters.evicted_early += state.log.evicted_early();
            let lost = match content {
                Some(_) => None,
                None => self.shared.lost(&state).or_else(|| state.lost.clone()),
            };
            let lost = std::mem::replace(&mut state.lost, lost);
            let content = std::mem::replace(&mut state.content, content);
            state.list_began = list_began;
            self.shared.count_replaced(content.as_ref());
            let log = std::mem::replace(&mut state.log, log);
            self.shared.queued_to.store(0, Ordering::Release);
            let (interest, queues) = self.shared.interest.lock().expire();
            self.to_wake.extend(interest.groups().cloned());
            let pins = std::mem::take(&mut *self.shared.pins.lock());
            (content, log, interest, queues, pins, lost)
        };
        self.wake();
        match &dropped {
            (Some(_), ..) => drop_elsewhere(dropped),
            (None, ..) => drop(dropped),
        }
    }

    /// Applies `update` to store and log in one critical section. Then queues each event in the
    /// groups that need it. If `wakes`, wakes their streams, and then does the housekeeping.
    ///
    /// Guarded by `i1_the_log_tip_is_the_store_version` and `i1_the_wake_up_comes_after_both`.
    fn commit(&mut self, update: Update, wakes: bool) {
        // Otherwise the append would find parts of the store shared, and copy them.
        self.housekeeping = None;
        self.publish(0);
        if std::mem::take(&mut self.owes_wakes) {
            self.wake_all();
        }
        let now = Instant::now();
        let opens_hole = update.hole_after.is_some();
        let is_change = !update.events.is_empty();
        let mut entries = self.new_entries(update.events.len());
        update.events.iter().for_each(|event| entries.push(event));
        let appended = self.append(update, entries, now);
        if wakes {
            self.shared.wakes.notify(&mut self.wakers);
        }
        self.publish(self.held_back());
        if opens_hole {
            // Wake all streams: a stream may now send a bookmark. If it starts at a future version
            // inside the hole, it must expire.
            self.wake_all();
        }
        self.unevicted += 1;
        self.housekeeping = Some(Housekeeping {
            retention: appended.retention,
            exceeds_bytes: appended.exceeds_bytes,
            is_change,
            applied_at: now,
            before: appended.before,
        });
        if wakes || self.unevicted >= MAX_UNEVICTED {
            self.wake();
        }
    }

    /// Returns an empty collection with room for `capacity` events of an update.
    pub(super) fn new_entries(&self, capacity: usize) -> NewEntries {
        self.shared.state.read().log.new_entries(capacity)
    }

    /// Applies `update` to the objects, and appends its events, which are in `entries`, to the log.
    ///
    /// It holds the lock that readers need, so the work that may take long is done before, in the
    /// store that replaces the old one. An individual object is replaced in place, without a copy
    /// of the parts of the store that no snapshot shares.
    pub(super) fn append(&mut self, update: Update, entries: NewEntries, now: Instant) -> Appended {
        let mut locked = self.shared.state.write();
        let state = &mut *locked;
        let position = state.log.tip();
        let content = state.content.as_mut().expect("changes follow a list");
        if let Some(newest) = update.hole_after {
            state.log.open_hole(newest, update.applied, now);
        }
        content.applied = update.applied;
        if !matches!(update.objects, NewObjects::Unchanged) {
            content.changed = update.applied;
        }
        let before = match update.objects {
            NewObjects::Unchanged => None,
            NewObjects::One(object) => {
                let before = Arc::make_mut(&mut content.store).replace(object);
                // The event has the object before, so nothing is freed here.
                drop(before.expect("the object is stored"));
                None
            }
            NewObjects::All(store) => Some(std::mem::replace(&mut content.store, store)),
        };
        let retention = self.shared.retention(content.store.bytes());
        state.log.append(entries, now);
        state.counters.events += state.log.tip() - position;
        if let Some(list_began) = update.list_began {
            state.list_began = list_began;
            state.counters.relists += 1;
        }
        let counter = &self.shared.replaced_bytes;
        counter.fetch_add(update.replaced, Ordering::Relaxed);
        if update.hole_after.is_some() {
            self.shared.opened_holes.fetch_add(1, Ordering::Release);
        }
        let exceeds_bytes = state.log.bytes() > retention.bytes;
        drop(locked);
        self.unpublished.extend((position..).zip(update.events));
        Appended {
            retention,
            exceeds_bytes,
            before,
        }
    }

    /// Returns the number of events that the next change leaves out of the groups' queues. Tests
    /// set it, to let readers run between the append and the end of [`Writer::publish`].
    pub(super) fn held_back(&self) -> usize {
        #[cfg(test)]
        return self.held_back;
        #[cfg(not(test))]
        0
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After an interrupted relist there may be too many. Then the streams end earlier, and
        // their clients resume from the last event that they got.
        for _ in 0..SLICES_AT_DROP {
            self.publish_slice(0, CHECKED_AT_ONCE);
        }
        // Streams still deliver the rest of their queues. All other reads find the cache not ready.
        let dropped = {
            let mut state = self.shared.state.write();
            state.is_closed = true;
            let interest = self.shared.interest.lock();
            self.to_wake.extend(interest.groups().cloned());
            self.to_wake.iter().for_each(|group| group.close());
            if let Some(lost) = self.shared.lost(&state) {
                state.lost = Some(lost);
            }
            let content = state.content.take();
            self.shared.count_replaced(content.as_ref());
            (content, std::mem::take(&mut *self.shared.pins.lock()))
        };
        self.wake_streams();
        self.shared.end_wakes.notify(&mut self.wakers);
        drop(dropped);
    }
}
