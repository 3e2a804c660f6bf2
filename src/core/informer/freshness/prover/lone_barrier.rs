//! Proofs by a barrier that no verification list follows. They succeed soon, or are too costly.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Attempt, Prover, Start};
use crate::cache::Reader;
use crate::informer::freshness::plan::LoneBarriers;
use crate::informer::freshness::proof::{Proof, ProofError};
use crate::upstream::FreshnessProbe;

/// How long a barrier that no verification list follows, and the watch's way to it, may take. On a
/// resource that changes often, both together take some milliseconds.
const SOON: Duration = Duration::from_millis(25);
/// How long the call for a barrier of Events may take. The caller's time limit is longer, even if it
/// first waits for a call in flight: so a slow API server makes such proofs too costly, and they
/// don't time out. Guarded by `a_slow_barrier_makes_proofs_of_events_too_costly`.
const EVENTS_CALL_LIMIT: Duration = Duration::from_secs(1);
/// How long a proof of Events waits for an event after its barrier. The API server reads a list of
/// Events from etcd, which often takes longer.
const LATER_EVENT_WAIT: Duration = Duration::from_millis(100);
/// A cache that had no change for longer counts as one that does not change. Its watch reaches a
/// barrier only with the next bookmark, which may take a minute.
const CHANGES_WITHIN: Duration = Duration::from_secs(5);

/// Returns the record of the barriers of a cache that were sent alone. It has none yet.
pub(super) fn barriers_of(reader: &Reader) -> LoneBarriers {
    // No bookmarks come for Events, so only the next event reaches a barrier.
    let changes_within = if reader.shares_versions() {
        LATER_EVENT_WAIT
    } else {
        CHANGES_WITHIN
    };
    LoneBarriers::new(changes_within)
}

impl<P: FreshnessProbe> Prover<P> {
    /// Returns true if [`Prover::prove_soon`] probably succeeds now.
    pub(in crate::informer::freshness) fn may_prove_soon(&self) -> bool {
        let changed_at = self.reader.changed_at();
        let barriers = self.lone_barriers.lock();
        barriers.may_try(changed_at, Instant::now()) && !self.barrier_skipped.is_set()
    }

    /// Proves all objects of the cache by a barrier, and fails if the watch does not reach it soon.
    /// There are no other calls.
    pub(in crate::informer::freshness) async fn prove_soon(&self) -> Result<Proof, ProofError> {
        let proof = async {
            let proof = timeout(SOON, self.prove_by_barriers()).await;
            proof.unwrap_or(Err(ProofError::TooCostly))
        };
        self.try_lone_barrier(proof).await
    }

    /// Proves all Events of the cache by a barrier, and fails if no later event comes soon. A later
    /// event shows that all changes up to the barrier were received. A verification list would cost
    /// the API server as much as the request itself.
    pub(super) async fn prove_by_later_event(&self, start: &Start) -> Attempt {
        let proof = async {
            let barrier = timeout(EVENTS_CALL_LIMIT, self.request_barrier(start)).await;
            let barrier = barrier.unwrap_or(Err(ProofError::TooCostly))?;
            let proof = timeout(LATER_EVENT_WAIT, self.prove_by_barrier(start, barrier)).await;
            proof.unwrap_or(Err(ProofError::TooCostly))
        };
        self.try_lone_barrier(proof).await
    }

    /// Returns the result of `proof`, and counts whether the watch has reached its barrier. Fails
    /// without a call if the watch has missed too many.
    async fn try_lone_barrier<T>(
        &self,
        proof: impl Future<Output = Result<T, ProofError>>,
    ) -> Result<T, ProofError> {
        // A barrier that was sent meanwhile may have been missed.
        if !self.may_prove_soon() {
            return Err(ProofError::TooCostly);
        }
        let proof = proof.await;
        let mut barriers = self.lone_barriers.lock();
        match &proof {
            Ok(_) => barriers.reached(),
            Err(_) => barriers.missed(Instant::now()),
        }
        proof
    }
}
