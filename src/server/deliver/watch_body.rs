//! The body of a WATCH answered from the cache: pulls a cache stream, prints frames, ends in time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::task::ready;
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use rand::Rng;
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::api::EventType;
use crate::api::ResourceVersion;
use crate::api::Status;
use crate::body::BoxError;
use crate::cache::Event;
use crate::cache::Expired;
use crate::cache::WatchItem;
use crate::cache::WatchStream;
use crate::codec::Encoder;
use crate::codec::MetaVersion;
use crate::codec::Representation;
use crate::codec::View;
use crate::shutdown::WatchEnd;

use crate::server::collection::Collection;
use crate::server::decide::WatchTerms;

use super::merged;

/// How often a stream that allows bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before its deadline a stream gets a last one.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// When a bookmark is due but the client is not at the tip yet.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);
/// Events that a stream which never waits counts together.
const COUNT_BATCH: u64 = 64;
/// A longer `timeoutSeconds` is cut to a year: clocks can't count to the end of time.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// A watch without `timeoutSeconds` ends at a random moment between this and twice this.
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// Streams watch frames until the deadline, the end of the cache, or the process' drain.
///
/// Ends cleanly in all three cases; a reader that fell off the history gets an ERROR frame first.
pub(crate) struct WatchBody {
    state: State,
    collection: Arc<dyn Collection>,
    /// Frames given out since the last count.
    uncounted: u64,
    encoder: Arc<Encoder>,
    representation: Representation,
    deadline: Instant,
    /// Goes off when the next bookmark is due, or the deadline has come.
    alarm: Pin<Box<Sleep>>,
    /// Who is woken by the alarm; `None` until it has been polled, without which it never goes off.
    alarm_waker: Option<Waker>,
    bookmarks: Option<Bookmarks>,
    initial_events_end: bool,
    one_event_per_frame: bool,
    /// Did not fit into the last burst.
    leftover: Option<Bytes>,
    drain: WatchEnd,
}

enum State {
    /// Only this frame is to be sent.
    Last(Bytes),
    Streaming(WatchStream),
    Ended,
}

struct Bookmarks {
    due: Instant,
    /// The client should have one as soon as it has everything.
    is_urgent: bool,
}

// === impl WatchBody ===

impl WatchBody {
    /// The body of a watch that `stream` feeds, or that only tells why there is none.
    pub(crate) fn new(
        collection: Arc<dyn Collection>,
        stream: Result<WatchStream, Expired>,
        representation: Representation,
        terms: WatchTerms,
        one_event_per_frame: bool,
        drain: WatchEnd,
    ) -> Self {
        let timeout = terms.timeout.unwrap_or_else(random_timeout);
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        let encoder = collection.encoder_for(representation);
        let state = match stream {
            Ok(_) if timeout.is_zero() => State::Ended,
            Ok(stream) => State::Streaming(stream),
            Err(expired) => State::Last(expired_frame(&encoder, expired)),
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
            leftover: None,
            drain,
        }
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
                State::Streaming(stream) => match stream.poll_next(cx) {
                    Poll::Ready(item) => item,
                    Poll::Pending => return Poll::Pending,
                },
            };
            let last = match item {
                None => State::Ended,
                Some(WatchItem::Expired(expired)) => {
                    State::Last(expired_frame(&self.encoder, expired))
                }
                Some(item) => match self.item_frame(item) {
                    Some(frame) => return Poll::Ready(Some(frame)),
                    None => continue,
                },
            };
            self.state = last;
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

    /// A frame that is there without another look at the cache: whoever wants more asks again anyway.
    fn fetched_frame(&mut self) -> Option<Bytes> {
        let State::Streaming(stream) = &mut self.state else {
            return None;
        };
        let item = stream.next_fetched()?;
        self.item_frame(item)
    }

    /// What the stream has to say, as much of it in one frame as fits.
    fn poll_burst(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let first = match self.leftover.take() {
            Some(leftover) => leftover,
            None => match ready!(self.poll_state(cx)) {
                Some(first) => first,
                None => return Poll::Ready(None),
            },
        };
        if self.one_event_per_frame {
            self.uncounted += 1;
            return Poll::Ready(Some(first));
        }
        let (frame, count, leftover) = merged::merge(first, || self.fetched_frame());
        self.leftover = leftover;
        self.uncounted += count as u64;
        if self.uncounted >= COUNT_BATCH {
            self.count();
        }
        Poll::Ready(Some(frame))
    }

    /// True when the stream must end, whatever it has to say. Cheap, so that it can be asked for
    /// every frame.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if Pin::new(&mut self.drain).poll(cx).is_ready() {
            return true;
        }
        self.has_alarm_fired(cx) && Instant::now() >= self.deadline
    }

    /// True when the alarm has gone off; else it will wake `cx`.
    fn has_alarm_fired(&mut self, cx: &mut Context<'_>) -> bool {
        let is_set = |waker: &Waker| waker.will_wake(cx.waker());
        if self.alarm_waker.as_ref().is_some_and(is_set) {
            return self.alarm.is_elapsed();
        }
        self.alarm_waker = Some(cx.waker().clone());
        self.alarm.as_mut().poll(cx).is_ready()
    }

    /// A bookmark frame if one is due and the client has everything up to it; `None` at the
    /// deadline. Else the alarm is set.
    fn poll_alarms(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let has_alarm_fired = self.has_alarm_fired(cx);
            if has_alarm_fired && Instant::now() >= self.deadline {
                self.state = State::Ended;
                return Poll::Ready(None);
            }
            let (Some(bookmarks), State::Streaming(stream)) =
                (&mut self.bookmarks, &mut self.state)
            else {
                return Poll::Pending;
            };
            let was_relisted = stream.was_relisted();
            bookmarks.is_urgent |= was_relisted;
            if !has_alarm_fired && !was_relisted {
                return Poll::Pending;
            }
            let at = stream.bookmark();
            bookmarks.schedule(at.is_some(), self.deadline);
            let next = bookmarks.due.min(self.deadline);
            self.alarm.as_mut().reset(next);
            self.alarm_waker = None;
            if let Some(at) = at {
                return Poll::Ready(Some(self.bookmark_frame(at, false)));
            }
        }
    }

    /// Once a wake and not once a frame: all streams of a resource count in one place.
    fn count(&mut self) {
        match std::mem::take(&mut self.uncounted) {
            0 => {}
            events => self.collection.count_sent(events),
        }
    }

    fn bookmark_frame(&self, at: ResourceVersion, initial_events_end: bool) -> Bytes {
        // Not the encoder of the start: the upstream's bookmark, the model, may have come since.
        let encoder = self.collection.encoder_for(self.representation);
        encoder.bookmark(at, initial_events_end)
    }

    /// The frame that tells `event`, encoded for the first client that wants it so.
    fn change_frame(&self, event: &Event, verdict: EventType) -> Bytes {
        let encode = || encode_change(&self.encoder, event, verdict);
        match self.representation.view {
            View::Whole => event.frame(verdict, encode),
            View::Metadata(MetaVersion::V1) => {
                event.metadata_frame(self.representation.format, verdict, encode)
            }
            // Nobody asks for it any more: not worth a place in every event.
            View::Metadata(MetaVersion::V1Beta1) => encode(),
        }
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // First: a stream that always has something to say must end too.
        if this.is_over(cx) {
            this.leftover = None;
            this.state = State::Ended;
        }
        let frame = match this.poll_burst(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                this.count();
                ready!(this.poll_alarms(cx))
            }
        };
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
        // What left the selection is told as it was, at the resource version of the change.
        EventType::Deleted => encoder.deleted_at(object, event.resource_version),
        EventType::Added | EventType::Modified => encoder.event(verdict, object),
    }
}

fn expired_frame(encoder: &Encoder, expired: Expired) -> Bytes {
    encoder.error(&Status::expired_watch(expired.requested, expired.oldest))
}

fn random_timeout() -> Duration {
    MIN_TIMEOUT.mul_f64(jitter(2.0))
}

// === impl Bookmarks ===

impl Bookmarks {
    fn new(deadline: Instant) -> Self {
        let mut bookmarks = Self {
            due: deadline,
            is_urgent: false,
        };
        bookmarks.schedule(true, deadline);
        bookmarks
    }

    /// Sets the next time, after one was due and was sent or not.
    fn schedule(&mut self, was_sent: bool, deadline: Instant) {
        let now = Instant::now();
        let last = deadline.checked_sub(LAST_BOOKMARK);
        self.is_urgent &= !was_sent;
        self.due = match last.filter(|last| *last > now) {
            _ if self.is_urgent => now + BOOKMARK_RETRY,
            Some(last) => (now + jittered(BOOKMARK_PERIOD)).min(last),
            // The client was in the middle of something, or nothing had happened so far.
            None if !was_sent => now + BOOKMARK_RETRY,
            // As the API server: a watch too short for the one before its end gets none at all.
            None => deadline + LAST_BOOKMARK,
        };
    }
}

fn jittered(period: Duration) -> Duration {
    period.mul_f64(jitter(1.02))
}

/// Uniform from 1 to `limit`.
fn jitter(limit: f64) -> f64 {
    match is_jitter_disabled() {
        true => f64::midpoint(1.0, limit),
        false => rand::rng().random_range(1.0..limit),
    }
}

#[cfg(not(test))]
const fn is_jitter_disabled() -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static JITTER_DISABLED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
fn is_jitter_disabled() -> bool {
    JITTER_DISABLED.get()
}

/// Takes all chance out of this thread's bookmarks and deadlines, so that a run can be repeated.
#[cfg(test)]
pub(crate) fn without_jitter() {
    JITTER_DISABLED.set(true);
}

#[cfg(test)]
mod tests;
