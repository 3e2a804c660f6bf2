//! The heart: one resource's objects and recent history, in one wire format.
//!
//! One [`Writer`] changes it, any number of [`Reader`]s look at it. What holds, each with a test of
//! that name:
//!
//! - **I1** The log's tip is the store's version: both change in one critical section, then comes
//!   the wake-up.
//! - **I2** A [`Snapshot`] never changes; every answer comes from exactly one.
//! - **I3** An [`Event`] carries the object before it; a selector's verdict needs both.
//! - **I4** A watch delivers every matching event after its start, in order, or ends
//!   [`Expired`]. It never skips.
//! - **I5** The writer never waits for a reader that is slow, nor is a lock held while encoding:
//!   under the lock a reader only clones a handle or copies a small batch of them.
//! - **I6** One event is encoded at most once per verdict, however many watch it.
//! - **I7** Nothing is served before the first full list; a relist yields the deletions it implies.
//!
//! # Relists, holes and epochs
//!
//! When the upstream watch is lost at resource version `r`, a list complete at `L` tells what is,
//! not what happened. [`Writer::replace`] appends the difference to the log, so that watches go on:
//! a *block* of deletions, all at `r`, then the changed objects at their own versions. The span
//! `(r, L)` is a *hole*:
//!
//! - Deletions are told at `r` and never later, because a client that resumes elsewhere from a
//!   later version than the true deletion would miss it. So are, to those who select, the objects
//!   that no longer match: they may have stopped to match long before their last change.
//! - A start at exactly `r` gets the whole block: whoever was cut in the middle of it holds `r` too.
//! - A start strictly inside the hole expires: the block may lack a deletion that it needs, or
//!   delete what was created anew.
//! - When the log loses any event of the hole, starts below `L` expire.
//!
//! What can't be told as events starts a new *epoch*: everything is dropped and all watches expire.
//!
//! # Who is told
//!
//! Streams of one selection are a group with a queue of the events that concern it. The writer finds
//! the groups of a change through an index and judges it once for each; a stream is a place in its
//! group's queue, and at the queue's end it is at the log's tip. A stream whose start lies before the
//! queue's walks along the log first.
//!
//! The writer wakes the streams of those groups only: through a [`Dispatcher`], where their thread
//! has one. Relists, which streams may want to follow with a bookmark, wake all.

mod config;
mod groups;
mod log;
mod objects;
mod reader;
mod state;
mod stats;
mod update;
mod wake;
mod watch;
mod write;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use log::Event;
pub use log::Expired;
pub use objects::Snapshot;
pub use reader::Reader;
pub use stats::EpochCause;
pub use stats::Stats;
pub use wake::Dispatcher;
pub use watch::WatchFrom;
pub use watch::WatchItem;
pub use watch::WatchStream;
pub use write::Relist;
pub use write::ReplaceOutcome;
pub use write::WentBack;
pub use write::Writer;

/// Makes an empty cache that is not ready until the first [`Writer::replace`].
pub fn cache(config: Config) -> (Writer, Reader) {
    let writer = Writer::new(config);
    let reader = writer.reader().clone();
    (writer, reader)
}
