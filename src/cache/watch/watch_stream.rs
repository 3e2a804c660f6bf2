//! WatchStream: one client's walk along the events that concern it, at its own pace.
//!
//! Catching up is delivery: a stream is a place in its group's queue that it moves itself, so there is
//! no hand-over between old and live events, and a slow stream costs the writer nothing. One that
//! starts before its group's queue does walks along the log up to the tip first.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;

use crate::api::EventType;
use crate::api::Object;
use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::cache::groups::Group;
use crate::cache::groups::GroupPosition;
use crate::cache::groups::QueueRead;
use crate::cache::log::Batch;
use crate::cache::log::Event;
use crate::cache::log::Expired;
use crate::cache::log::PositionEvicted;
use crate::cache::objects::Snapshot;
use crate::cache::state::SharedCache;
use crate::cache::state::State;
use crate::cache::wake::Registration;
use crate::cache::watch::initial_objects::InitialObjects;
use crate::cache::watch::start::Start;
use crate::cache::watch::start::WatchFrom;
use crate::concurrency::CoopBudget;
use crate::mutation;
use crate::mutation::Mutation;

/// Objects or events taken at once.
const BATCH: usize = 64;
/// What an idle stream keeps allocated of its batch.
const IDLE_CAPACITY: usize = 8;
/// What a batch is charged that brought nothing for this client: after 16 of them others get their
/// turn.
const UNITS_PER_BATCH: usize = CoopBudget::UNITS / 16;

/// A watch. Ends after [`WatchItem::Expired`], or with `None` when the cache was closed.
pub struct WatchStream {
    shared: Arc<SharedCache>,
    selection: Arc<Selection>,
    epoch: u64,
    phase: Phase,
    /// Whose queue the stream follows; `None` while it still reads the log.
    group: Option<Arc<Group>>,
    /// The next event to take: its number in the group's queue, or its position in the log.
    next: u64,
    batch: Batch,
    /// What the client had seen when the live part began.
    start: ResourceVersion,
    /// True while `start` lies in the future.
    is_ahead: bool,
    /// Relists that the log knew of when this stream was last asked.
    relists: u32,
    /// How far the stream has come, for [`Expired::requested`].
    seen: ResourceVersion,
    registration: Registration,
}

enum Phase {
    /// Gives the snapshot's objects.
    Initial(Box<InitialObjects>),
    /// Follows the changes.
    Live,
    Ended,
}

/// What a watch delivers.
#[derive(Debug)]
pub enum WatchItem {
    /// An object of the snapshot that the watch began with.
    Initial(Arc<Object>),
    /// All initial objects were given; the snapshot's resource version.
    InitialEnd(ResourceVersion),
    /// A change.
    Change {
        /// The change, shared by all who watch.
        event: Arc<Event>,
        /// What it is to this client.
        verdict: EventType,
    },
    /// The client has to list again. Last item.
    Expired(Expired),
}

/// How the next batch turned out.
enum FillOutcome {
    Batch,
    Item(WatchItem),
    AtTip,
    Closed,
    Expired(Expired),
}

// === impl WatchStream ===

impl WatchStream {
    pub(in crate::cache) fn open(
        shared: &Arc<SharedCache>,
        from: WatchFrom,
        selection: Arc<Selection>,
    ) -> Result<Self, Expired> {
        let state = shared.state.read();
        let (start, snapshot) = from.locate(&state)?;
        let mut stream = Self::begin(shared, &state, start, selection);
        stream.phase = snapshot.map_or(Phase::Live, Phase::initial);
        Ok(stream)
    }

    pub(in crate::cache) fn open_at(
        shared: &Arc<SharedCache>,
        snapshot: Snapshot,
        selection: Arc<Selection>,
    ) -> Result<Self, Expired> {
        let mut stream = Self::open_after(shared, &snapshot, selection)?;
        stream.phase = Phase::initial(snapshot);
        Ok(stream)
    }

    pub(in crate::cache) fn open_after(
        shared: &Arc<SharedCache>,
        snapshot: &Snapshot,
        selection: Arc<Selection>,
    ) -> Result<Self, Expired> {
        let state = shared.state.read();
        let start = Start::after_snapshot(&state, snapshot)?;
        Ok(Self::begin(shared, &state, start, selection))
    }

    /// A stream of the changes after `start`.
    fn begin(
        shared: &Arc<SharedCache>,
        state: &State,
        start: Start,
        selection: Arc<Selection>,
    ) -> Self {
        shared.watchers.fetch_add(1, Ordering::Relaxed);
        let mut stream = Self {
            shared: shared.clone(),
            selection,
            epoch: state.epoch,
            phase: Phase::Live,
            group: None,
            next: start.position,
            batch: VecDeque::new(),
            start: start.version,
            is_ahead: start.is_ahead,
            relists: shared.relists.load(Ordering::Acquire),
            seen: start.version,
            registration: Registration::default(),
        };
        if let Some(joined) = stream.join(state) {
            stream.follow(joined);
        }
        stream
    }

    /// The place in the group's queue for a stream that has come to `next` in the log.
    fn join(&self, state: &State) -> Option<GroupPosition> {
        let mut interest = self.shared.interest.lock();
        interest.join(&self.selection, self.next, &state.log)
    }

    fn follow(&mut self, (group, number): GroupPosition) {
        // All of them share one.
        self.selection = Arc::clone(&group.selection);
        self.group = Some(group);
        self.next = number;
    }

    /// The next item; `None` when the cache was closed and all was delivered, or after
    /// [`WatchItem::Expired`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        let mut budget = CoopBudget::new();
        while budget.poll_proceed(cx).is_ready() {
            if let Some(item) = self.take() {
                return Poll::Ready(Some(item));
            }
            match self.fill(cx) {
                FillOutcome::Batch => {
                    budget.charge(UNITS_PER_BATCH);
                }
                FillOutcome::Item(item) => return Poll::Ready(Some(item)),
                FillOutcome::Closed => return Poll::Ready(self.end(None)),
                FillOutcome::Expired(expired) => {
                    return Poll::Ready(self.end(Some(WatchItem::Expired(expired))));
                }
                FillOutcome::AtTip => {
                    self.release_memory();
                    return Poll::Pending;
                }
            }
        }
        Poll::Pending
    }

    /// An item that [`WatchStream::poll_next`] would give at once and without a look at the cache;
    /// `None` says nothing about what the cache has.
    pub fn next_fetched(&mut self) -> Option<WatchItem> {
        self.take()
    }

    /// As [`WatchStream::poll_next`]. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchItem> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The resource version that a bookmark may carry now; `None` when this stream has not yet
    /// delivered all up to it, or it says nothing beyond the start.
    pub fn bookmark(&self) -> Option<ResourceVersion> {
        if !matches!(self.phase, Phase::Live) || !self.batch.is_empty() {
            return None;
        }
        let state = self.shared.state.read();
        let has_everything = match &self.group {
            Some(group) => group.is_at_tip(self.next),
            None => self.next == state.log.tip(),
        };
        let is_at_tip = has_everything && self.check_expired(&state).is_none();
        let applied = state.applied().filter(|_| is_at_tip)?;
        (applied > self.start).then_some(applied)
    }

    /// True when a relist came since this was last asked.
    ///
    /// A client whose last version lies inside the relist's hole can't resume from it, so it should
    /// be given a bookmark as soon as it has everything.
    pub fn was_relisted(&mut self) -> bool {
        let relists = self.shared.relists.load(Ordering::Acquire);
        std::mem::replace(&mut self.relists, relists) != relists
    }

    /// Takes the next item for this client out of what was fetched.
    fn take(&mut self) -> Option<WatchItem> {
        if let Phase::Initial(initial) = &mut self.phase {
            return initial.take().map(WatchItem::Initial);
        }
        while let Some((event, verdict)) = self.batch.pop_front() {
            self.seen = self.seen.max(event.resource_version);
            if event.is_known_at(self.start) {
                continue;
            }
            if let Some(verdict) = verdict.or_else(|| event.verdict(&self.selection)) {
                return Some(WatchItem::Change { event, verdict });
            }
        }
        None
    }

    /// Fetches the next batch without looking at it; where there is none, leaves the waker.
    fn fill(&mut self, cx: &mut Context<'_>) -> FillOutcome {
        match (&self.phase, &self.group) {
            (Phase::Initial(_), _) => self.fill_from_snapshot(),
            (Phase::Live, Some(_)) => self.fill_from_group(cx),
            (Phase::Live, None) => self.fill_from_log(),
            (Phase::Ended, _) => FillOutcome::Closed,
        }
    }

    fn fill_from_snapshot(&mut self) -> FillOutcome {
        let state = self.shared.state.read();
        if let Some(expired) = self.check_expired(&state) {
            return FillOutcome::Expired(expired);
        }
        let can_go_on = match &self.group {
            Some(group) => group.retains(self.next),
            None => !state.log.has_evicted(self.next),
        };
        if !can_go_on {
            // So the rest of the objects would be in vain.
            return FillOutcome::Expired(self.expired(&state));
        }
        drop(state);
        if let Phase::Initial(initial) = &mut self.phase
            && initial.fill(&self.selection, BATCH)
        {
            return FillOutcome::Batch;
        }
        self.phase = Phase::Live;
        FillOutcome::Item(WatchItem::InitialEnd(self.start))
    }

    fn fill_from_log(&mut self) -> FillOutcome {
        let joined = {
            let state = self.shared.state.read();
            if let Some(expired) = self.check_expired(&state) {
                return FillOutcome::Expired(expired);
            }
            self.is_ahead &= state.applied() < Some(self.start);
            match state.log.read(self.next, BATCH, &mut self.batch) {
                Err(PositionEvicted) => return FillOutcome::Expired(self.expired(&state)),
                Ok(next) if next > self.next => {
                    self.next = next;
                    return FillOutcome::Batch;
                }
                Ok(_) if state.is_closed => return FillOutcome::Closed,
                Ok(_) => self.join(&state),
            }
        };
        if let Some(joined) = joined {
            self.follow(joined);
        }
        FillOutcome::Batch
    }

    fn fill_from_group(&mut self, cx: &mut Context<'_>) -> FillOutcome {
        let Some(group) = &self.group else {
            return FillOutcome::Batch;
        };
        // While the start is to come, together with the state: a relist may jump over it.
        let state = self.is_ahead.then(|| self.shared.state.read());
        if let Some(state) = &state {
            if let Some(expired) = self.check_expired(state) {
                return FillOutcome::Expired(expired);
            }
            self.is_ahead = state.applied() < Some(self.start);
        }
        let (waker, registration) = (cx.waker(), &mut self.registration);
        let (read, replaced) = group.read(self.next, BATCH, &mut self.batch, registration, waker);
        drop(state);
        drop(replaced);
        match read {
            QueueRead::Events(next) => {
                self.next = next;
                FillOutcome::Batch
            }
            QueueRead::AtTip => FillOutcome::AtTip,
            QueueRead::Closed => FillOutcome::Closed,
            QueueRead::Expired => FillOutcome::Expired(self.expired(&self.shared.state.read())),
        }
    }

    fn release_memory(&mut self) {
        if self.batch.capacity() > IDLE_CAPACITY {
            self.batch.shrink_to(IDLE_CAPACITY);
        }
    }

    fn end(&mut self, last: Option<WatchItem>) -> Option<WatchItem> {
        self.phase = Phase::Ended;
        last
    }

    /// Why this stream can't go on, if so.
    fn check_expired(&self, state: &State) -> Option<Expired> {
        if self.epoch != state.epoch {
            return Some(self.expired(state));
        }
        if self.is_ahead && !mutation::is_active(Mutation::FutureStartUnchecked) {
            return state.log.expired_future_start(self.start);
        }
        None
    }

    fn expired(&self, state: &State) -> Expired {
        Expired {
            requested: self.seen,
            oldest: state.log.start(),
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.shared.interest.lock().leave(group);
        }
        self.shared.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Phase ===

impl Phase {
    fn initial(snapshot: Snapshot) -> Self {
        Self::Initial(Box::new(InitialObjects::new(snapshot)))
    }
}

#[cfg(test)]
mod tests;
