//! The cheapest way to a proof for all who ask.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::Selection;
use crate::cache::Snapshot;
use crate::upstream::Scope;

/// So many objects are verified at once, without trying a barrier before.
const VERIFIED_AT_ONCE: usize = 500;

/// What a reader asks about: its selection, and the same in the API server's words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// Which objects.
    pub selection: Arc<Selection>,
    /// The same, for the API server.
    pub scope: Scope,
}

/// The way to a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// List and compare these.
    Verify(Asked),
    /// Wait for the watch to reach a barrier; if it doesn't soon, list and compare these, if any.
    Barrier(Option<Asked>),
}

/// The cheapest way to a proof for all that is asked.
///
/// `is_quiet` says that the watch won't come to a barrier for long.
pub(super) fn plan(
    asked: HashSet<Asked>,
    cached: &Snapshot,
    can_verify: bool,
    is_quiet: bool,
) -> Plan {
    if !can_verify {
        return Plan::Barrier(None);
    }
    let is_single = asked.len() == 1;
    let asked = asked.into_iter().next().filter(|_| is_single);
    let asked = asked.unwrap_or_else(Asked::everything);
    if is_quiet {
        return Plan::Verify(asked);
    }
    let some = cached.list(&asked.selection, None);
    if some.take(VERIFIED_AT_ONCE + 1).count() <= VERIFIED_AT_ONCE {
        Plan::Verify(asked)
    } else {
        Plan::Barrier(Some(asked))
    }
}

// === impl Asked ===

impl Asked {
    /// All that the cache holds.
    pub(super) fn everything() -> Self {
        Self {
            selection: Arc::default(),
            scope: Scope::default(),
        }
    }
}
