//! Decides when a watch sends its bookmarks and when it ends, with some jitter.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::{State, WatchBody};

/// How often a watch that allows bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before its deadline a watch gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Pause until the next attempt if a bookmark is due but can't be sent yet.
const BOOKMARK_RETRY: Duration = Duration::from_secs(1);
/// Shortest duration of a watch without `timeoutSeconds`. The longest duration is twice as long.
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);

/// The next bookmark of a watch.
pub(super) struct Bookmarks {
    /// The time at which the bookmark is due.
    pub(super) due: Instant,
    /// True after a relist: the client gets a bookmark once it has received everything, because it
    /// could not resume from a version inside the hole. Guarded by `a_relist_is_sent_at_once`.
    pub(super) is_urgent: bool,
}

// === impl Bookmarks ===

impl Bookmarks {
    pub(super) fn new(deadline: Instant) -> Self {
        let mut bookmarks = Self {
            due: deadline,
            is_urgent: false,
        };
        bookmarks.schedule(true, deadline);
        bookmarks
    }

    /// Sets the time of the next bookmark. `was_sent` says whether the due bookmark has been sent.
    pub(super) fn schedule(&mut self, was_sent: bool, deadline: Instant) {
        let now = Instant::now();
        let last = deadline.checked_sub(LAST_BOOKMARK);
        self.is_urgent &= !was_sent;
        self.due = match last.filter(|last| *last > now) {
            _ if self.is_urgent => now + BOOKMARK_RETRY,
            Some(last) => (now + jittered(BOOKMARK_PERIOD)).min(last),
            // The client has not received everything, or nothing has changed since the watch
            // started.
            None if !was_sent => now + BOOKMARK_RETRY,
            // As at the API server, a watch that is too short for its last bookmark gets none.
            None => deadline + LAST_BOOKMARK,
        };
    }
}

impl WatchBody {
    /// Returns true if the watch must end at `now`, even if events are waiting. Otherwise `cx` will
    /// be woken when it must end. This check is cheap, because it precedes every frame.
    pub(in crate::server::deliver) fn is_over(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> bool {
        self.set_alarm(cx);
        Pin::new(&mut self.drain).poll(cx).is_ready() || now >= self.deadline
    }

    /// Makes the alarm wake `cx`. The clock shows whether the alarm has fired: reading the clock
    /// costs less than loading the timer into the CPU's cache.
    fn set_alarm(&mut self, cx: &mut Context<'_>) {
        let is_set = |waker: &Waker| waker.will_wake(cx.waker());
        if !self.alarm_waker.as_ref().is_some_and(is_set) {
            self.alarm_waker = Some(cx.waker().clone());
            // Polled once, so the poll must not fail for lack of tokio's budget.
            let alarm = pin!(unconstrained(self.alarm.as_mut()));
            if alarm.poll(cx).is_ready() {
                // The caller may have read the clock just before the alarm's time.
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Returns a bookmark frame if one is due at `now` and the client has received everything
    /// before it, and `None` at the deadline. Otherwise the poll is pending, and the alarm is set.
    /// `now` is a time of this poll of the body, so an alarm after it wakes the body again.
    pub(super) fn poll_alarms(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Poll<Option<Bytes>> {
        loop {
            self.set_alarm(cx);
            if now >= self.deadline {
                self.state = State::Ended;
                return Poll::Ready(None);
            }
            let Some(bookmarks) = &mut self.bookmarks else {
                return Poll::Pending;
            };
            let mut stream = match &mut self.state {
                State::Streaming(stream) => Some(stream),
                // A watch on a bridge does not have everything yet.
                State::Bridging(_) => None,
                State::Last(_) | State::Ended => return Poll::Pending,
            };
            let has_hole_opened = stream
                .as_mut()
                .is_some_and(|stream| stream.has_hole_opened());
            bookmarks.is_urgent |= has_hole_opened;
            if now < bookmarks.due && !has_hole_opened {
                return Poll::Pending;
            }
            let at = stream.and_then(|stream| stream.bookmark());
            bookmarks.schedule(at.is_some(), self.deadline);
            let next = bookmarks.due.min(self.deadline);
            self.alarm.as_mut().reset(next);
            self.alarm_waker = None;
            if let Some(at) = at {
                return Poll::Ready(Some(self.bookmark_frame(at, false)));
            }
        }
    }
}

/// Returns the duration of a watch without `timeoutSeconds`.
pub(super) fn random_timeout() -> Duration {
    MIN_TIMEOUT.mul_f64(jitter(2.0))
}

fn jittered(period: Duration) -> Duration {
    period.mul_f64(jitter(1.02))
}

/// Returns a random factor, uniformly distributed from 1 to `limit`.
fn jitter(limit: f64) -> f64 {
    if is_jitter_disabled() {
        f64::midpoint(1.0, limit)
    } else {
        rand::rng().random_range(1.0..limit)
    }
}

#[cfg(not(any(test, feature = "test-support")))]
const fn is_jitter_disabled() -> bool {
    false
}

#[cfg(any(test, feature = "test-support"))]
thread_local! {
    static JITTER_DISABLED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(any(test, feature = "test-support"))]
fn is_jitter_disabled() -> bool {
    JITTER_DISABLED.get()
}

/// Makes this thread's bookmarks and deadlines predictable, so that a test run can be repeated.
#[cfg(any(test, feature = "test-support"))]
pub fn without_jitter() {
    JITTER_DISABLED.set(true);
}
