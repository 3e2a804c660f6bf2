//! One open upstream watch with its timeouts.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::error::Error;
use crate::api::WatchEvent;
use crate::upstream;
use crate::upstream::WatchLiveness;

/// How long after its deadline the reflector waits for upstream to end a watch.
const DEADLINE_GRACE: Duration = Duration::from_secs(10);
/// A watch that ends at most this long before its deadline counts as having reached it.
const EARLY_END_TOLERANCE: Duration = Duration::from_secs(5);
/// A watch that was open for less than this, and delivered no change, counts as a failed attempt.
const MIN_USEFUL_TIME: Duration = Duration::from_secs(1);

/// An open upstream watch; dropping the session ends the watch.
#[derive(Debug)]
pub(super) struct Session<E> {
    events: E,
    opened_at: Instant,
    /// When the watch began to deliver changes: for a watch-list, at the end of its initial events.
    following_since: Instant,
    last_frame: Instant,
    timeout: Duration,
    outcome: WatchOutcome,
}

/// The facts about a watch that ended, or could not be opened, which decide about recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchOutcome {
    /// True if the watch started at the version of a list that had just been completed.
    pub(super) follows_list: bool,
    /// Frames received, bookmarks included, ERROR frames and the initial events of a watch-list
    /// excluded.
    pub(super) frames: u64,
    /// Changes received, the initial events of a watch-list excluded.
    pub(super) changes: u64,
    /// True if the watch could deliver changes for at least a second.
    pub(super) reached_useful_time: bool,
    /// True if the watch was open until its deadline, less 5 s of tolerance.
    pub(super) reached_deadline: bool,
}

impl<E> Session<E>
where
    E: Stream<Item = Result<WatchEvent, upstream::Error>> + Unpin,
{
    /// Creates a session of the watch `events`, which was opened just now with `timeout` as its
    /// `timeoutSeconds`.
    pub(super) fn new(events: E, timeout: Duration, follows_list: bool) -> Self {
        let now = Instant::now();
        let outcome = WatchOutcome {
            follows_list,
            ..WatchOutcome::default()
        };
        Self {
            events,
            opened_at: now,
            following_since: now,
            last_frame: now,
            timeout,
            outcome,
        }
    }

    /// Returns the next event. After an ERROR event, only [`Session::outcome`] may be called.
    /// Cancel safe.
    ///
    /// # Errors
    /// If the watch ended: also at a clean end, and after `silence_limit` without a frame. With a
    /// `liveness`, the connection's pings count as frames. After an error, only
    /// [`Session::outcome`] may be called.
    pub(super) async fn next(
        &mut self,
        silence_limit: Duration,
        liveness: Option<&WatchLiveness>,
    ) -> Result<WatchEvent, Error> {
        let overdue = self.opened_at + self.timeout + DEADLINE_GRACE;
        let event = loop {
            let deadline = overdue.min(self.last_frame + silence_limit);
            match timeout_at(deadline, self.events.next()).await {
                Ok(Some(event)) => break event?,
                Ok(None) => return Err(Error::EndOfStream),
                Err(_) if deadline == overdue => return Err(Error::Overdue),
                Err(_) => {}
            }
            match liveness.and_then(WatchLiveness::age) {
                Some(age) if age < silence_limit => self.last_frame = Instant::now() - age,
                _ => return Err(Error::Silent(silence_limit)),
            }
        };
        self.count(&event);
        Ok(event)
    }

    /// Returns what [`Session::next`] would return at once, or `None` if no frame has arrived. Never
    /// waits, so it needs no timer.
    pub(super) async fn received(&mut self) -> Option<Result<WatchEvent, Error>> {
        let polled = poll_fn(|cx| Poll::Ready(self.events.poll_next_unpin(cx))).await;
        Some(match polled {
            Poll::Pending => return None,
            Poll::Ready(None) => Err(Error::EndOfStream),
            Poll::Ready(Some(Err(error))) => Err(error.into()),
            Poll::Ready(Some(Ok(event))) => {
                self.count(&event);
                Ok(event)
            }
        })
    }

    fn count(&mut self, event: &WatchEvent) {
        self.last_frame = Instant::now();
        let is_change = matches!(event, WatchEvent::Change { .. });
        self.outcome.changes += u64::from(is_change);
        self.outcome.frames += u64::from(!matches!(event, WatchEvent::Error(_)));
    }

    /// Returns when the last frame was received.
    pub(super) fn last_frame(&self) -> Instant {
        self.last_frame
    }

    /// Turns a watch-list into a plain watch at the end of its initial events: clears the counts
    /// and restarts the time that [`WatchOutcome::reached_useful_time`] measures.
    pub(super) fn begin_following(&mut self) {
        self.following_since = Instant::now();
        self.outcome = WatchOutcome {
            follows_list: true,
            ..WatchOutcome::default()
        };
    }

    /// Returns the facts about the watch up to now.
    pub(super) fn outcome(&self) -> WatchOutcome {
        WatchOutcome {
            reached_useful_time: self.following_since.elapsed() >= MIN_USEFUL_TIME,
            reached_deadline: self.opened_at.elapsed() + EARLY_END_TOLERANCE >= self.timeout,
            ..self.outcome
        }
    }
}
