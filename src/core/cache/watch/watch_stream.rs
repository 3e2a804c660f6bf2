//! WatchStream: delivers the events of one selection to one client, at the client's speed.
//!
//! A stream is a position in its group's queue. Old and new events are read alike, so no event can
//! be lost in a switch from old to new events. A slow stream costs the writer nothing. A stream
//! that needs older events than the queue has reads them from the log.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use parking_lot::RwLockReadGuard;
use tokio::time::Instant;

use crate::api::{EventType, Object, ResourceVersion, Selection};
use crate::cache::groups::{Candidate, Group, QueueRead};
use crate::cache::log::{Batch, Event, Expired};
use crate::cache::objects::Snapshot;
use crate::cache::state::{SharedCache, State};
use crate::cache::wake::Registration;
use crate::cache::watch::initial_objects::InitialObjects;
use crate::cache::watch::start::{Start, WatchFrom};
use crate::cache::watch::watch_error::WatchError;
use crate::cache::watch::watch_progress::WatchProgress;
use crate::concurrency::{CoopBudget, Revocable};
use crate::mutation;
use crate::mutation::Mutation;

/// Maximum number of objects or events that a stream fetches in one step.
const BATCH: usize = 64;
/// An idle stream retains at most this capacity of its batch, in events.
const IDLE_CAPACITY: usize = 8;
/// Budget units of an object or event that the stream examines: it yields after 2,048 of them.
const UNITS_PER_EXAMINED: usize = CoopBudget::UNITS / 2048;

/// A watch of one client. It ends after [`WatchItem::Expired`], or when the cache is closed.
pub struct WatchStream {
    shared: Arc<SharedCache>,
    /// False if the stream is not one of the cache's watchers.
    is_counted: bool,
    epoch: u64,
    phase: Phase,
    group: Arc<Group>,
    /// The part of the cache's limit of unindexed groups that the group has.
    limited_units: usize,
    /// The number, in the group's queue, of the next event to fetch; `None` while the stream reads
    /// the log, because the queue does not have all events from `position` on.
    number: Option<u64>,
    /// A log position. The stream has fetched all events of its selection before this position.
    position: u64,
    batch: Batch,
    /// The stream delivers the changes after this resource version.
    start: ResourceVersion,
    /// True while the cache has not reached `start`.
    is_ahead: bool,
    /// The value of `SharedCache::opened_holes` at the last call of
    /// [`WatchStream::has_hole_opened`].
    opened_holes: u32,
    /// The highest resource version that the stream has reached, for [`Expired::requested`].
    seen: ResourceVersion,
    registration: Registration,
    /// Limits the work between two yields. The budget outlives a poll: one poll delivers one item,
    /// and the search for that item may have examined thousands of objects.
    budget: CoopBudget,
}

enum Phase {
    Initial(Revocable<InitialObjects>),
    Live,
    Ended,
}

/// One item that a watch delivers.
#[derive(Debug)]
pub enum WatchItem {
    /// An object of the snapshot that the watch begins with.
    Initial(Arc<Object>),
    /// All initial objects were delivered. Holds the snapshot's resource version.
    InitialEnd(ResourceVersion),
    /// A change that a client with this watch's selection sees.
    Change {
        /// The change, shared by all streams.
        event: Arc<Event>,
        /// The event type that the change has for this watch's selection.
        verdict: EventType,
    },
    /// The watch cannot continue and the client has to list again. This is the last item.
    Expired(Expired),
}

enum FillOutcome {
    /// Holds the number of objects or events that were examined.
    Batch(usize),
    Item(WatchItem),
    AtTip,
    /// The stream ends, with the error that its client gets.
    End(Option<Expired>),
}

// === impl WatchStream ===

impl WatchStream {
    pub(in crate::cache) fn open(
        shared: &Arc<SharedCache>,
        from: WatchFrom,
        selection: Arc<Selection>,
    ) -> Result<Self, WatchError> {
        let candidate = Candidate::new(selection);
        let state = shared.state.read();
        let (start, snapshot) = from.locate(shared, &state)?;
        let mut stream = Self::begin(shared, state, start, &candidate)?;
        stream.phase = snapshot.map_or(Phase::Live, Phase::initial);
        Ok(stream)
    }

    pub(in crate::cache) fn open_at(
        shared: &Arc<SharedCache>,
        snapshot: Snapshot,
        selection: Arc<Selection>,
    ) -> Result<Self, WatchError> {
        let mut stream = Self::open_after(shared, &snapshot, selection)?;
        stream.phase = Phase::initial(snapshot);
        Ok(stream)
    }

    pub(in crate::cache) fn open_after(
        shared: &Arc<SharedCache>,
        snapshot: &Snapshot,
        selection: Arc<Selection>,
    ) -> Result<Self, WatchError> {
        let candidate = Candidate::new(selection);
        let state = shared.state.read();
        let start = Start::in_epoch(&state, snapshot.epoch, snapshot.resource_version)?;
        Self::begin(shared, state, start, &candidate)
    }

    /// Opens a stream in the group of `placeholder`, for a client that has everything up to
    /// `version` of `epoch` from a bridge.
    pub(in crate::cache) fn open_bridged(
        placeholder: &Self,
        epoch: u64,
        version: ResourceVersion,
    ) -> Result<Self, Expired> {
        let (shared, group) = (&placeholder.shared, &placeholder.group);
        let state = shared.state.read();
        let is_early = mutation::is_active(Mutation::BridgeLeftEarly);
        let earliest = is_early.then(|| state.log.start());
        let start = Start::in_epoch(&state, epoch, version.max(earliest.unwrap_or_default()))?;
        shared.interest.lock().add_stream(group);
        let limited_units = placeholder.limited_units;
        let member = (Arc::clone(group), limited_units);
        Ok(Self::begin_in(member, shared, &state, start))
    }

    /// Creates a stream of the changes after `start`, and joins its group. Unlocks the state.
    fn begin(
        shared: &Arc<SharedCache>,
        state: RwLockReadGuard<'_, State>,
        start: Start,
        candidate: &Candidate,
    ) -> Result<Self, WatchError> {
        let joined = shared.interest.lock().join(candidate, &state.log);
        let joined = joined.ok_or(WatchError::TooManyUnindexed)?;
        let member = (joined.group, joined.limited_units);
        let stream = Self::begin_in(member, shared, &state, start);
        drop(state);
        // Freeing this memory may take long, so do it after unlocking.
        drop(joined.replaced);
        Ok(stream)
    }

    /// Creates a stream of the changes after `start`, which its `group` has counted.
    fn begin_in(
        (group, limited_units): (Arc<Group>, usize),
        shared: &Arc<SharedCache>,
        state: &State,
        start: Start,
    ) -> Self {
        shared.watchers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: shared.clone(),
            is_counted: true,
            epoch: state.epoch,
            phase: Phase::Live,
            number: group.number_at(start.position),
            group,
            limited_units,
            position: start.position,
            batch: Batch::default(),
            start: start.version,
            is_ahead: start.is_ahead,
            opened_holes: shared.opened_holes.load(Ordering::Acquire),
            seen: start.version,
            registration: Registration::default(),
            budget: CoopBudget::new(),
        }
    }

    /// Excludes the stream from [`Reader::watchers`](crate::cache::Reader::watchers), because it
    /// serves no client. So the informer can become idle although the stream is open.
    #[must_use]
    pub fn uncounted(mut self) -> Self {
        if std::mem::replace(&mut self.is_counted, false) {
            self.shared.watchers.fetch_sub(1, Ordering::Relaxed);
        }
        self
    }

    /// Returns the next item, or `None` after [`WatchItem::Expired`] or when the cache was closed
    /// and everything was delivered.
    ///
    /// Pending means that the stream waits for a wake, or that it has to yield after much work.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        while self.budget.poll_proceed(cx).is_ready() {
            if let Some(item) = self.next_fetched(usize::MAX) {
                return Poll::Ready(Some(item));
            }
            match self.fill(cx) {
                FillOutcome::Batch(examined) => {
                    self.budget.charge(examined * UNITS_PER_EXAMINED);
                }
                FillOutcome::Item(item) => return Poll::Ready(Some(item)),
                FillOutcome::End(expired) => {
                    self.phase = Phase::Ended;
                    return Poll::Ready(expired.map(WatchItem::Expired));
                }
                FillOutcome::AtTip => {
                    self.budget.renew();
                    self.batch.shrink_to(IDLE_CAPACITY);
                    return Poll::Pending;
                }
            }
        }
        Poll::Pending
    }

    /// Returns the next item without taking a lock, if it was fetched already and is not an initial
    /// object of more than `room` bytes. `None` does not mean that the cache has no more items.
    pub fn next_fetched(&mut self, room: usize) -> Option<WatchItem> {
        if let Phase::Initial(initial) = &mut self.phase {
            let next = initial.with(|initial| initial.take(room))?;
            return next.map(WatchItem::Initial);
        }
        while let Some((event, verdict)) = self.batch.pop_front() {
            self.seen = self.seen.max(event.resource_version);
            if event.is_known_at(self.start) {
                continue;
            }
            if let Some(verdict) = verdict.or_else(|| event.verdict(&self.group.selection)) {
                return Some(WatchItem::Change { event, verdict });
            }
        }
        None
    }

    /// Waits for the next item, like [`WatchStream::poll_next`]. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchItem> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Returns the selection of the objects that the stream reports.
    pub(in crate::cache) fn selection(&self) -> &Selection {
        &self.group.selection
    }

    /// Returns the part of [`GroupLimits::unindexed`](crate::cache::GroupLimits::unindexed) that
    /// the stream's selection has, or 0 if it needs none.
    pub fn limited_units(&self) -> usize {
        self.limited_units
    }

    /// Returns the progress of the stream, for observers.
    pub fn progress(&self) -> WatchProgress {
        let next = (self.number, self.position);
        WatchProgress::new(&self.shared, &self.group, next)
    }

    /// Records in `progress`, which must be of this stream or of one that it continues, what the
    /// stream has fetched.
    pub fn record(&self, progress: &WatchProgress) {
        progress.set((self.number, self.position));
    }

    /// Returns the objects that the stream still has to deliver first, with their snapshot,
    /// or `None` if it delivers only changes. If these objects are revoked, the stream
    /// expires at its next read.
    pub fn initial_objects(&self) -> Option<Revocable<InitialObjects>> {
        match &self.phase {
            Phase::Initial(initial) => Some(initial.clone()),
            Phase::Live | Phase::Ended => None,
        }
    }

    /// Returns true if the stream still has initial objects to deliver, but expires at its next
    /// read, because it can't deliver the changes after them. A caller that delivers the objects in
    /// place of the stream needs this.
    pub fn has_lost_start(&mut self) -> bool {
        matches!(self.phase, Phase::Initial(_)) && self.lost_start().is_some()
    }

    /// Returns the resource version for a bookmark that is sent now. Returns `None` if the stream
    /// has not delivered all applied changes, if the version is not above the start, or if the
    /// stream has delivered a change of the open version.
    pub fn bookmark(&self) -> Option<ResourceVersion> {
        if !matches!(self.phase, Phase::Live) || !self.batch.is_empty() {
            return None;
        }
        let state = self.shared.state.read();
        let tip = state.log.tip();
        // Read `queued_to` before the queue: events up to there are in the queue.
        let is_queued = self.shared.queued_to.load(Ordering::Acquire) >= tip
            || mutation::is_active(Mutation::UnqueuedBookmarked);
        let has_everything = match self.number {
            Some(number) => is_queued && self.group.is_at_tip(number),
            None => self.position == tip,
        };
        let is_at_tip = has_everything && self.check_expired(&state).is_none();
        let applied = state.applied().filter(|_| is_at_tip)?;
        (applied > self.start && self.seen <= applied).then_some(applied)
    }

    /// Returns true if a hole was opened since the last call (or since the stream was opened).
    ///
    /// If a client's last version is inside the hole, the client cannot resume from that version.
    /// So it should get a bookmark as soon as it has everything.
    pub fn has_hole_opened(&mut self) -> bool {
        let opened_holes = self.shared.opened_holes.load(Ordering::Acquire);
        std::mem::replace(&mut self.opened_holes, opened_holes) != opened_holes
    }

    /// Fetches the next batch. At the end of the group's queue, registers the waker.
    fn fill(&mut self, cx: &mut Context<'_>) -> FillOutcome {
        match (&self.phase, self.number) {
            (Phase::Initial(_), _) => self.fill_from_snapshot(),
            (Phase::Live, Some(number)) => self.fill_from_group(number, cx),
            (Phase::Live, None) => self.fill_from_log(),
            (Phase::Ended, _) => FillOutcome::End(None),
        }
    }

    fn fill_from_snapshot(&mut self) -> FillOutcome {
        if let Some(expired) = self.lost_start() {
            return FillOutcome::End(Some(expired));
        }
        if let Phase::Initial(initial) = &self.phase {
            match initial.with(|initial| initial.fill(&self.group.selection, BATCH)) {
                None => return self.expire(),
                Some(0) => {}
                Some(examined) => return FillOutcome::Batch(examined),
            }
        }
        self.phase = Phase::Live;
        FillOutcome::Item(WatchItem::InitialEnd(self.start))
    }

    /// Returns the reason why the stream can't deliver the changes after its snapshot, so that the
    /// remaining objects would be useless, or `None` if it can.
    fn lost_start(&mut self) -> Option<Expired> {
        let state = self.shared.state.read();
        if let Some(expired) = self.check_expired(&state) {
            return Some(expired);
        }
        self.number = self.number.filter(|number| self.group.retains(*number));
        let is_lost = self.number.is_none() && self.position < state.log.first();
        is_lost.then(|| state.expired(self.seen))
    }

    fn fill_from_log(&mut self) -> FillOutcome {
        let state = self.shared.state.read();
        if let Some(expired) = self.check_expired(&state) {
            return FillOutcome::End(Some(expired));
        }
        self.is_ahead &= state.applied() < Some(self.start);
        // The queue has everything from the log's tip on, so the stream leaves the log at the tip
        // at the latest.
        self.number = self.group.number_at(self.position);
        if self.number.is_some() {
            return FillOutcome::Batch(0);
        }
        match state.log.read(self.position, BATCH, &mut self.batch) {
            None => FillOutcome::End(Some(state.expired(self.seen))),
            Some(next) => {
                self.position = next;
                FillOutcome::Batch(self.batch.len())
            }
        }
    }

    fn fill_from_group(&mut self, number: u64, cx: &mut Context<'_>) -> FillOutcome {
        // While the start is in the future, hold the state's lock until the queue is read: a relist
        // may put a hole around the start. Guarded by
        // `model_needs_waiting_streams_to_notice_holes`.
        let state = self.is_ahead.then(|| self.shared.state.read());
        if let Some(state) = &state {
            if let Some(expired) = self.check_expired(state) {
                return FillOutcome::End(Some(expired));
            }
            self.is_ahead = state.applied() < Some(self.start);
        }
        let (waker, registration) = (cx.waker(), &mut self.registration);
        let at = (number, self.position);
        let (read, replaced) = self
            .group
            .read(at, BATCH, &mut self.batch, registration, waker);
        drop(state);
        drop(replaced);
        match read {
            QueueRead::Events(number, position) => {
                self.number = Some(number);
                self.position = position;
                FillOutcome::Batch(self.batch.len())
            }
            QueueRead::Behind => {
                self.number = None;
                FillOutcome::Batch(0)
            }
            QueueRead::AtTip => FillOutcome::AtTip,
            QueueRead::Closed => FillOutcome::End(None),
            QueueRead::Expired => self.expire(),
        }
    }

    /// Returns the reason why this stream cannot continue, or `None` if it can.
    fn check_expired(&self, state: &State) -> Option<Expired> {
        if self.epoch != state.epoch {
            return Some(state.expired(self.seen));
        }
        if self.is_ahead && !mutation::is_active(Mutation::FutureStartUnchecked) {
            return state.log.expired_future_start(self.start);
        }
        None
    }

    fn expire(&self) -> FillOutcome {
        let expired = self.shared.state.read().expired(self.seen);
        FillOutcome::End(Some(expired))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let now = Instant::now();
        let removed = self.shared.interest.lock().leave(&self.group, now);
        drop(removed);
        if self.is_counted {
            self.shared.watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

// === impl Phase ===

impl Phase {
    fn initial(snapshot: Snapshot) -> Self {
        Self::Initial(Revocable::new(InitialObjects::new(snapshot)))
    }
}

#[cfg(test)]
mod tests;
