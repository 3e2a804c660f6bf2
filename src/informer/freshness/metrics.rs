//! What is counted of proofs.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::telemetry::Samples;

use super::proof::Proof;
use super::proof::ProofError;
use super::proof::ProofMethod;

/// Counters of one cache's proofs; all only grow.
#[derive(Debug, Default)]
pub struct FreshnessMetrics {
    /// Barriers and verification lists asked of the API server.
    pub questions: AtomicU64,
    /// Proofs by a barrier.
    pub by_barrier: AtomicU64,
    /// Proofs by a verification list.
    pub by_list: AtomicU64,
    /// Attempts that came to nothing.
    pub unproven: AtomicU64,
    /// Times that the cache was found to be wrong.
    pub differing: AtomicU64,
}

impl FreshnessMetrics {
    pub(super) fn count(&self, outcome: &Result<Proof, ProofError>) {
        let counter = match outcome {
            Ok(proof) => match proof.method {
                ProofMethod::Barrier => &self.by_barrier,
                ProofMethod::VerificationList => &self.by_list,
                // Nothing was asked.
                ProofMethod::Recent | ProofMethod::Any => return,
            },
            Err(ProofError::CacheDiffers) => &self.differing,
            Err(_) => &self.unproven,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds them to a scrape, with `labels` in front.
    pub fn sample(&self, labels: &[(&str, &str)], samples: &mut Samples) {
        let counters = [
            (
                "kubefan_freshness_questions_total",
                "Barriers and verification lists asked of the API server.",
                &self.questions,
            ),
            (
                "kubefan_freshness_proofs_by_barrier_total",
                "Proofs by a version that the watch reached.",
                &self.by_barrier,
            ),
            (
                "kubefan_freshness_proofs_by_list_total",
                "Proofs by a list of who is there.",
                &self.by_list,
            ),
            (
                "kubefan_freshness_unproven_total",
                "Attempts to prove a cache fresh that came to nothing.",
                &self.unproven,
            ),
            (
                "kubefan_freshness_differing_total",
                "Times that a cache was found to differ from the API server.",
                &self.differing,
            ),
        ];
        for (name, help, counter) in counters {
            let value = counter.load(Ordering::Relaxed);
            samples.counter(name, help, labels, value as f64);
        }
    }
}
