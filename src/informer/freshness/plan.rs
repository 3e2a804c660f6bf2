//! The cheapest way to a proof for all who ask.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::Selection;
use crate::cache::Snapshot;
use crate::upstream::Scope;

/// So many objects are verified at once, without trying a barrier before.
const VERIFY_FIRST_LIMIT: usize = 500;

/// What a reader asks about: its selection, and the same in the API server's words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProofRequest {
    /// Which objects.
    pub selection: Arc<Selection>,
    /// The same, for the API server.
    pub scope: Scope,
}

/// The way to a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// List and compare these.
    Verify(ProofRequest),
    /// Wait for the watch to reach a barrier; if it doesn't soon, list and compare these, if any.
    Barrier(Option<ProofRequest>),
}

/// The cheapest way to a proof for all `requests`.
///
/// `skip_barrier` says that the watch won't come to a barrier for long.
pub(super) fn plan(
    requests: HashSet<ProofRequest>,
    cached: &Snapshot,
    can_verify: bool,
    skip_barrier: bool,
) -> Plan {
    if !can_verify {
        return Plan::Barrier(None);
    }
    let is_single = requests.len() == 1;
    let request = requests.into_iter().next().filter(|_| is_single);
    let request = request.unwrap_or_else(ProofRequest::everything);
    if skip_barrier {
        return Plan::Verify(request);
    }
    let some = cached.list(&request.selection, None);
    if some.take(VERIFY_FIRST_LIMIT + 1).count() <= VERIFY_FIRST_LIMIT {
        Plan::Verify(request)
    } else {
        Plan::Barrier(Some(request))
    }
}

// === impl ProofRequest ===

impl ProofRequest {
    /// All that the cache holds.
    pub(super) fn everything() -> Self {
        Self {
            selection: Arc::default(),
            scope: Scope::default(),
        }
    }
}
