//! What tasks of one process share: one call for all who ask for the same, and a thread's time.

mod coop_budget;
mod group_commit;

pub use coop_budget::CoopBudget;
pub use group_commit::CallSpacing;
pub use group_commit::GroupCommit;
