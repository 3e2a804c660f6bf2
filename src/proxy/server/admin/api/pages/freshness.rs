//! The page of the proofs of freshness.

use std::sync::atomic::{AtomicU64, Ordering};

use kubefan_core::api::Status;
use kubefan_core::informer::{CacheName, FreshnessPolicy, Informer};
use schemars::JsonSchema;
use serde::Serialize;

use super::cache_id::CacheId;
use crate::server::admin::api::page::{Page, now, seconds, seconds_since};
use crate::server::admin::api::sources::{ReadCache, Sources};

/// The most caches of the page.
const MOST: usize = 1_000;

/// How fresh the answers of the caches are, and how this was last proven.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::server::admin::api) struct Freshness {
    /// When the page was made, by RFC 3339.
    time: String,
    /// The number of caches, even if the list has fewer.
    total: usize,
    /// The caches by name; at most 1,000, or 100 in a snapshot.
    items: Vec<CacheFreshness>,
}

/// The proofs of a cache.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CacheFreshness {
    cache: CacheId,
    /// The freshness policy of the resource: strict, bounded, session or any.
    policy: &'static str,
    /// With the policy bounded: the age of a proof that is still sufficient.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_seconds: Option<f64>,
    /// The last proof; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_proof: Option<LastProof>,
    /// The last proof that failed or timed out; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<LastFailure>,
    /// Barriers and verification lists that were sent to the API server.
    questions_total: u64,
    /// Proofs by a barrier that the watch reached.
    proven_by_barrier_total: u64,
    /// Proofs by an equal verification list.
    proven_by_list_total: u64,
    /// Requests that the cache's own list proved without a question.
    proven_by_own_list_total: u64,
    /// Proofs that failed or timed out.
    unproven_total: u64,
    /// Verification lists that showed that the cache differs from the API server.
    differing_total: u64,
    /// Selections in which the cache lastingly differs; their reads are forwarded.
    isolated_selections: usize,
    /// Whether the cache proves nothing before its next list, because the definition of the
    /// resource has changed.
    doubted: bool,
}

/// A proof.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LastProof {
    /// How the cache was proven: barrier, verification-list or informer-list.
    method: &'static str,
    /// Seconds since the proof.
    age_seconds: f64,
}

/// A proof that failed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LastFailure {
    /// Why it failed, as text for people.
    reason: String,
    /// Seconds since the failure.
    age_seconds: f64,
}

impl Page for Freshness {
    const NAME: &'static str = "freshness";
    const SUMMARY: &'static str =
        "How fresh the answers of each cache are: policy, last proofs, differences.";

    fn read(sources: &Sources) -> Result<Self, Status> {
        Ok(Self::first(&sources.read_caches()?, MOST))
    }
}

impl Freshness {
    /// Reads the page with at most `most` of the caches `all`.
    pub(super) fn first(all: &[ReadCache], most: usize) -> Self {
        let mut shown: Vec<&Informer> = all.iter().map(|cache| &*cache.informer).collect();
        shown.sort_by_cached_key(|informer| CacheId::from(&CacheName::of(informer)));
        let items = shown.into_iter().take(most).map(CacheFreshness::of);
        Self {
            time: now(),
            total: all.len(),
            items: items.collect(),
        }
    }
}

impl CacheFreshness {
    fn of(informer: &Informer) -> Self {
        let metrics = informer.freshness_metrics();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (policy, bound) = policy_of(informer.freshness_policy());
        let last_proof = metrics.last_proof().map(|(method, at)| LastProof {
            method: method.name(),
            age_seconds: seconds_since(at),
        });
        let last_failure = metrics.last_failure().map(|(error, at)| LastFailure {
            reason: error.to_string(),
            age_seconds: seconds_since(at),
        });
        Self {
            cache: CacheId::from(&CacheName::of(informer)),
            policy,
            bound_seconds: bound,
            last_proof,
            last_failure,
            questions_total: count(&metrics.calls),
            proven_by_barrier_total: count(&metrics.by_barrier),
            proven_by_list_total: count(&metrics.by_list),
            proven_by_own_list_total: count(&metrics.by_informer_list),
            unproven_total: count(&metrics.unproven),
            differing_total: count(&metrics.differing),
            isolated_selections: informer.isolated_selections(),
            doubted: informer.is_doubted(),
        }
    }
}

/// Returns the name of `policy`, and its bound in seconds if it has one.
fn policy_of(policy: FreshnessPolicy) -> (&'static str, Option<f64>) {
    match policy {
        FreshnessPolicy::Strict => ("strict", None),
        FreshnessPolicy::Bounded(bound) => ("bounded", Some(seconds(bound))),
        FreshnessPolicy::Session => ("session", None),
        FreshnessPolicy::Any => ("any", None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_policy_has_a_name_and_only_one_a_bound() {
        let bounded = FreshnessPolicy::Bounded(Duration::from_millis(1_500));
        for (policy, expected) in [
            (FreshnessPolicy::Strict, ("strict", None)),
            (bounded, ("bounded", Some(1.5))),
            (FreshnessPolicy::Session, ("session", None)),
            (FreshnessPolicy::Any, ("any", None)),
        ] {
            assert_eq!(policy_of(policy), expected);
        }
    }
}
