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
const GRACE: Duration = Duration::from_secs(10);
/// How long before its deadline a watch may end and still count as having reached it.
const TOLERANCE: Duration = Duration::from_secs(5);
/// A watch that lived shorter and brought no change did not work.
const SHORT: Duration = Duration::from_secs(1);

/// An open watch; dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Session<E> {
    events: E,
    opened: Instant,
    /// Since when it tells changes: the initial events of a watch-list are none.
    following: Instant,
    last_frame: Instant,
    timeout: Duration,
    life: Life,
}

/// What is known of a watch that ended, or never began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
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
        let life = Life {
            follows_list,
            ..Life::default()
        };
        Self {
            events,
            opened: now,
            following: now,
            last_frame: now,
            timeout,
            life,
        }
    }

    /// The next frame. Cancel safe.
    ///
    /// # Errors
    /// Whatever ends the watch: its clean end, an ERROR frame and `silence_limit` without a frame
    /// included. The session is of no use afterwards but for [`Session::life`].
    pub(super) async fn next(&mut self, silence_limit: Duration) -> Result<Frame, Error> {
        let overdue = self.opened + self.timeout + GRACE;
        let deadline = overdue.min(self.last_frame + silence_limit);
        let event = match timeout_at(deadline, self.events.next()).await {
            Ok(Some(event)) => event?,
            Ok(None) => return Err(Error::EndOfStream),
            Err(_) if deadline == overdue => return Err(Error::Overdue),
            Err(_) => return Err(Error::Silent(silence_limit)),
        };
        self.last_frame = Instant::now();
        self.life.frames += 1;
        match event {
            WatchEvent::Change {
                event_type,
                object,
                frame: bytes,
            } => {
                self.life.changes += 1;
                Ok(Frame::Change {
                    event_type,
                    object,
                    bytes,
                })
            }
            WatchEvent::Bookmark(bookmark) => Ok(Frame::Bookmark(bookmark)),
            WatchEvent::Error(status) => {
                self.life.frames -= 1;
                Err(status.into())
            }
        }
    }

    /// The initial events of the watch-list are over: it is a plain watch from now on.
    pub(super) fn follow_list(&mut self) {
        self.following = Instant::now();
        self.life = Life {
            follows_list: true,
            ..Life::default()
        };
    }

    /// How it went so far.
    pub(super) fn life(&self) -> Life {
        Life {
            is_long: self.following.elapsed() >= SHORT,
            reached_deadline: self.opened.elapsed() + TOLERANCE >= self.timeout,
            ..self.life
        }
    }
}
