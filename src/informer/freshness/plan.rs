//! The choice of the first call of a proof: verification list or barrier.

use std::collections::HashSet;
use std::sync::Arc;

use crate::api::Selection;
use crate::cache::Snapshot;
use crate::upstream::Scope;

/// For at most this many objects, the verification list is sent without a barrier before.
const VERIFY_FIRST_LIMIT: usize = 500;

/// The objects that a reader needs proven: its selection, also in the API server's syntax.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProofRequest {
    /// The selection, for the comparison with snapshots.
    pub selection: Arc<Selection>,
    /// The same selection as parameters of a LIST to the API server.
    pub scope: Scope,
}

/// The first step of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Send a verification list for this request, and compare it with the cache.
    Verify(ProofRequest),
    /// Wait for the watch to reach a barrier. If it does not soon, send a verification list for the
    /// request; without a request, wait on.
    Barrier(Option<ProofRequest>),
}

/// The cheapest first step to a proof for all `requests`. Several requests are proven as one for
/// the whole cache.
///
/// `can_verify` is false if the API server has no verification lists. `skip_barrier` is true if the
/// watch missed a barrier a short time ago.
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
    /// A request for all objects of the cache.
    pub(super) fn everything() -> Self {
        Self {
            selection: Arc::default(),
            scope: Scope::default(),
        }
    }
}
