//! The reading clients of a load test: the receiving threads with their watchers, the check of
//! every event, and the clients that list during the test.

pub(super) mod checker;
pub(super) mod frames;
pub(super) mod list_storm;
pub(super) mod receivers;
pub(super) mod slot;
pub(super) mod tally;
pub(super) mod watcher;
