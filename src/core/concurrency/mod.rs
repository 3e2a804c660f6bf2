//! Tools for tasks that share a resource: [`GroupCommit`] makes one call for all waiting callers,
//! [`FairQueue`] shares few slots among many, [`CoopBudget`] makes long work yield to other tasks
//! on the same thread, [`drop_elsewhere()`] frees much memory on another thread, a [`Revocable`]
//! value can be taken away from its owner, a [`TokenBucket`] limits how often something is done,
//! [`Generations`] remember a limited number of recent askers, and a [`ThreadCounter`] has a part for
//! each thread.

mod coop_budget;
mod drop_elsewhere;
mod fair_queue;
mod generations;
mod group_commit;
mod revocable;
mod thread_counter;
mod token_bucket;

pub use coop_budget::CoopBudget;
pub use drop_elsewhere::drop_elsewhere;
pub use fair_queue::{Asker, AskerId, FairQueue, Full, Permit};
pub use generations::Generations;
pub use group_commit::{CallSpacing, GroupCommit, LARGE_GROUP};
pub use revocable::Revocable;
pub use thread_counter::ThreadCounter;
pub use token_bucket::TokenBucket;
