//! Replace: how a complete list becomes the content of the cache.
//!
//! A relist of a hundred thousand changed objects takes seconds of CPU time if many groups are
//! checked for each event. So this code is asynchronous and yields to other tasks. It prepares
//! the new store and all events first, and appends them in one critical section. Then it
//! queues the events in the groups, little by little. Only this last part can be interrupted
//! after readers have seen the new content; the writer records what is missing, and does it
//! before the next change.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use crate::api::ResourceVersion;
use crate::cache::objects::{Content, Store};
use crate::cache::stats::EpochCause;
use crate::cache::update::Update;
use crate::cache::write::difference::ReplaceOutcome;
use crate::cache::write::housekeeping::EVICTED_AT_ONCE;
use crate::cache::write::open_version::OpenVersion;
use crate::cache::write::pace::{CHECKED, CHECKED_AT_ONCE, COMPARED, EVICTED, Pace};
use crate::cache::write::relist::Relist;
use crate::cache::write::writer::{Appended, Writer};
use crate::concurrency::drop_elsewhere;
use crate::mutation;
use crate::mutation::Mutation;

/// From this number of objects or events on, memory is freed on another thread.
const MANY: usize = 1000;

// === impl Writer ===

impl Writer {
    /// Makes the cache equal to `relist`, which is complete at `rv`.
    pub fn replace(&mut self, relist: Relist, rv: ResourceVersion) -> ReplaceOutcome {
        let mut pace = Pace::unlimited();
        let replaced = pin!(self.replace_at(relist, rv, &mut pace));
        match replaced.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => unreachable!("an unlimited pace never yields"),
        }
    }

    /// Makes the cache equal to `relist`, which is complete at `rv`, like [`Writer::replace`].
    /// After about a millisecond of work it yields to other tasks.
    ///
    /// Readers see the content before, until all at once they see the new content and all events
    /// for it. After that, the streams get the events in order, a part at a time.
    ///
    /// Cancel safe: the cache then has either the content before or the new content. If
    /// streams lack a part of the events, the next change of this writer delivers it first.
    /// If the writer is dropped instead, the streams end without them, and none gets a
    /// bookmark beyond what it has.
    pub async fn replace_cooperatively(
        &mut self,
        relist: Relist,
        rv: ResourceVersion,
    ) -> ReplaceOutcome {
        self.replace_at(relist, rv, &mut Pace::cooperative()).await
    }

    /// Drops a relist that will not be completed, on another thread if it is long.
    pub fn discard(&self, relist: Relist) {
        if relist.len() >= MANY {
            drop_elsewhere(relist);
        }
    }

    /// Makes the cache equal to `relist` at `pace`.
    pub(in crate::cache) async fn replace_at(
        &mut self,
        mut relist: Relist,
        rv: ResourceVersion,
        pace: &mut Pace,
    ) -> ReplaceOutcome {
        self.deliver(0, pace).await;
        if mutation::is_active(Mutation::ListDatedAtEnd) {
            relist.began = Instant::now();
        }
        let Some(content) = self.content() else {
            self.begin(relist, rv, None, pace).await;
            return ReplaceOutcome::First;
        };
        let (before, newest) = self.open.state(&content);
        let difference = relist.difference(&before, (content.applied, newest), rv, pace);
        match difference.await {
            Ok(difference) => {
                let replaced = difference.outcome();
                let began = relist.began;
                self.discard(relist);
                let mut update = difference.into_update(newest, rv, pace).await;
                update.list_began = Some(began);
                drop((content, before));
                self.commit_relist(update, pace).await;
                replaced
            }
            Err(cause) => {
                self.begin(relist, rv, Some(cause), pace).await;
                ReplaceOutcome::NewEpoch(cause)
            }
        }
    }

    /// Makes `relist` the first content of the cache, or of a new epoch if there is a `cause`.
    async fn begin(
        &mut self,
        relist: Relist,
        rv: ResourceVersion,
        cause: Option<EpochCause>,
        pace: &mut Pace,
    ) {
        let empty = Store::new(&self.shared.config);
        let content = Content {
            store: Arc::new(relist.to_store(empty, pace).await),
            applied: rv,
            changed: rv,
        };
        self.shared.state.write().counters.relists += 1;
        self.restart(Some(content), relist.began, cause);
        self.discard(relist);
    }

    /// Applies the update of a relist, like [`Writer::commit`].
    async fn commit_relist(&mut self, mut update: Update, pace: &mut Pace) {
        let mut entries = self.new_entries(update.events.len());
        update.replaced = self.open.replaced_bytes();
        for event in &update.events {
            entries.push(event);
            update.replaced += event.replaced_bytes();
            pace.spend(COMPARED).await;
        }
        // A dropped future ends this function only where it yields. So what it owes to the streams
        // is recorded together with the append.
        let now = Instant::now();
        let is_large = update.events.len() >= MANY;
        self.owes_wakes |= update.hole_after.is_some();
        self.open = OpenVersion::default();
        let Appended {
            retention, before, ..
        } = self.append(update, entries, now);
        self.shared.wakes.notify(&mut self.wakers);
        if is_large {
            drop_elsewhere(before)
        } else {
            drop(before)
        }
        self.deliver(self.held_back(), pace).await;
        loop {
            let slice = self.evict_slice(retention, now, pace.at_once(EVICTED_AT_ONCE));
            self.add_frame_backed(&slice.events);
            let work = EVICTED * slice.events.len() + CHECKED * slice.queues;
            pace.spend(work).await;
            if !slice.has_more_events && !slice.has_more_groups {
                break;
            }
        }
        self.detach_bodies(false);
        let unpinned = self.shared.evict_pins(retention, now);
        if !unpinned.is_empty() {
            drop_elsewhere(unpinned);
        }
    }

    /// Queues the appended events, except the last `keep`, in the groups that need them, and wakes
    /// the streams of these groups now and then. If a hole was opened, wakes all streams in the
    /// end: a stream may now send a bookmark. If it starts at a future version inside the hole, it
    /// must expire.
    async fn deliver(&mut self, keep: usize, pace: &mut Pace) {
        while self.unpublished.len() > keep {
            let checked = self.publish_slice(keep, pace.at_once(CHECKED_AT_ONCE));
            self.wake_streams();
            pace.spend(CHECKED * checked).await;
        }
        if std::mem::take(&mut self.owes_wakes) {
            self.wake_all();
        }
    }
}
