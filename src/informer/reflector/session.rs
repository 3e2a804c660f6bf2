//! One open watch with its clocks.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::StreamExt;
use tokio::time::Instant;
use tokio::time::timeout_at;

use crate::api::Bookmark;
use crate::api::EventType;
use crate::api::Object;
use crate::api::WatchEvent;
use crate::upstream;

use super::error::Error;

/// How long past its deadline a watch is left to upstream to end.
const DEADLINE_GRACE: Duration = Duration::from_secs(10);
/// How long before its deadline a watch may end and still count as having reached it.
const EARLY_END_TOLERANCE: Duration = Duration::from_secs(5);
/// A watch that lived shorter and brought no change did not work.
const MIN_USEFUL_TIME: Duration = Duration::from_secs(1);

/// An open watch; dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Session<E> {
    events: E,
    opened_at: Instant,
    /// Since when it tells changes: the initial events of a watch-list are none.
    following_since: Instant,
    last_frame: Instant,
    timeout: Duration,
    outcome: WatchOutcome,
}

/// What is known of a watch that ended, or never began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchOutcome {
    /// It started where a list ended.
    pub(super) follows_list: bool,
    /// Frames that came, bookmarks included.
    pub(super) frames: u64,
    /// Changes that came.
    pub(super) changes: u64,
    /// It told changes, or could have, for at least a second.
    pub(super) is_long: bool,
    /// It was open until about its deadline.
    pub(super) reached_deadline: bool,
}

/// A frame that is no failure.
#[derive(Debug)]
pub(super) enum Frame {
    /// A change.
    Change {
        /// What happened.
        event_type: EventType,
        /// The object.
        object: Object,
        /// The bytes that told it.
        bytes: Bytes,
    },
    /// A bookmark.
    Bookmark(Bookmark),
}

impl<E> Session<E>
where
    E: Stream<Item = Result<WatchEvent, upstream::Error>> + Unpin,
{
    /// Starts the clocks of a watch that was opened with `timeout`.
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

    /// The next frame. Cancel safe.
    ///
    /// # Errors
    /// Whatever ends the watch: its clean end, an ERROR frame and `silence_limit` without a frame
    /// included. The session is of no use afterwards but for [`Session::outcome`].
    pub(super) async fn next(&mut self, silence_limit: Duration) -> Result<Frame, Error> {
        let overdue = self.opened_at + self.timeout + DEADLINE_GRACE;
        let deadline = overdue.min(self.last_frame + silence_limit);
        let event = match timeout_at(deadline, self.events.next()).await {
            Ok(Some(event)) => event?,
            Ok(None) => return Err(Error::EndOfStream),
            Err(_) if deadline == overdue => return Err(Error::Overdue),
            Err(_) => return Err(Error::Silent(silence_limit)),
        };
        self.last_frame = Instant::now();
        self.outcome.frames += 1;
        match event {
            WatchEvent::Change {
                event_type,
                object,
                frame: bytes,
            } => {
                self.outcome.changes += 1;
                Ok(Frame::Change {
                    event_type,
                    object,
                    bytes,
                })
            }
            WatchEvent::Bookmark(bookmark) => Ok(Frame::Bookmark(bookmark)),
            WatchEvent::Error(status) => {
                self.outcome.frames -= 1;
                Err(status.into())
            }
        }
    }

    /// The initial events of the watch-list are over: it is a plain watch from now on.
    pub(super) fn begin_following(&mut self) {
        self.following_since = Instant::now();
        self.outcome = WatchOutcome {
            follows_list: true,
            ..WatchOutcome::default()
        };
    }

    /// How it went so far.
    pub(super) fn outcome(&self) -> WatchOutcome {
        WatchOutcome {
            is_long: self.following_since.elapsed() >= MIN_USEFUL_TIME,
            reached_deadline: self.opened_at.elapsed() + EARLY_END_TOLERANCE >= self.timeout,
            ..self.outcome
        }
    }
}
