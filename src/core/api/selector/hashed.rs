//! HashedSelection: a selection that is hashed once.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use super::Selection;

/// A key for maps. A selection may have thousands of conditions, and maps are used under locks.
// The hash is compared first; equal `Arc`s are compared by their addresses first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedSelection {
    hash: u64,
    selection: Arc<Selection>,
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

// === impl HashedSelection ===

impl HashedSelection {
    /// Hashes `selection`.
    pub fn new(selection: Arc<Selection>) -> Self {
        let hash = HASHER.hash_one(&selection);
        Self { hash, selection }
    }

    /// Returns the selection.
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }
}

impl Hash for HashedSelection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
