//! Tests of the whole codec: recorded bytes of a real API server are decoded and encoded again, and
//! arbitrary bytes are decoded without a panic.

mod bookmarks;
mod events;
mod lists;
mod objects;
mod scanners;
mod statuses;
pub(super) mod support;
