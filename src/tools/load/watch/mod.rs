//! The receiving side: threads with their watchers and the check of every event, and the clients that list
//! meanwhile.

pub(super) mod checker;
pub(super) mod frames;
pub(super) mod list_storm;
pub(super) mod receivers;
pub(super) mod slot;
pub(super) mod tally;
pub(super) mod watcher;
