//! Groups: streams with the same selection share a queue of the events that concern them.
//!
//! `Interest` holds all groups of a cache. `GroupIndex` finds those that a change may concern,
//! without a check of each group.

mod condition;
mod group;
mod group_index;
mod interest;

pub(in crate::cache) use group::Group;
pub(in crate::cache) use group::QueueRead;
pub(in crate::cache) use interest::GroupPosition;
pub(in crate::cache) use interest::Interest;
