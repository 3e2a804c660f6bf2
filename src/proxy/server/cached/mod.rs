//! Reads that a cache answers.

mod acquire;
pub(super) mod authoritative;
pub(super) mod collection;
mod cost;
pub(super) mod dry_run;
pub(super) mod from_cache;
pub(super) mod miss;
mod prove;
mod read;
pub(super) mod sessions;
