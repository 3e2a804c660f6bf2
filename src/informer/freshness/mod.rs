//! Freshness: which (snapshot, resource version) is at least as fresh as the moment somebody asked?
//!
//! The API server proves it with etcd's progress notifications; a proxy has none (KEP-2340). A proof
//! here is a *pair*, used as one: that a version is current says nothing of a snapshot taken later
//! or sooner, as an object may come and go between the two.

mod metrics;
mod plan;
mod policy;
mod proof;
mod prover;
mod recent_proof;
#[cfg(test)]
mod tests;
mod verification;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::cache::Reader;
use crate::concurrency::CallSpacing;
use crate::concurrency::GroupCommit;
use crate::informer::RelistHandle;
use crate::shutdown::Shutdown;
use crate::upstream::FreshnessProbe;

use prover::Prover;
use recent_proof::RecentProof;

pub use metrics::FreshnessMetrics;
pub use plan::ProofRequest;
pub use policy::FreshnessPolicies;
pub use policy::FreshnessPolicy;
pub use proof::Proof;
pub use proof::ProofError;
pub use proof::ProofMethod;

/// A thousand readers who come within 100 ms cost three or four questions.
const PACE: CallSpacing = CallSpacing {
    min: Duration::from_millis(5),
    after_large_group: Duration::from_millis(100),
};

/// Proves how fresh one cache is; those who ask at a time share the work.
pub struct Freshness<P> {
    inner: Arc<Inner<P>>,
    shutdown: Shutdown,
    group: GroupCommit<ProofRequest, Result<Proof, ProofError>>,
}

struct Inner<P> {
    prover: Prover<P>,
    policy: FreshnessPolicy,
    /// Used if the policy asks for the age of a proof.
    recent_proof: RecentProof,
}

/// A question's task, which ends with the last who waits for it.
struct AbortOnDrop(JoinHandle<()>);

// === impl Freshness ===

impl<P: FreshnessProbe> Freshness<P> {
    /// How long a proof may take, as long as the API server waits for its own cache.
    pub const TIMEOUT: Duration = Duration::from_secs(3);

    /// Proves the cache behind `reader` by asking `probe`, in background tasks of `shutdown`; asks
    /// for a relist where it differs.
    pub fn new(
        probe: P,
        reader: Reader,
        relist: RelistHandle,
        policy: FreshnessPolicy,
        shutdown: Shutdown,
    ) -> Self {
        let inner = Inner {
            prover: Prover::new(probe, reader, relist),
            policy,
            recent_proof: RecentProof::default(),
        };
        Self {
            inner: Arc::new(inner),
            shutdown,
            group: GroupCommit::new(PACE),
        }
    }

    /// What was counted.
    pub fn metrics(&self) -> &FreshnessMetrics {
        &self.inner.prover.metrics
    }

    /// A state that the policy takes for the most recent one, without asking the API server.
    pub fn proof_by_policy(&self) -> Option<Proof> {
        let inner = &self.inner;
        let (snapshot, method) = match inner.policy {
            FreshnessPolicy::Strict => return None,
            FreshnessPolicy::Any => (inner.prover.reader.snapshot()?, ProofMethod::Any),
            FreshnessPolicy::Bounded(bound) => {
                let newest = inner.prover.reader.snapshot()?;
                (
                    inner.recent_proof.within(bound, newest)?,
                    ProofMethod::Recent,
                )
            }
        };
        Some(Proof {
            snapshot,
            method,
            is_whole: true,
        })
    }

    /// A state of what `request` selects that is at least as fresh as this call, or as the policy
    /// asks for. Who has `patience` lets so much time pass from the question before, so that more may
    /// share the next. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`ProofError`], after [`Freshness::TIMEOUT`] at the latest.
    pub async fn prove(
        &self,
        request: ProofRequest,
        min_interval: Duration,
    ) -> Result<Proof, ProofError> {
        if let Some(proof) = self.proof_by_policy() {
            return Ok(proof);
        }
        let request = match self.inner.policy {
            // The next ones shall be spared the question, whatever they ask for.
            FreshnessPolicy::Bounded(_) => ProofRequest::everything(),
            _ => request,
        };
        let inner = Arc::clone(&self.inner);
        let shutdown = self.shutdown.clone();
        // To read a list of many takes too long for a thread that serves others as well.
        let call = |requests| async move {
            let (sender, receiver) = oneshot::channel();
            let _task = AbortOnDrop(shutdown.spawn_background(async move {
                let proof = timeout(Self::TIMEOUT, inner.run(requests)).await;
                let proof = proof.unwrap_or(Err(ProofError::TimedOut));
                inner.prover.metrics.count(&proof);
                // An error is that nobody waits any more.
                sender.send(proof).ok();
            }));
            receiver.await.unwrap_or(Err(ProofError::NotReady))
        };
        let proof = timeout(Self::TIMEOUT, self.group.join(request, min_interval, call)).await;
        proof.unwrap_or(Err(ProofError::TimedOut))
    }
}

impl<P> fmt::Debug for Freshness<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freshness").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl<P: FreshnessProbe> Inner<P> {
    async fn run(&self, requests: HashSet<ProofRequest>) -> Result<Proof, ProofError> {
        let requested_at = Instant::now();
        let proof = self.prover.prove(requests).await?;
        if proof.is_whole && matches!(self.policy, FreshnessPolicy::Bounded(_)) {
            self.recent_proof.remember(requested_at, &proof.snapshot);
        }
        Ok(proof)
    }
}

// === impl AbortOnDrop ===

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
