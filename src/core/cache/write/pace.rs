//! Pace: when a relist lets other tasks run.

use crate::concurrency::CoopBudget;

/// Yields to other tasks after a certain amount of work, or never.
pub(in crate::cache) struct Pace {
    budget: CoopBudget,
    /// Budget units that each unit of work costs.
    scale: usize,
}

/// Budget units of the comparison of two objects, or of making an event.
pub(super) const COMPARED: usize = CoopBudget::UNITS / 1024;
/// Budget units of a change of the store and its indexes.
pub(super) const STORED: usize = CoopBudget::UNITS / 128;
/// Budget units of one group that is checked for an event, and perhaps woken.
pub(super) const CHECKED: usize = CoopBudget::UNITS / 4096;
/// Budget units of an event that is evicted and freed.
pub(super) const EVICTED: usize = CoopBudget::UNITS / 512;
/// Number of groups that are checked, or evicted from, in one critical section; about 70 ns each.
pub(super) const CHECKED_AT_ONCE: usize = 1024;

// === impl Pace ===

impl Pace {
    /// Creates a pace that never yields.
    pub(super) fn unlimited() -> Self {
        Self::with_scale(0)
    }

    /// Creates a pace that yields several times per millisecond.
    pub(super) fn cooperative() -> Self {
        Self::with_scale(1)
    }

    pub(in crate::cache) fn with_scale(scale: usize) -> Self {
        let budget = CoopBudget::new();
        Self { budget, scale }
    }

    /// Returns how many items may be processed before the next yield, if usually
    /// `at_once` items are.
    pub(super) fn at_once(&self, at_once: usize) -> usize {
        match self.scale {
            0 | 1 => at_once,
            _ => 1,
        }
    }

    /// Yields if the work up to now, with these `units`, is enough for one turn. Cancel safe.
    pub(super) async fn spend(&mut self, units: usize) {
        if !self.budget.charge(units * self.scale) {
            self.budget.proceed().await;
        }
    }
}
