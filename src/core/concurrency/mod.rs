//! Tools for tasks that share a resource: [`GroupCommit`] makes one call for all waiting callers,
//! [`FairQueue`] shares few slots among many, [`CoopBudget`] makes long work yield to other tasks
//! on the same thread, [`drop_elsewhere()`] frees much memory on another thread, and a
//! [`Revocable`] value can be taken away from its owner.

mod coop_budget;
mod drop_elsewhere;
mod fair_queue;
mod group_commit;
mod revocable;

pub use coop_budget::CoopBudget;
pub use drop_elsewhere::drop_elsewhere;
pub use fair_queue::{Asker, AskerId, FairQueue, Full, Permit};
pub use group_commit::{CallSpacing, GroupCommit};
pub use revocable::Revocable;
