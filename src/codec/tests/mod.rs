//! The room as a whole: recorded bytes of a real API server read and printed again, and anything
//! else read without panic.

mod bookmarks;
mod events;
mod lists;
mod objects;
mod scanners;
mod statuses;
pub(super) mod support;
