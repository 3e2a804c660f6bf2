//! The objects and the recent history of one resource, in one wire format.
//!
//! A cache has one [`Writer`], which belongs to the reflector that lists and watches the upstream.
//! All other code has a [`Reader`], which can be cloned. One lock guards two things:
//!
//! - The *store* holds the current objects. A [`Snapshot`] is a cheap clone of it, at one resource
//!   version.
//! - The *event log* holds the recent changes in order, limited by age and bytes. Its newest end is
//!   the *tip*.
//!
//! GET and LIST are answered from a snapshot, WATCH by a [`WatchStream`]. A stream is a position in
//! the history and not a queue, so a slow client costs the writer nothing. A stream ends with
//! [`Expired`] (410) if an event that it still needs was dropped from the log.
//!
//! # Groups and wakes
//!
//! All streams with equal selections form a *group*, which has a queue of the events that its
//! clients see. For each change, an index finds the groups that may be affected, and the writer
//! determines the *verdict* (ADDED, MODIFIED, DELETED or none) once per group, not once per
//! stream. A stream that has reached the end of its group's queue has everything that was
//! queued. A stream that needs older events than the queue has reads them from the log. A group
//! without streams stays for the retention age, so that a stream that was cut can resume without
//! a search of the log.
//!
//! The writer queues events after it has released the lock. So a stream may find events in the log
//! that are queued later, and a bookmark has to wait until all events of the log are queued.
//!
//! After each change, or after several that have arrived together, the writer wakes the streams of
//! the groups that got it, either directly or through the [`Dispatcher`] of their thread. A relist
//! wakes all streams at its end, because they may need to send a bookmark. A wake is the only signal
//! from the writer to the readers.
//!
//! # Relists, holes, blocks and epochs
//!
//! When the upstream watch is lost at resource version `r`, the reflector lists again. The new list
//! is complete at `L`, but does not show the individual events between `r` and `L`.
//! [`Writer::replace`] appends the difference between the store and the list to the log, so that
//! open watches continue. [`Writer::replace_cooperatively`] does this in small steps, and yields to
//! other tasks between them. The difference consists of:
//!
//! 1. the *block*: DELETED events for the objects that are gone or were recreated. For watches with
//!    a selector, the block also has DELETED events for the changed objects that no longer match.
//!    All events of the block have resource version `r`.
//! 2. the changed objects, in the order of their resource versions.
//!
//! The versions strictly between `r` and `L` are a *hole*. These rules hold for it:
//!
//! - No event of the block has a version above `r`. Otherwise a client that is disconnected in the
//!   middle of the block would hold a version above deletions that it did not get. It would resume
//!   at another server from that version, and never get them.
//! - A watch that starts at exactly `r` gets the complete block, because its client may have been
//!   disconnected in the middle of the block.
//! - The log serves no start inside the hole, and an open watch that started there before the
//!   relist expires. The block may lack a deletion that its client needs, or delete an object that
//!   its client saw recreated.
//! - When the log drops the first event of the difference, all starts below `L` expire.
//!
//! If the log does not serve the start of a watch, a [`Bridge`] may deliver the missing events. The
//! docs of its module have the rules.
//!
//! An object that arrives with a new uid, but without a DELETED event for the old
//! uid, opens a hole too.
//!
//! A difference that events cannot express starts a new *epoch* (see [`EpochCause`]): store, log
//! and pinned snapshots are dropped, and all watches expire.
//!
//! # Several changes at one version
//!
//! etcd deletes all Events of a lease at one version, and their watches get no bookmarks. With
//! [`Config::shares_versions`], the newest version is therefore *open* until a change of a later one
//! comes. The log has its changes; the store does not (`write/open_version.rs`).
//!
//! The random model in `tests/model` guards these rules. Each of its `model_needs_…` tests switches
//! one rule off and expects the model to notice.
//!
//! # Invariants
//!
//! Each invariant is guarded by the test with its name.
//!
//! - **I1** `i1_the_log_tip_is_the_store_version`: store and log change in one critical section, so
//!   the log always ends at the store's version, or with the changes of the open version after it.
//!   The wake comes after it.
//! - **I2** `i2_a_snapshot_never_changes`: every answer is made from exactly one snapshot.
//! - **I3** `i3_an_event_carries_the_previous_object_and_the_verdict_needs_both`: an [`Event`] has
//!   the object before the change and the object after it.
//! - **I4** `i4_a_watch_delivers_everything_in_order_or_expires`: a watch delivers every matching
//!   event after its start, in order, or ends with [`Expired`]. It never skips an event.
//! - **I5** `i5_the_writer_never_waits_for_a_reader_or_an_encoder`: under the lock a reader only
//!   clones a handle or copies a small batch of handles. No lock is held while encoding.
//! - **I6** `i6_an_event_is_encoded_at_most_once_per_verdict`: all streams share the frames of an
//!   event, however many there are. Only frames of Tables belong to one stream.
//! - **I7** `i7_nothing_is_served_before_the_first_full_list`: a cache that is not ready serves
//!   nothing. A later relist produces the deletions that it implies.

mod bridge;
mod config;
mod groups;
mod log;
mod log_cursor;
mod objects;
mod reader;
mod state;
mod stats;
mod sync;
mod update;
mod wake;
mod watch;
mod write;

#[cfg(test)]
mod tests;

pub use bridge::{
    Bridge, BridgeItem, BridgeProgress, BridgeTotals, BridgeWriter, BridgedWatch, Gap,
};
pub use config::Config;
pub use groups::{GroupLimits, group_weight};
pub use log::{Event, EvictedBytes, Expired};
pub use log_cursor::LogCursor;
pub use objects::Snapshot;
pub use reader::Reader;
pub use stats::{EpochCause, Stats};
pub use wake::Dispatcher;
pub use watch::{
    Behind, InitialObjects, WatchError, WatchFrom, WatchItem, WatchProgress, WatchStream,
};
pub use write::{Relist, ReplaceOutcome, WentBack, Writer};

/// Creates an empty cache, which is not ready until the first [`Writer::replace`].
pub fn cache(config: Config) -> (Writer, Reader) {
    let writer = Writer::new(config);
    let reader = writer.reader().clone();
    (writer, reader)
}
