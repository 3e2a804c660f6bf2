//! Groups: streams with equal selections share a queue of their events.
//!
//! `Interest` holds all groups of a cache. `GroupIndex` finds the groups that a change may affect,
//! without a check of each group.

mod candidate;
mod condition;
mod group;
mod group_index;
mod group_set;
mod idle_groups;
mod interest;
mod limits;

pub(in crate::cache) use candidate::Candidate;
pub use candidate::group_weight;
pub(in crate::cache) use group::{Group, QueueRead};
pub(in crate::cache) use interest::{DROPPED_AT_ONCE, Interest};
pub use limits::GroupLimits;
