//! What is done about evidence that a cache is wrong: it is decided, logged, counted, and a relist
//! requested.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout_at;

use super::evidence::{Difference, Verdict};
use super::isolation::Remedy;
use super::prover::Prover;
use crate::api::ObjectKey;
use crate::cache::Snapshot;
use crate::upstream::FreshnessProbe;

/// At most this many differing keys are logged.
const LOGGED_KEYS: usize = 5;

// === impl Prover ===

impl<P: FreshnessProbe> Prover<P> {
    /// Returns true if the content of `snapshot` was found wrong, and no relist
    /// has repaired it yet.
    pub(super) fn is_wrong(&self, snapshot: &Snapshot) -> bool {
        self.repair.is_wrong(snapshot)
    }

    /// Decides all evidence as soon as the cache has reached it, and requests the relists that are
    /// due, until nothing is left to do. Returns at once if another task does this.
    pub(super) async fn follow_evidence(&self) {
        if !self.evidence.begin_following() {
            return;
        }
        while self.reader.ready().await {
            let Some(snapshot) = self.reader.snapshot() else {
                continue;
            };
            self.decide_evidence(&snapshot).await;
            let relist_at = self.repair.proceed(&snapshot);
            if relist_at.is_none() && self.evidence.end_following() {
                // Since the last check, a proof may have found the cache wrong, and left the relist
                // to this task.
                if !self.owes_relist() || !self.evidence.begin_following() {
                    return;
                }
                continue;
            }
            let changed = self.reader.differs_from(&snapshot);
            match relist_at {
                Some(relist_at) => drop(timeout_at(relist_at, changed).await),
                None => drop(changed.await),
            }
        }
    }

    /// Returns true if the newest content is wrong, and the relist that may repair it is not
    /// requested yet.
    fn owes_relist(&self) -> bool {
        let newest = self.reader.snapshot();
        newest.is_some_and(|newest| self.repair.owes_relist(&newest))
    }

    /// Decides the evidence that `snapshot` has reached.
    pub(super) async fn decide_evidence(&self, snapshot: &Snapshot) {
        for difference in self.evidence.decidable(snapshot) {
            self.decide(&difference).await;
        }
    }

    /// Returns the verdict on `difference`. The cache must have reached its version.
    pub(super) async fn decide(&self, difference: &Arc<Difference>) -> Verdict {
        let report = |keys: &[&ObjectKey], snapshot: &Snapshot| {
            self.report_difference(difference, keys, snapshot);
        };
        let verdict = difference.verdict(&self.reader, report).await;
        self.evidence.forget(difference);
        verdict
    }

    /// Reports that the cache has other objects than a list, and requests a relist if one may
    /// repair that. If a relist did not, the reads of this selection alone are forwarded.
    fn report_difference(&self, difference: &Difference, keys: &[&ObjectKey], snapshot: &Snapshot) {
        let request = &difference.request;
        let remedy = self
            .isolation
            .differs(&request.selection, snapshot.list_began());
        let keys: Vec<_> = keys
            .iter()
            .take(LOGGED_KEYS)
            .map(|key| key.as_str())
            .collect();
        tracing::error!(
            resource_version = %difference.version,
            selection = ?request.scope,
            keys = keys.join(", "),
            ?remedy,
            "the cache has other objects than the API server at the same resource version"
        );
        self.metrics.differing.fetch_add(1, Ordering::Relaxed);
        if remedy == Remedy::Relist {
            self.repair.begin(snapshot);
        }
    }
}
