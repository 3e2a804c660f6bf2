//! Tests of leader election: the machine by itself, candidates on a scripted store, and a model.

mod candidates;
mod model;
mod steps;
pub(crate) mod store;
