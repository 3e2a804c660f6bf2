//! The streams of one selection as a group, and which groups a change concerns.

mod condition;
mod group;
mod group_index;
mod interest;

pub(in crate::cache) use group::Group;
pub(in crate::cache) use group::Read;
pub(in crate::cache) use interest::Interest;
pub(in crate::cache) use interest::Joined;
