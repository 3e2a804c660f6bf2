//! The streams of one selection as a group, and which groups a change concerns.

mod condition;
mod group;
mod group_index;
mod interest;

pub(in crate::cache) use group::Group;
pub(in crate::cache) use group::QueueRead;
pub(in crate::cache) use interest::GroupPosition;
pub(in crate::cache) use interest::Interest;
