//! The state that the writer and all readers of a cache share, and the lock that guards it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::config::Config;
use crate::cache::groups::Group;
use crate::cache::groups::Interest;
use crate::cache::log::Event;
use crate::cache::log::EventLog;
use crate::cache::log::Retention;
use crate::cache::objects::Content;
use crate::cache::objects::Pins;
use crate::cache::objects::Snapshot;
use crate::cache::stats::EpochCause;
use crate::cache::update::Update;
use crate::cache::wake::WakeSet;

pub(super) struct SharedCache {
    pub(super) config: Config,
    /// Store and log. A thread that needs this lock and another one takes this lock first.
    pub(super) state: RwLock<State>,
    pub(super) pins: Mutex<Pins>,
    /// All groups. To join at the log's tip, also hold the lock of `state`, so that the tip stays.
    pub(super) interest: Mutex<Interest>,
    /// Readers that wait for a resource version or the first list. Streams wait in their groups.
    pub(super) wakes: WakeSet,
    /// Number of holes that relists and recreated objects have opened since the start.
    pub(super) opened_holes: AtomicU32,
    pub(super) watchers: AtomicUsize,
    /// The newest resource version that a proof has assigned to a snapshot.
    pub(super) proven: AtomicU64,
}

/// The store and the log, which change together.
pub(super) struct State {
    pub(super) epoch: u64,
    /// The objects and their resource version; `None` while the cache is not ready.
    pub(super) content: Option<Content>,
    pub(super) log: EventLog,
    /// The newest resource version of earlier epochs that a client may hold.
    pub(super) newest_earlier_version: ResourceVersion,
    pub(super) is_closed: bool,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) events: u64,
    pub(super) evicted_early: u64,
    pub(super) relists: u64,
    pub(super) epochs: u64,
    pub(super) last_epoch_cause: Option<EpochCause>,
    /// Bytes of all objects that were replaced or deleted in the store since the start.
    pub(super) replaced_bytes: u64,
}

/// Values that a commit removed, to be dropped outside of all locks as this may take long.
pub(super) struct CommitLeftovers {
    pub(super) evicted: Vec<Arc<Event>>,
    _content: Option<Content>,
}

// === impl SharedCache ===

impl SharedCache {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            state: RwLock::new(State {
                epoch: 0,
                content: None,
                log: EventLog::new(ResourceVersion::ZERO),
                newest_earlier_version: ResourceVersion::ZERO,
                is_closed: false,
                counters: Counters::default(),
            }),
            pins: Mutex::default(),
            interest: Mutex::default(),
            wakes: WakeSet::default(),
            opened_holes: AtomicU32::new(0),
            watchers: AtomicUsize::new(0),
            proven: AtomicU64::new(0),
        }
    }

    pub(super) fn retention(&self, store_bytes: usize) -> Retention {
        Retention::new(&self.config, store_bytes)
    }
}

// === impl State ===

impl State {
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let content = self.content.as_ref()?;
        Some(Snapshot {
            store: content.store.clone(),
            resource_version: content.applied,
            epoch: self.epoch,
            replaced_bytes: self.counters.replaced_bytes,
        })
    }

    pub(super) fn applied(&self) -> Option<ResourceVersion> {
        self.content.as_ref().map(|content| content.applied)
    }

    /// Applies `update` to the store and the log, and queues its events in the groups that they
    /// concern. Adds the groups whose streams the caller must wake to `to_wake`.
    pub(super) fn append(
        &mut self,
        update: Update,
        interest: &mut Interest,
        to_wake: &mut Vec<Arc<Group>>,
        retention: Retention,
        now: Instant,
    ) -> CommitLeftovers {
        if update.opens_hole {
            let before = self.applied().unwrap_or_default();
            self.log.open_hole(before, update.content.applied, now);
        }
        self.counters.events += (update.block.len() + update.changes.len()) as u64;
        let mut evicted = Vec::new();
        for event in update.block.into_iter().chain(update.changes) {
            let position = self.log.tip();
            let event = self.log.append(event, now);
            interest.publish(position, &event, to_wake);
            // Evicting after each event keeps a large relist within the log's memory limit.
            evicted.extend(self.log.evict(retention, now));
            interest.evict(self.log.first());
            if update.opens_hole {
                to_wake.clear();
            }
        }
        let content = self.content.replace(update.content);
        evicted.extend(self.log.evict(retention, now));
        interest.evict(self.log.first());
        if update.opens_hole {
            // Wake all streams: they may now send a bookmark, or must expire because the hole
            // contains the future version at which they start.
            to_wake.extend(interest.groups().cloned());
        }
        CommitLeftovers {
            evicted,
            _content: content,
        }
    }
}
