//! Writer: write access to a cache, for its one owner (normally the reflector).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use bytes::Bytes;
use tokio::time::Instant;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::cache::config::Config;
use crate::cache::groups::DROPPED_AT_ONCE;
use crate::cache::groups::Group;
use crate::cache::log::Event;
use crate::cache::log::EventLog;
use crate::cache::log::NewEntries;
use crate::cache::log::Retention;
use crate::cache::objects::Content;
use crate::cache::objects::Store;
use crate::cache::reader::Reader;
use crate::cache::state::SharedCache;
use crate::cache::stats::EpochCause;
use crate::cache::update::Update;
use crate::cache::write::difference::ReplaceOutcome;
use crate::cache::write::frame_backed_objects::FrameBackedQueue;
use crate::cache::write::relist::Relist;
use crate::mutation;
use crate::mutation::Mutation;

/// Write access to a cache. A cache has exactly one writer. Dropping the writer closes the cache
/// and ends all watches cleanly.
pub struct Writer {
    shared: Arc<SharedCache>,
    reader: Reader,
    /// The groups whose streams must be woken; empty between changes, and kept for its memory.
    to_wake: Vec<Arc<Group>>,
    wakers: Vec<Waker>,
    /// Appended events that are not in the groups' queues yet, with their log positions. Empty
    /// between changes.
    unpublished: VecDeque<(u64, Arc<Event>)>,
    /// Stored objects whose frames the log has evicted; copying their bodies may save memory.
    frame_backed: FrameBackedQueue,
    #[cfg(test)]
    held_back: usize,
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
/// Number of events that one critical section evicts. It limits the pause of readers.
const EVICTED_AT_ONCE: usize = 64;
/// Number of critical sections in which a bookmark drops idle groups, some milliseconds in all. On a
/// quiet resource only bookmarks arrive, and they delay no client.
const IDLE_SLICES_OF_BOOKMARK: usize = 16;
/// Number of groups that are checked in one critical section, about 70 ns each.
const CHECKED_AT_ONCE: usize = 1024;

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
            unpublished: VecDeque::new(),
            frame_backed: FrameBackedQueue::default(),
            #[cfg(test)]
            held_back: 0,
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

    /// Starts a relist. Call this before the list is sent: the time of this call becomes
    /// [`Snapshot::list_began`](crate::cache::Snapshot::list_began). Do not apply changes until the
    /// relist is passed to [`Writer::replace`].
    ///
    /// A complete relist takes a key and a handle for each object, and the bytes of the objects
    /// that differ from the store.
    pub fn relist(&self) -> Relist {
        let stored = self.content().map(|content| content.store);
        let empty = || Arc::new(Store::new(&self.shared.config));
        Relist::new(stored.unwrap_or_else(empty))
    }

    /// Makes the cache equal to `relist`, which is complete at `rv`.
    pub fn replace(&mut self, mut relist: Relist, rv: ResourceVersion) -> ReplaceOutcome {
        if mutation::is_active(Mutation::ListDatedAtEnd) {
            relist.began = Instant::now();
        }
        let Some(content) = self.content() else {
            self.begin(relist, rv, None);
            return ReplaceOutcome::First;
        };
        match relist.difference(&content.store, content.applied, rv) {
            Ok(difference) => {
                let replaced = difference.outcome();
                let mut update = difference.into_update(content.applied, rv);
                update.list_began = Some(relist.began);
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
        self.restart(None, Instant::now(), Some(cause));
    }

    /// Drops all events and pinned snapshots, like a compaction of etcd. Starts below the applied
    /// version expire, and so do open watches that still need a dropped event.
    pub fn forget_history(&mut self) {
        let Some(applied) = self.applied() else {
            return;
        };
        self.publish(0);
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

    /// Makes each change leave its last `events` events out of the groups' queues, as if the writer
    /// was interrupted there. The next change queues them first.
    #[cfg(test)]
    pub(in crate::cache) fn hold_back(&mut self, events: usize) {
        self.held_back = events;
        self.publish(events);
    }

    #[cfg(test)]
    pub(in crate::cache) fn has_unpublished(&self) -> bool {
        !self.unpublished.is_empty()
    }

    fn content(&self) -> Option<Content> {
        self.shared.state.read().content.clone()
    }

    /// Makes `relist` the first content of the cache, or of a new epoch if there is a `cause`.
    fn begin(&mut self, relist: Relist, rv: ResourceVersion, cause: Option<EpochCause>) {
        let began = relist.began;
        let store = relist.to_store(Store::new(&self.shared.config));
        let content = Content {
            store: Arc::new(store),
            applied: rv,
        };
        self.shared.state.write().counters.relists += 1;
        self.restart(Some(content), began, cause);
    }

    /// Replaces store and log by `content` and an empty log, in a new epoch if there is a `cause`.
    /// The list of `content` began at `list_began`.
    fn restart(
        &mut self,
        content: Option<Content>,
        list_began: Instant,
        cause: Option<EpochCause>,
    ) {
        self.publish(0);
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
            state.list_began = list_began;
            self.shared.count_replaced(content.as_ref());
            let log = std::mem::replace(&mut state.log, log);
            self.shared.queued_to.store(0, Ordering::Release);
            let interest = self.shared.interest.lock().expire();
            self.to_wake.extend(interest.groups().cloned());
            (content, log, interest, self.shared.pins.lock().take())
        };
        self.wake();
        // Freeing this memory may take long, so do it after unlocking and waking.
        drop(dropped);
    }

    /// Applies `update` to store and log in one critical section. Then queues the events in the
    /// groups that they concern, and wakes the streams. Guarded by
    /// `i1_the_log_tip_is_the_store_version` and `i1_the_wake_up_comes_after_both`.
    fn commit(&mut self, update: Update) {
        self.publish(0);
        let now = Instant::now();
        let opens_hole = update.opens_hole;
        let idle_slices = match update.has_events() {
            true => 1,
            false => IDLE_SLICES_OF_BOOKMARK,
        };
        let retention = self.shared.retention(update.content.store.bytes());
        let removed = self.append(update, now);
        self.shared.wakes.notify(&mut self.wakers);
        self.publish(self.held_back());
        let evicted = self.evict(retention, now, idle_slices);
        if opens_hole {
            // Wake all streams: they may now send a bookmark, or must expire because the hole
            // contains the future version at which they start.
            self.to_wake.clear();
            let interest = self.shared.interest.lock();
            self.to_wake.extend(interest.groups().cloned());
        }
        self.wake();
        self.frame_backed.extend(&evicted);
        let unpinned = {
            let replaced_bytes = self.shared.replaced_bytes.load(Ordering::Relaxed);
            let mut pins = self.shared.pins.lock();
            pins.evict(retention, replaced_bytes, now)
        };
        // Freeing this memory may take long, so do it after unlocking and waking.
        drop((removed, evicted, unpinned));
    }

    /// Replaces the content and appends the events of `update` to the log. Returns the content
    /// before. All that takes long is done before the lock is taken.
    fn append(&mut self, update: Update, now: Instant) -> Option<Content> {
        let replaced = update.replaced_bytes();
        let Update {
            mut content,
            block,
            changes,
            opens_hole,
            list_began,
        } = update;
        let events = block.into_iter().chain(changes);
        let events: Vec<_> = events.map(Arc::new).collect();
        let replaced = replaced + self.frame_backed.detach_bodies(&mut content);
        let ledger = self.shared.state.read().log.ledger();
        let entries = NewEntries::new(&events, &ledger, now);
        let mut state = self.shared.state.write();
        let position = state.log.tip();
        let before = state.append(content, entries, opens_hole.then_some(now));
        state.list_began = list_began.unwrap_or(state.list_began);
        let counter = &self.shared.replaced_bytes;
        counter.fetch_add(replaced, Ordering::Relaxed);
        if opens_hole {
            self.shared.opened_holes.fetch_add(1, Ordering::Release);
        }
        drop(state);
        self.unpublished.extend((position..).zip(events));
        before
    }

    /// Queues the appended events, except the last `keep`, in the groups that they concern. It
    /// unlocks now and then, so that streams can join and leave during a large relist.
    ///
    /// Streams read and join meanwhile. One that joins has perhaps read some of the events from the
    /// log, and skips them in the queue. Guarded by
    /// `model_needs_events_read_from_the_log_to_be_skipped` and
    /// `model_needs_bookmarks_to_wait_for_the_queues`.
    fn publish(&mut self, keep: usize) {
        while self.unpublished.len() > keep {
            let mut interest = self.shared.interest.lock();
            let mut checked = 0;
            while checked < CHECKED_AT_ONCE
                && self.unpublished.len() > keep
                && let Some((position, event)) = self.unpublished.pop_front()
            {
                checked += 1 + interest.publish(position, &event, &mut self.to_wake);
                // Evicting after each event keeps the queues within their limit.
                interest.evict(0);
                let queued_to = position + 1;
                self.shared.queued_to.store(queued_to, Ordering::Release);
            }
        }
    }

    /// Drops what exceeds `retention` from the log, then from the groups' queues, a few events per
    /// critical section. Returns the dropped events. Groups that were idle for too long are dropped
    /// in up to `idle_slices` critical sections.
    fn evict(
        &mut self,
        retention: Retention,
        now: Instant,
        mut idle_slices: usize,
    ) -> Vec<Arc<Event>> {
        let mut evicted = Vec::new();
        loop {
            let (some, first) = {
                let mut state = self.shared.state.write();
                let some = state.log.evict(retention, now, EVICTED_AT_ONCE);
                (some, state.log.first())
            };
            let idle = {
                let mut interest = self.shared.interest.lock();
                interest.evict(first);
                interest.remove_idle(now)
            };
            let has_more_events = some.len() == EVICTED_AT_ONCE;
            let has_more_groups = idle.len() == DROPPED_AT_ONCE;
            drop(idle);
            evicted.extend(some);
            idle_slices = idle_slices.saturating_sub(1);
            let is_done = !has_more_groups || idle_slices == 0;
            if is_done && !has_more_events {
                return evicted;
            }
        }
    }

    /// The number of events that the next change leaves out of the groups' queues. Tests set it, to
    /// let readers run between the append and the end of [`Writer::publish`].
    fn held_back(&self) -> usize {
        #[cfg(test)]
        return self.held_back;
        #[cfg(not(test))]
        0
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
        self.publish(0);
        // Streams still deliver the rest of their queues. All other reads find the cache not ready.
        let dropped = {
            let mut state = self.shared.state.write();
            state.is_closed = true;
            let interest = self.shared.interest.lock();
            self.to_wake.extend(interest.groups().cloned());
            self.to_wake.iter().for_each(|group| group.close());
            let content = state.content.take();
            self.shared.count_replaced(content.as_ref());
            (content, self.shared.pins.lock().take())
        };
        self.wake();
        drop(dropped);
    }
}
