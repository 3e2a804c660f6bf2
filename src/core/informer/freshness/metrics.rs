//! The counters of proofs of freshness.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::proof::{Proof, ProofError, ProofMethod, Proofs};
use crate::telemetry::{Samples, described};

/// The names and help texts of the counters, in the order of [`FreshnessMetrics::sample`].
const DESCRIPTIONS: &str = "\
kubefan_freshness_questions_total: Barriers and verification lists sent to the API server.
kubefan_freshness_proofs_by_barrier_total: Proofs by a barrier that the watch reached.
kubefan_freshness_proofs_by_list_total: Proofs by an equal verification list.
kubefan_freshness_proofs_by_informer_list_total: Requests proven without a call, by the cache's own list that was sent after them.
kubefan_freshness_unproven_total: Proofs of freshness that failed or timed out.
kubefan_freshness_differing_total: Verification lists that showed that the cache differs from the API server.";

/// Counters of one cache's proofs.
#[derive(Debug, Default)]
pub struct FreshnessMetrics {
    /// Barriers and verification lists sent to the API server.
    pub calls: AtomicU64,
    /// Proofs by a barrier that the watch reached.
    pub by_barrier: AtomicU64,
    /// Proofs by an equal verification list.
    pub by_list: AtomicU64,
    /// Requests that were proven by the cache's own list, because it was sent after them.
    pub by_informer_list: AtomicU64,
    /// Proofs that failed or timed out.
    pub unproven: AtomicU64,
    /// Verification lists that showed that the cache differs from the API server
    /// at the list's version.
    pub differing: AtomicU64,
    last_proof: Mutex<Option<(ProofMethod, Instant)>>,
    last_failure: Mutex<Option<(ProofError, Instant)>>,
}

impl FreshnessMetrics {
    pub(super) fn count_all(&self, outcome: &Result<Proofs, ProofError>) {
        match outcome {
            Ok(Proofs::Shared(proof)) => self.count(&Ok(proof.clone())),
            Ok(Proofs::Scoped(proofs)) => proofs.values().for_each(|proof| self.count(proof)),
            Err(error) => self.count(&Err(error.clone())),
        }
    }

    pub(in crate::informer) fn count(&self, outcome: &Result<Proof, ProofError>) {
        let counter = match outcome {
            Ok(proof) => match proof.method {
                ProofMethod::Barrier => &self.by_barrier,
                ProofMethod::VerificationList => &self.by_list,
                ProofMethod::InformerList => &self.by_informer_list,
                // No proof was made.
                ProofMethod::Recent | ProofMethod::Any => return,
            },
            // Nothing is wrong: the API server answers instead.
            Err(ProofError::TooCostly) => return,
            Err(_) => &self.unproven,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        match outcome {
            Ok(proof) => *self.last_proof.lock() = Some((proof.method, now)),
            Err(error) => *self.last_failure.lock() = Some((error.clone(), now)),
        }
    }

    /// Returns the method and the time of the last proof, or `None` if there was none.
    pub fn last_proof(&self) -> Option<(ProofMethod, Instant)> {
        *self.last_proof.lock()
    }

    /// Returns the error and the time of the last proof that failed or timed out, or `None` if
    /// there was none.
    pub fn last_failure(&self) -> Option<(ProofError, Instant)> {
        self.last_failure.lock().clone()
    }

    /// Adds all counters to `samples`, with `labels`.
    pub fn sample(&self, labels: &[(&str, &str)], samples: &mut Samples) {
        let counters = [
            &self.calls,
            &self.by_barrier,
            &self.by_list,
            &self.by_informer_list,
            &self.unproven,
            &self.differing,
        ];
        for ((name, help), counter) in described(DESCRIPTIONS, counters) {
            let value = counter.load(Ordering::Relaxed);
            samples.counter(name, help, labels, value as f64);
        }
    }
}
