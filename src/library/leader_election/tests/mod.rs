//! Tests of leader election: the machine by itself, candidates on a scripted store, and a model.

mod candidates;
mod model;
mod steps;
pub(crate) mod store;

use tokio::time::Instant;

use super::machine::Machine;

impl Machine {
    /// Returns true if this candidate leads at `now`.
    fn is_leading(&self, now: Instant) -> bool {
        self.leading_until.is_some_and(|until| now < until)
    }
}
