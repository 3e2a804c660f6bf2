//! Tools for tasks that share a resource: [`GroupCommit`] makes one call for all callers that wait
//! for it, and [`CoopBudget`] makes long work yield to other tasks on the same thread.

mod coop_budget;
mod group_commit;

pub use coop_budget::CoopBudget;
pub use group_commit::CallSpacing;
pub use group_commit::GroupCommit;
