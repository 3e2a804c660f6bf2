//! Tests of the room as a whole.

mod invariants;
mod memory;
mod model;
mod relist;
mod retention;
pub(in crate::cache) mod support;
