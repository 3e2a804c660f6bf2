//! Candidate: what a watch needs to join its group, prepared without a lock.

use std::sync::Arc;

use crate::api::{HashedSelection, Selection};
use crate::cache::groups::condition::{Condition, condition_sets};

/// Estimated bytes of an entry of the index, with its condition.
const ENTRY_BYTES: usize = 256;

/// A selection that is going to be watched. It may have thousands of conditions, so the work that
/// takes time is done before the locks are taken.
pub(in crate::cache) struct Candidate {
    pub(super) selection: HashedSelection,
    /// See [`condition_sets`].
    pub(super) sets: Vec<Vec<Condition>>,
    /// See [`Selection::units`].
    pub(super) units: usize,
    /// See [`group_weight`].
    pub(super) weight: usize,
}

/// Returns an upper limit of the bytes that `selection` and its entries in the index take while it
/// is watched. Watches with equal selections share these bytes.
pub fn group_weight(selection: &Selection) -> usize {
    let sets = condition_sets(selection);
    weight(selection, &sets)
}

fn weight(selection: &Selection, sets: &[Vec<Condition>]) -> usize {
    let entries = sets.iter().map(Vec::len).max().unwrap_or(0);
    selection.weight() + entries * ENTRY_BYTES
}

// === impl Candidate ===

impl Candidate {
    pub(in crate::cache) fn new(selection: Arc<Selection>) -> Self {
        let sets = condition_sets(&selection);
        Self {
            units: selection.units(),
            weight: weight(&selection, &sets),
            sets,
            selection: HashedSelection::new(selection),
        }
    }
}
