//! The state that the writer and all readers of a cache share, and the lock that guards it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::config::Config;
use crate::cache::groups::Interest;
use crate::cache::log::{EventLog, Expired, LogBytes, Retention};
use crate::cache::objects::{Content, Pins, Snapshot};
use crate::cache::stats::Stats;
use crate::cache::wake::{Registration, WakeSet};

pub(super) struct SharedCache {
    pub(super) config: Config,
    /// Store and log. A thread that needs this lock and another one takes this lock first.
    pub(super) state: RwLock<State>,
    pub(super) pins: Mutex<Pins>,
    /// All groups. To join one, also hold the lock of `state`, so that the log's tip stays.
    pub(super) interest: Mutex<Interest>,
    /// A log position: all events before it are in the queues of the groups that need them. It is
    /// behind the log's tip from an append until the writer has queued the appended events.
    pub(super) queued_to: AtomicU64,
    /// Readers that wait for a resource version or the first list. Streams wait in their groups.
    pub(super) wakes: WakeSet,
    /// Readers that wait only for the end, so that no change wakes them.
    pub(super) end_wakes: WakeSet,
    /// Number of holes that relists and recreated objects have opened since the start.
    pub(super) opened_holes: AtomicU32,
    pub(super) watchers: AtomicUsize,
    /// The newest resource version that a proof has assigned to a snapshot.
    pub(super) proven: AtomicU64,
    /// Bytes of all objects that were replaced or deleted in the store since the start. Changes
    /// only under the lock of `state`.
    pub(super) replaced_bytes: Arc<AtomicU64>,
    /// True if a reader needs the last content after the cache has lost it; see [`State::lost`].
    pub(super) keeps_lost: AtomicBool,
}

/// The store and the log, which change together.
pub(super) struct State {
    pub(super) epoch: u64,
    /// The objects and their resource version; `None` while the cache is not ready.
    pub(super) content: Option<Content>,
    /// The last content before a new epoch began or the cache was closed, for readers that need it.
    /// `None` once there is new content.
    pub(super) lost: Option<Snapshot>,
    /// See [`Snapshot::list_began`].
    pub(super) list_began: Instant,
    pub(super) log: EventLog,
    /// The newest resource version of earlier epochs that a client may hold.
    pub(super) newest_earlier_version: ResourceVersion,
    pub(super) is_closed: bool,
    /// The counters since the start. The sizes are not set.
    pub(super) counters: Stats,
}

/// Creates an empty log of the events after `start`.
pub(super) fn new_log(config: &Config, start: ResourceVersion) -> EventLog {
    EventLog::new(start, Arc::new(LogBytes::new(config.evicted.clone())))
}

// === impl SharedCache ===

impl SharedCache {
    pub(super) fn new(config: Config) -> Self {
        let log = new_log(&config, ResourceVersion::ZERO);
        Self {
            interest: Mutex::new(Interest::new(&config)),
            queued_to: AtomicU64::new(0),
            config,
            state: RwLock::new(State {
                epoch: 0,
                content: None,
                lost: None,
                list_began: Instant::now(),
                log,
                newest_earlier_version: ResourceVersion::ZERO,
                is_closed: false,
                counters: Stats::default(),
            }),
            pins: Mutex::default(),
            wakes: WakeSet::default(),
            end_wakes: WakeSet::default(),
            opened_holes: AtomicU32::new(0),
            watchers: AtomicUsize::new(0),
            proven: AtomicU64::new(0),
            replaced_bytes: Arc::default(),
            keeps_lost: AtomicBool::new(false),
        }
    }

    pub(super) fn retention(&self, store_bytes: usize) -> Retention {
        Retention::new(&self.config, store_bytes)
    }

    /// Removes and returns the pinned snapshots that exceed `retention`, so that the caller can
    /// drop them outside of its locks.
    pub(super) fn evict_pins(&self, retention: Retention, now: Instant) -> Vec<Snapshot> {
        let replaced_bytes = self.replaced_bytes.load(Ordering::Relaxed);
        self.pins.lock().evict(retention, replaced_bytes, now)
    }

    /// Counts all objects of `content`, which the cache drops, as replaced.
    pub(super) fn count_replaced(&self, content: Option<&Content>) {
        let bytes = content.map_or(0, |content| content.store.bytes() as u64);
        self.replaced_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns a snapshot of `state`, before its content is removed, if a reader
    /// needs the last content.
    pub(super) fn lost(&self, state: &State) -> Option<Snapshot> {
        let is_needed = self.keeps_lost.load(Ordering::Relaxed);
        is_needed.then(|| self.snapshot(state)).flatten()
    }

    /// Returns the newest snapshot, or `None` while the cache is not ready.
    pub(super) fn snapshot(&self, state: &State) -> Option<Snapshot> {
        let content = state.content.as_ref()?;
        Some(Snapshot {
            store: content.store.clone(),
            resource_version: content.applied,
            changed: content.changed,
            epoch: state.epoch,
            replaced_bytes: self.replaced_bytes.load(Ordering::Relaxed),
            list_began: state.list_began,
            proven: None,
        })
    }

    /// Waits until `condition` is true (returns true) or the cache is closed (returns false).
    pub(super) async fn wait_until(&self, condition: impl Fn(&State) -> bool) -> bool {
        self.wait_for_wakes(&self.wakes, condition).await
    }

    /// Does what [`SharedCache::wait_until`] does, but tests `condition` only at
    /// the wakes of `wakes`.
    pub(super) async fn wait_for_wakes(
        &self,
        wakes: &WakeSet,
        condition: impl Fn(&State) -> bool,
    ) -> bool {
        let mut registration = Registration::default();
        poll_fn(move |cx| {
            drop(registration.register(wakes, cx.waker()));
            let state = self.state.read();
            let is_true = condition(&state);
            if is_true || state.is_closed {
                return Poll::Ready(is_true);
            }
            Poll::Pending
        })
        .await
    }
}

// === impl State ===

impl State {
    pub(super) fn applied(&self) -> Option<ResourceVersion> {
        self.content.as_ref().map(|content| content.applied)
    }

    /// Returns the error of a watch that cannot continue from `requested`.
    pub(super) fn expired(&self, requested: ResourceVersion) -> Expired {
        let oldest = self.log.start();
        Expired { requested, oldest }
    }
}
