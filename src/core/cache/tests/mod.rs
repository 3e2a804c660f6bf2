//! Tests of the whole cache: invariants, relists, retention, memory, and a random model.

mod interrupted;
mod invariants;
mod memory;
mod model;
mod relist;
mod retention;
pub(in crate::cache) mod support;
