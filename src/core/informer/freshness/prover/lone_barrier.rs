//! Proofs by a barrier that no verification list follows. They succeed soon, or are too costly.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Attempt, Prover, Start};
use crate::cache::Reader;
use crate::informer::freshness::plan::LoneBarriers;
use crate::informer::freshness::proof::{Proof, ProofError};
use crate::upstream::FreshnessProbe;

/// How long the call for a barrier that no verification list follows may take. The caller's time
/// limit is longer, even if it first waits for a call in flight: so a slow API server makes such
/// proofs too costly, and they don't time out. Guarded by
/// `a_slow_barrier_makes_proofs_of_events_too_costly`.
const CALL_LIMIT: Duration = Duration::from_millis(500);
/// How long a proof waits for the watch after its barrier, if the API server is fast. On a resource
/// that changes often, the watch takes some milliseconds.
const WATCH_WAIT: Duration = Duration::from_millis(25);
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
            loop {
                let start = self.start()?;
                if let Some(proof) = self.prove_by_lone_barrier(&start, WATCH_WAIT).await? {
                    return Ok(proof);
                }
            }
        };
        self.try_lone_barrier(proof).await
    }

    /// Proves all Events of the cache by a barrier, and fails if no later event comes soon. A later
    /// event shows that all changes up to the barrier were received. A verification list would cost
    /// the API server as much as the request itself.
    pub(super) async fn prove_by_later_event(&self, start: &Start) -> Attempt {
        let proof = self.prove_by_lone_barrier(start, LATER_EVENT_WAIT);
        self.try_lone_barrier(proof).await
    }

    /// Proves all objects of the cache by a barrier, and fails if the watch does not reach it in
    /// time: within `wait`, or as long as the call for the barrier took. An API server that has too
    /// many reads is slow. Their proofs must succeed then, because otherwise all of them are
    /// forwarded, and it stays slow.
    async fn prove_by_lone_barrier(&self, start: &Start, wait: Duration) -> Attempt {
        let barrier = timeout(CALL_LIMIT, self.request_barrier(start)).await;
        let barrier = barrier.unwrap_or(Err(ProofError::TooCostly))?;
        let wait = wait.max(start.began.elapsed());
        let proof = timeout(wait, self.prove_by_barrier(start, barrier)).await;
        proof.unwrap_or(Err(ProofError::TooCostly))
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
