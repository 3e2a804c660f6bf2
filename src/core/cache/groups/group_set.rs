//! GroupSet: the groups that one entry of the index finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::groups::group::Group;

/// A set of groups. It adds and removes one without a search of all others, because streams leave
/// while the writer waits for the lock. Most entries of the index find exactly one group.
#[derive(Default)]
pub(super) enum GroupSet {
    #[default]
    Empty,
    One(Arc<Group>),
    /// By the group's id, and the sum of their units.
    Many(BTreeMap<u64, Arc<Group>>, usize),
}

// === impl GroupSet ===

impl GroupSet {
    /// Returns the sum of [`Group::units`].
    pub(super) fn units(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(group) => group.units,
            Self::Many(_, units) => *units,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::One(_) => false,
            Self::Many(groups, _) => groups.is_empty(),
        }
    }

    pub(super) fn insert(&mut self, group: &Arc<Group>) {
        let added = (group.id, Arc::clone(group));
        *self = match std::mem::take(self) {
            Self::Empty => Self::One(added.1),
            Self::One(first) => {
                let units = first.units + group.units;
                Self::Many(BTreeMap::from([(first.id, first), added]), units)
            }
            Self::Many(mut groups, units) => {
                groups.insert(added.0, added.1);
                Self::Many(groups, units + group.units)
            }
        };
    }

    pub(super) fn remove(&mut self, group: &Arc<Group>) {
        match self {
            Self::One(only) if Arc::ptr_eq(only, group) => *self = Self::Empty,
            Self::Many(groups, units) => {
                if groups.remove(&group.id).is_some() {
                    *units -= group.units;
                }
            }
            Self::Empty | Self::One(_) => {}
        }
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(&Arc<Group>)) {
        match self {
            Self::Empty => {}
            Self::One(group) => visit(group),
            Self::Many(groups, _) => groups.values().for_each(visit),
        }
    }
}
