//! Bridge: gives watches the events between their old version and the log.
//!
//! After a restart of the process, the log begins at the version of the first list. Clients resume
//! at the versions that they have, which are older. The upstream still has the history in between,
//! so one short upstream watch delivers it to all clients of a selection. That watch and its events
//! are a *bridge*. A bridge also works for versions that the log has dropped, and for versions
//! inside a hole.
//!
//! The task that reads the upstream watch has the bridge's [`BridgeWriter`]; each client has a
//! [`BridgedWatch`]. The events are in a separate event log. They are the upstream's events for
//! this selection, of all shards, so their types need no verdict.
//!
//! # Rules
//!
//! - Only a version of the current epoch is bridged, and only if the log cannot serve it. A client
//!   with a version that an earlier epoch had reached gets 410, because the version may belong to
//!   another history. Guarded by `only_old_versions_of_this_epoch_are_bridged`.
//! - The upstream watch starts at the oldest version that waits. A client gets only the events
//!   after its own version. Guarded by `each_watch_gets_only_the_events_after_its_version`.
//! - The bridge is complete at the first version that an event or a bookmark of the upstream watch
//!   has reached, that the log serves, and that no client's version is above. At this version each
//!   client has exactly the upstream's state of its selection, and continues from the log with the
//!   events after it. If the cache has not reached the version yet, the stream waits for it.
//!   Guarded by `a_bridge_ends_where_the_log_serves_all_its_watches`.
//! - If the upstream refuses the oldest version with 410, its clients get that 410, and the bridge
//!   starts at a later one. A client with a very old version must not harm the others. Guarded by
//!   `a_refused_version_does_not_harm_later_ones`.
//! - The buffers of all bridges share one limit of bytes. If a client is slower than the upstream,
//!   it gets 410 when its next event was dropped from the buffer. Guarded by
//!   `a_watch_that_falls_behind_the_buffer_expires`.
//! - A new epoch ends the bridge with 410. Guarded by `a_new_epoch_ends_the_bridge`.
//!
//! The contract tests of `tools/app` restart kubefan under clients, and check that they notice if
//! a bridge ends too early or repeats events.

#[expect(clippy::module_inception, reason = "it holds `Bridge`")]
mod bridge;
mod bridged_watch;
mod gap;
mod state;

pub use bridge::{Bridge, BridgeWriter};
pub use bridged_watch::{BridgeItem, BridgedWatch};
pub use gap::Gap;
pub use state::{BridgeProgress, BridgeTotals};

#[cfg(test)]
mod tests;
