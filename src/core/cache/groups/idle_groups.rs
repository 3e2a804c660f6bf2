//! IdleGroups: the groups without streams, ordered by the time when their last stream left.

use std::collections::BTreeSet;

use tokio::time::Instant;

/// Groups without streams, which wait for streams that resume.
#[derive(Default)]
pub(super) struct IdleGroups {
    unlimited: Order,
    /// Groups that are tested for many changes. They give way to new groups of this kind.
    limited: Order,
    /// The sum of the groups' weights.
    pub(super) weight: usize,
    /// The sum of the limited groups' units.
    pub(super) limited_units: usize,
}

/// A group without streams.
#[derive(Clone, Copy)]
pub(super) struct IdleGroup {
    pub(super) id: u64,
    /// When the last stream left.
    pub(super) since: Instant,
    pub(super) weight: usize,
    /// The units of a limited group; 0 for other groups.
    pub(super) limited_units: usize,
}

/// When the last stream left, and the group's id.
type Order = BTreeSet<(Instant, u64)>;

// === impl IdleGroups ===

impl IdleGroups {
    pub(super) fn len(&self) -> usize {
        self.unlimited.len() + self.limited.len()
    }

    pub(super) fn add(&mut self, group: IdleGroup) {
        self.order_mut(group).insert((group.since, group.id));
        self.weight += group.weight;
        self.limited_units += group.limited_units;
    }

    pub(super) fn remove(&mut self, group: IdleGroup) {
        if self.order_mut(group).remove(&(group.since, group.id)) {
            self.weight -= group.weight;
            self.limited_units -= group.limited_units;
        }
    }

    /// Returns the longest idle group: the time when its last stream left, and its ID.
    pub(super) fn oldest(&self) -> Option<(Instant, u64)> {
        let oldest = [self.unlimited.first(), self.limited.first()];
        oldest.into_iter().flatten().min().copied()
    }

    /// Returns the ID of the longest idle group among the limited ones.
    pub(super) fn oldest_limited(&self) -> Option<u64> {
        self.limited.first().map(|(_, id)| *id)
    }

    fn order_mut(&mut self, group: IdleGroup) -> &mut Order {
        match group.limited_units {
            0 => &mut self.unlimited,
            _ => &mut self.limited,
        }
    }
}
