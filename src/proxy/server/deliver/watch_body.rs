//! The body of a WATCH from a cache: encodes the events of a stream, adds bookmarks, and ends in
//! time.

mod bookmarks;
mod charges;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

#[cfg(any(test, feature = "test-support"))]
pub use bookmarks::without_jitter;
use bookmarks::{Bookmarks, random_timeout};
use bytes::Bytes;
pub(super) use charges::FREE_FRAME;
use futures_util::{Stream, stream};
use http_body::Frame;
use kubefan_core::api::{EventType, ResourceVersion, Status};
use kubefan_core::body::BoxError;
use kubefan_core::cache::{BridgeItem, BridgedWatch, Event, Expired, WatchItem, WatchStream};
use kubefan_core::codec::{Encoder, MetaVersion, Representation, TableView, View};
use kubefan_core::concurrency::CoopBudget;
use kubefan_core::shutdown::WatchEnd;
use tokio::time::{Instant, Sleep};

use super::chunk_size::ChunkSize;
use super::merged::MAX_MERGED;
use super::{PolledFrame, merged};
use crate::ledger::{Account, Charge, ListedWatch, Registration};
use crate::server::cached::collection::Collection;
use crate::server::decide::WatchTerms;

/// Number of events after which a watch that is never idle adds them to the counter.
const COUNT_BATCH: u64 = 64;
/// Upper limit of `timeoutSeconds`: a year, because clocks can't represent arbitrarily late times.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Streams the frames of a watch until the deadline, the end of the cache, or the process's drain.
///
/// The body ends cleanly in all three cases, and at the drain with a bookmark. If events that the
/// client has not received were dropped from the event log, the client gets an ERROR frame (410)
/// before the end.
pub(crate) struct WatchBody {
    state: State,
    collection: Arc<dyn Collection>,
    /// Events sent since the counter was last updated.
    uncounted: u64,
    encoder: Arc<Encoder>,
    representation: Representation,
    deadline: Instant,
    /// Wakes the body when the next bookmark is due or the deadline is reached, whichever is
    /// earlier.
    alarm: Pin<Box<Sleep>>,
    /// The waker that the alarm wakes; `None` if the alarm must be polled before it can wake.
    alarm_waker: Option<Waker>,
    bookmarks: Option<Bookmarks>,
    initial_events_end: bool,
    one_event_per_frame: bool,
    /// Frames that were fetched but did not fit into the last burst.
    leftover: VecDeque<Bytes>,
    /// The charge for the large frames in `leftover` that no other client shares.
    leftover_charge: Option<Charge>,
    /// Limits the work of printing rows of a Table before other tasks run.
    printing: CoopBudget,
    /// The size of the next burst: a client that reads nothing gets a small one.
    size: ChunkSize,
    drain: WatchEnd,
    /// The ledger's registration of the initial objects, until all were fetched.
    registration: Option<Registration>,
    /// True until all initial objects were sent.
    has_initial: bool,
    /// The account of the client's connection; `None` in the simulator.
    account: Option<Arc<Account>>,
    /// The watch among those of the client; `None` in the simulator.
    listed: Option<ListedWatch>,
}

/// Where the events of a watch come from when it is opened.
pub(crate) enum WatchSource {
    /// The cache.
    Stream(WatchStream),
    /// The API server's history, until the cache's event log serves the client's version.
    Bridge(BridgedWatch),
    /// The watch cannot start: its only event is an ERROR with 410.
    Expired(Expired),
}

enum State {
    /// Only this frame is left to send.
    Last(Bytes),
    Bridging(Pin<Box<dyn Stream<Item = BridgeItem> + Send>>),
    Streaming(WatchStream),
    Ended,
}

// === impl WatchBody ===

impl WatchBody {
    /// Creates the body of a watch with the events of `source`.
    pub(crate) fn new(
        collection: Arc<dyn Collection>,
        source: WatchSource,
        representation: Representation,
        terms: WatchTerms,
        one_event_per_frame: bool,
        drain: WatchEnd,
    ) -> Self {
        let timeout = terms.timeout.unwrap_or_else(random_timeout);
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        let encoder = collection.encoder_for(representation);
        let state = match source {
            WatchSource::Expired(expired) => State::Last(expired_frame(&encoder, expired)),
            _ if timeout.is_zero() => State::Ended,
            WatchSource::Stream(stream) => State::Streaming(stream),
            WatchSource::Bridge(bridged) => State::Bridging(items_of(bridged)),
        };
        let has_initial = match &state {
            State::Streaming(stream) => stream.initial_objects().is_some(),
            State::Last(_) | State::Bridging(_) | State::Ended => false,
        };
        let bookmarks = terms.bookmarks.then(|| Bookmarks::new(deadline));
        let due = bookmarks.as_ref().map_or(deadline, |next| next.due);
        Self {
            state,
            collection,
            uncounted: 0,
            encoder,
            representation,
            deadline,
            alarm: Box::pin(tokio::time::sleep_until(deadline.min(due))),
            alarm_waker: None,
            bookmarks,
            initial_events_end: terms.initial_events_end,
            one_event_per_frame,
            leftover: VecDeque::new(),
            leftover_charge: None,
            printing: CoopBudget::new(),
            size: ChunkSize::default(),
            drain,
            registration: None,
            has_initial,
            account: None,
            listed: None,
        }
    }

    /// Holds `listed`, and notes in its meter, once for each wake, what was sent and fetched.
    pub(crate) fn listed(mut self, listed: Option<ListedWatch>) -> Self {
        self.listed = listed;
        // It may have been opened after the events that its client needs had been dropped.
        if matches!(self.state, State::Last(_)) {
            self.note_expired();
        }
        self
    }

    /// Holds `registration` until all initial objects were fetched.
    pub(crate) fn registered(mut self, registration: Option<Registration>) -> Self {
        self.registration = registration;
        self
    }

    /// Charges the memory of the watch to `account`.
    pub(crate) fn charged_to(mut self, account: Option<Arc<Account>>) -> Self {
        self.account = account;
        self
    }

    fn poll_state(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let item = match &mut self.state {
                State::Last(frame) => {
                    let frame = frame.clone();
                    self.state = State::Ended;
                    return Poll::Ready(Some(frame));
                }
                State::Ended => return Poll::Ready(None),
                State::Bridging(items) => {
                    let item = ready!(items.as_mut().poll_next(cx));
                    match self.bridge_frame(item) {
                        Some(frame) => return Poll::Ready(Some(frame)),
                        None => continue,
                    }
                }
                State::Streaming(stream) => ready!(stream.poll_next(cx)),
            };
            if !matches!(item, Some(WatchItem::Initial(_))) {
                self.registration = None;
                self.has_initial = false;
            }
            match item {
                None => self.state = State::Ended,
                Some(WatchItem::Expired(expired)) => {
                    self.note_expired();
                    self.state = State::Last(expired_frame(&self.encoder, expired));
                }
                Some(item) => {
                    if let Some(frame) = self.item_frame(item) {
                        return Poll::Ready(Some(frame));
                    }
                }
            }
        }
    }

    /// Returns the frame to send for `item` of a bridge; the last item changes the state. When the
    /// bridge ends, the client gets a bookmark at the version at which it continues from the cache.
    /// If it is disconnected after the bookmark, it can resume without a bridge.
    fn bridge_frame(&mut self, item: Option<BridgeItem>) -> Option<Bytes> {
        match item {
            Some(BridgeItem::Change(event)) => Some(self.change_frame(&event, event.event_type)),
            Some(BridgeItem::Joined { stream, bookmark }) => {
                self.state = State::Streaming(*stream);
                let at = bookmark.filter(|_| self.bookmarks.is_some())?;
                Some(self.bookmark_frame(at, false))
            }
            Some(BridgeItem::Expired(status)) => {
                self.note_expired();
                self.state = State::Last(self.encoder.error(&status));
                None
            }
            Some(BridgeItem::Closed) | None => {
                self.state = State::Ended;
                None
            }
        }
    }

    fn item_frame(&self, item: WatchItem) -> Option<Bytes> {
        match item {
            WatchItem::Initial(object) => Some(self.encoder.event(EventType::Added, &object)),
            WatchItem::Change { event, verdict } => Some(self.change_frame(&event, verdict)),
            WatchItem::InitialEnd(at) => self
                .initial_events_end
                .then(|| self.bookmark_frame(at, true)),
            WatchItem::Expired(expired) => Some(expired_frame(&self.encoder, expired)),
        }
    }

    /// Ends the watch with a 410, because there is no memory for its next event. The client must
    /// not take this end for the end of the initial events.
    pub(super) fn expire(&mut self) {
        let expired = Expired {
            requested: ResourceVersion::ZERO,
            oldest: self.collection.reader().applied().unwrap_or_default(),
        };
        self.note_expired();
        self.clear_leftover();
        self.has_initial = false;
        self.registration = None;
        self.state = State::Last(expired_frame(&self.encoder, expired));
    }

    fn note_expired(&self) {
        if let Some(listed) = &self.listed {
            listed.meter().set_expired();
        }
    }

    fn clear_leftover(&mut self) {
        self.leftover.clear();
        self.leftover_charge = None;
    }

    /// Returns the next frame of an event that the stream has already fetched. `None` does not mean
    /// that the cache has no more events: the connection polls the body again if it can send more.
    ///
    /// An initial object that does not fit into `room` bytes is encoded only after the client has
    /// taken the objects before it. No frame is returned if other tasks must run first because this
    /// burst has printed many rows.
    fn fetched_frame(&mut self, room: usize) -> Option<Bytes> {
        let work = self.encoder.table_view().map_or(0, TableView::work);
        let State::Streaming(stream) = &mut self.state else {
            return None;
        };
        if work >= CoopBudget::UNITS {
            return None;
        }
        let room = match self.representation.view {
            View::Whole => room,
            View::Metadata(_) | View::Table(..) => usize::MAX,
        };
        let item = stream.next_fetched(room)?;
        self.item_frame(item)
    }

    /// Returns the next frame to send, merged from as many waiting events as fit.
    fn poll_burst(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(view) = self.encoder.table_view() {
                self.printing.charge(view.take_work());
                ready!(self.printing.poll_proceed(cx));
            }
            let first = match self.leftover.pop_front() {
                Some(leftover) => {
                    self.leftover_charge = None;
                    leftover
                }
                None => match ready!(self.poll_state(cx)) {
                    Some(first) => first,
                    None => return Poll::Ready(None),
                },
            };
            let (frame, count) = if self.one_event_per_frame {
                (first, 1)
            } else {
                self.burst(first)
            };
            let frame = match count {
                1 => self.charged(frame),
                _ => Some(frame),
            };
            let Some(frame) = frame else { continue };
            if !self.leftover.is_empty() {
                self.charge_leftover();
            }
            self.size.record(frame.len());
            self.uncounted += count as u64;
            if self.uncounted >= COUNT_BATCH && !self.one_event_per_frame {
                self.count();
            }
            return Poll::Ready(Some(frame));
        }
    }

    /// Merges `first` with as many of the events that wait after it as fit. Returns the frame and
    /// the number of its events.
    fn burst(&mut self, first: Bytes) -> (Bytes, usize) {
        // Frames that are left of the last burst come before newer ones.
        let mut leftover = std::mem::take(&mut self.leftover);
        let account = self.account.take();
        let mut rest = VecDeque::new();
        let limit = self.size.next().min(MAX_MERGED);
        let next = |room| leftover.pop_front().or_else(|| self.fetched_frame(room));
        let burst = merged::merge(first, next, limit, &mut rest, account.as_ref());
        self.account = account;
        rest.append(&mut leftover);
        self.leftover = rest;
        burst
    }

    /// Ends the watch. If the process ends and the client has received everything, the last event
    /// is a bookmark. The client resumes at another instance, which may not have the events after
    /// the version that the client had before.
    fn end(&mut self, cx: &mut Context<'_>) {
        let is_draining = Pin::new(&mut self.drain).poll(cx).is_ready();
        let has_fetched_all = self.leftover.is_empty();
        self.clear_leftover();
        let at = match &self.state {
            State::Last(_) => return,
            State::Streaming(stream) if is_draining && has_fetched_all => stream.bookmark(),
            State::Streaming(_) | State::Bridging(_) | State::Ended => None,
        };
        let at = at.filter(|_| self.bookmarks.is_some());
        self.state = match at {
            Some(at) => State::Last(self.bookmark_frame(at, false)),
            None => State::Ended,
        };
    }

    /// Returns true if the watch has initial events that would be useless, because it expires after
    /// them.
    pub(super) fn has_lost_start(&mut self) -> bool {
        match &mut self.state {
            State::Streaming(stream) => stream.has_lost_start(),
            State::Bridging(_) | State::Last(_) | State::Ended => false,
        }
    }

    /// Adds the sent events to the collection's counter, and records what the stream has fetched.
    /// This is done once per wake and not for each frame, because all watches of a resource share
    /// the counter. A stream can fetch events of which none is sent: the selection has none of them.
    fn count(&mut self) {
        let events = std::mem::take(&mut self.uncounted);
        if events > 0 {
            if let Some(informer) = self.collection.informer() {
                informer.count_sent(events);
            }
            self.note_sent(events);
        }
        if let (Some(listed), State::Streaming(stream)) = (&self.listed, &self.state) {
            listed.meter().record(stream);
        }
    }

    /// Notes in the meter of the watch that `events` events were sent.
    pub(super) fn note_sent(&self, events: u64) {
        if let Some(listed) = &self.listed {
            listed.meter().add_events(events);
        }
    }

    fn bookmark_frame(&self, at: ResourceVersion, initial_events_end: bool) -> Bytes {
        // This is the collection's current encoder, because it imitates the upstream's bookmarks,
        // and the first bookmark may have arrived after the start of the watch.
        let encoder = self.collection.encoder_for(self.representation);
        encoder.bookmark(at, initial_events_end)
    }

    /// Returns `frame`. If one of its rows could not be printed, ends the watch and returns an
    /// ERROR event instead. The client then starts again, and its request is forwarded.
    fn unless_unprinted(&mut self, frame: Bytes) -> Bytes {
        let view = self.encoder.table_view();
        let Some(error) = view.and_then(TableView::failure) else {
            return frame;
        };
        tracing::warn!(%error, "cannot print a row of a watched Table");
        self.collection.cannot_print();
        let status = Status::internal_error("cannot print a row of a Table");
        let last = self.encoder.error(&status);
        self.clear_leftover();
        self.state = State::Ended;
        last
    }

    /// Returns the frame of `event` with `verdict`. Most frames are encoded once for all clients of
    /// this representation.
    fn change_frame(&self, event: &Event, verdict: EventType) -> Bytes {
        let encode = || encode_change(&self.encoder, event, verdict);
        match self.representation.view {
            View::Whole => event.frame(verdict, encode),
            View::Metadata(MetaVersion::V1) => {
                event.metadata_frame(self.representation.format, verdict, encode)
            }
            View::Metadata(MetaVersion::V1Beta1) | View::Table(..) => encode(),
        }
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        let now = Instant::now();
        // Checked first, because a watch that always has events waiting must end too.
        if this.is_over(cx, now) {
            this.end(cx);
        }
        let frame = match this.poll_burst(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                this.count();
                ready!(this.poll_alarms(cx, now))
            }
        };
        let frame = frame.map(|frame| this.unless_unprinted(frame));
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        self.count();
    }
}

fn encode_change(encoder: &Encoder, event: &Event, verdict: EventType) -> Bytes {
    let object = event.object_for(verdict);
    match verdict {
        // An object that left the selection is sent as it was before, with the change's version.
        EventType::Deleted => encoder.deleted_at(object, event.resource_version),
        EventType::Added | EventType::Modified => encoder.event(verdict, object),
    }
}

fn expired_frame(encoder: &Encoder, expired: Expired) -> Bytes {
    encoder.error(&Status::expired_watch(expired.requested, expired.oldest))
}

/// Returns the items of `bridged` as a stream. It ends after the last item of `bridged`.
fn items_of(bridged: BridgedWatch) -> Pin<Box<dyn Stream<Item = BridgeItem> + Send>> {
    Box::pin(stream::unfold(Some(bridged), |bridged| async {
        let mut bridged = bridged?;
        let item = bridged.next().await;
        let is_last = !matches!(item, BridgeItem::Change(_));
        Some((item, (!is_last).then_some(bridged)))
    }))
}

#[cfg(test)]
pub(super) mod tests;
