//! IdleGroups: the groups without streams, in the order in which their last stream left.

use std::collections::BTreeSet;

use tokio::time::Instant;

/// Groups without streams, which are kept for streams that resume.
#[derive(Default)]
pub(super) struct IdleGroups {
    indexed: Order,
    /// Groups that are tested for each change. They give way to new groups of this kind.
    unindexed: Order,
}

/// When the last stream left, and the group's id.
type Order = BTreeSet<(Instant, u64)>;

// === impl IdleGroups ===

impl IdleGroups {
    pub(super) fn len(&self) -> usize {
        self.indexed.len() + self.unindexed.len()
    }

    pub(super) fn add(&mut self, since: Instant, id: u64, is_indexed: bool) {
        self.order_mut(is_indexed).insert((since, id));
    }

    pub(super) fn remove(&mut self, since: Instant, id: u64, is_indexed: bool) {
        self.order_mut(is_indexed).remove(&(since, id));
    }

    /// When the last stream left the group that is idle for the longest time, and the group's id.
    pub(super) fn oldest(&self) -> Option<(Instant, u64)> {
        let oldest = [self.indexed.first(), self.unindexed.first()];
        oldest.into_iter().flatten().min().copied()
    }

    /// The id of the unindexed group that is idle for the longest time.
    pub(super) fn oldest_unindexed(&self) -> Option<u64> {
        self.unindexed.first().map(|(_, id)| *id)
    }

    fn order_mut(&mut self, is_indexed: bool) -> &mut Order {
        match is_indexed {
            true => &mut self.indexed,
            false => &mut self.unindexed,
        }
    }
}
