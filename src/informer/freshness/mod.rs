//! Freshness: which (snapshot, resource version) is at least as fresh as the moment somebody asked?
//!
//! The API server proves it with etcd's progress notifications; a proxy has none (KEP-2340). A proof
//! here is a *pair*, used as one: that a version is current says nothing of a snapshot taken later
//! or sooner, as an object may come and go between the two.

mod metrics;
mod plan;
mod policy;
mod proof;
#[cfg(test)]
mod tests;
mod verification;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::timeout;
use tokio::time::timeout_at;

use crate::api::ResourceVersion;
use crate::cache::Reader;
use crate::cache::Snapshot;
use crate::concurrency::GroupCommit;
use crate::concurrency::Pace;
use crate::informer::RelistHandle;
use crate::mutation;
use crate::mutation::Mutation;
use crate::shutdown::Shutdown;
use crate::upstream;
use crate::upstream::FreshnessProbe;

use plan::Plan;
use plan::plan;
use verification::Expected;

pub use metrics::FreshnessMetrics;
pub use plan::Asked;
pub use policy::FreshnessPolicies;
pub use policy::FreshnessPolicy;
pub use proof::Proof;
pub use proof::ProofMethod;
pub use proof::Unproven;

/// How long an API server that can't list metadata alone is not asked to.
const UNABLE: Duration = Duration::from_secs(300);
/// How long a cache that was listed anew, because it was found wrong, is not again. What differs may
/// be how a selector is understood, which no list mends.
const RELIST_PAUSE: Duration = Duration::from_secs(60);
/// How long the watch has to reach a barrier before all objects are verified.
const ON_THE_WAY: Duration = Duration::from_millis(10);
/// How long it is remembered that only a list could prove the cache, as others change and it doesn't.
const QUIET: Duration = Duration::from_secs(10);
/// A thousand readers who come within 100 ms cost three or four questions.
const PACE: Pace = Pace {
    least: Duration::from_millis(5),
    for_each: Duration::from_millis(1),
    most: Duration::from_millis(100),
};

/// Proves how fresh one cache is; those who ask at a time share the work.
pub struct Freshness<P> {
    inner: Arc<Inner<P>>,
    shutdown: Shutdown,
    group: GroupCommit<Asked, Result<Proof, Unproven>>,
}

struct Inner<P> {
    probe: P,
    reader: Reader,
    relist: RelistHandle,
    metrics: FreshnessMetrics,
    policy: FreshnessPolicy,
    /// The last proof of everything, if the policy asks for its age.
    last: Mutex<Option<Last>>,
    /// Until when the API server, which has shown that it can't list metadata alone, is not asked
    /// to.
    unable_until: Mutex<Option<Instant>>,
    /// Until when a barrier is not tried, as the watch did not come to the last one.
    quiet_until: Mutex<Option<Instant>>,
    /// When a list was last asked for because the cache was wrong.
    relisted: Mutex<Option<Instant>>,
}

/// A proof of everything, and when it was asked for.
struct Last {
    asked: Instant,
    epoch: u64,
    version: ResourceVersion,
    /// The state, as long as the cache itself has no newer one.
    snapshot: Option<Snapshot>,
}

/// A question's task, which ends with the last who waits for it.
struct Asking(JoinHandle<()>);

// === impl Freshness ===

impl<P: FreshnessProbe> Freshness<P> {
    /// How long a proof may take, as long as the API server waits for its own cache.
    pub const LIMIT: Duration = Duration::from_secs(3);

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
            probe,
            reader,
            relist,
            metrics: FreshnessMetrics::default(),
            policy,
            last: Mutex::default(),
            unable_until: Mutex::default(),
            quiet_until: Mutex::default(),
            relisted: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
            shutdown,
            group: GroupCommit::new(PACE),
        }
    }

    /// What was counted.
    pub fn metrics(&self) -> &FreshnessMetrics {
        &self.inner.metrics
    }

    /// A state that the policy takes for the most recent one, without asking the API server.
    pub fn relaxed(&self) -> Option<Proof> {
        let inner = &self.inner;
        let (snapshot, method) = match inner.policy {
            FreshnessPolicy::Strict => return None,
            FreshnessPolicy::Any => (inner.reader.snapshot()?, ProofMethod::Any),
            FreshnessPolicy::Bounded(bound) => (inner.recent(bound)?, ProofMethod::Recent),
        };
        Some(Proof {
            snapshot,
            method,
            is_whole: true,
        })
    }

    /// A state of what is `asked` that is at least as fresh as this call, or as the policy asks
    /// for. Who has `patience` lets so much time pass from the question before, if that is under
    /// way or was for many, so that more may share the next. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`Unproven`], after [`Freshness::LIMIT`] at the latest.
    pub async fn prove(&self, asked: Asked, patience: Duration) -> Result<Proof, Unproven> {
        if let Some(proof) = self.relaxed() {
            return Ok(proof);
        }
        let asked = match self.inner.policy {
            // The next ones shall be spared the question, whatever they ask for.
            FreshnessPolicy::Bounded(_) => Asked::everything(),
            _ => asked,
        };
        let inner = Arc::clone(&self.inner);
        let shutdown = self.shutdown.clone();
        // To read a list of many takes too long for a thread that serves others as well.
        let call = |asked| async move {
            let (tell, told) = oneshot::channel();
            let _asking = Asking(shutdown.spawn_background(async move {
                let proof = timeout(Self::LIMIT, inner.run(asked)).await;
                let proof = proof.unwrap_or(Err(Unproven::TimedOut));
                inner.metrics.count(&proof);
                // An error is that nobody waits any more.
                tell.send(proof).ok();
            }));
            told.await.unwrap_or(Err(Unproven::NotReady))
        };
        let proof = timeout(Self::LIMIT, self.group.join(asked, patience, call)).await;
        proof.unwrap_or(Err(Unproven::TimedOut))
    }
}

impl<P> fmt::Debug for Freshness<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freshness").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl<P: FreshnessProbe> Inner<P> {
    async fn run(&self, asked: HashSet<Asked>) -> Result<Proof, Unproven> {
        let before = self.reader.snapshot().ok_or(Unproven::NotReady)?;
        let began = Instant::now();
        let is_over = |until: &Mutex<Option<Instant>>| until.lock().is_none_or(|at| at < began);
        let can_verify = is_over(&self.unable_until);
        let is_quiet = !is_over(&self.quiet_until);
        let proof = match plan(asked, &before, can_verify, is_quiet) {
            Plan::Verify(asked) => match self.verify(&before, &asked).await {
                Err(Unproven::Upstream(error)) if is_unable(&error) => {
                    *self.unable_until.lock() = Some(began + UNABLE);
                    self.barrier(&before, None).await
                }
                outcome => outcome,
            },
            Plan::Barrier(asked) => self.barrier(&before, asked.as_ref()).await,
        }?;
        if proof.is_whole && matches!(self.policy, FreshnessPolicy::Bounded(_)) {
            self.remember(began, &proof.snapshot);
        }
        Ok(proof)
    }

    /// Keeps a proof of everything, unless a newer one was kept meanwhile.
    fn remember(&self, asked: Instant, snapshot: &Snapshot) {
        let mut last = self.last.lock();
        let version = snapshot.resource_version();
        let is_newer = last
            .as_ref()
            .is_none_or(|last| last.epoch != snapshot.epoch() || last.version <= version);
        if is_newer {
            *last = Some(Last {
                asked,
                epoch: snapshot.epoch(),
                version,
                snapshot: Some(snapshot.clone()),
            });
        }
    }

    /// The newest state, if all up to a moment less than `bound` ago is in it.
    fn recent(&self, bound: Duration) -> Option<Snapshot> {
        let newest = self.reader.snapshot()?;
        let mut last = self.last.lock();
        let last = last.as_mut()?;
        if last.asked.elapsed() > bound || last.epoch != newest.epoch() {
            return None;
        }
        if newest.resource_version() >= last.version {
            last.snapshot = None;
            return Some(newest);
        }
        // A version that was shown once must not be followed by a lower one.
        last.snapshot.clone()
    }

    async fn barrier(&self, before: &Snapshot, asked: Option<&Asked>) -> Result<Proof, Unproven> {
        let barrier = self.ask(self.probe.barrier()).await?;
        self.is_of_our_history(before, barrier)?;
        let soon = Instant::now() + ON_THE_WAY;
        if let Ok(proof) = timeout_at(soon, self.reached(before, barrier)).await {
            return proof;
        }
        let verified = async {
            match asked {
                Some(asked) => self.verify(before, asked).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            proof = self.reached(before, barrier) => proof,
            proof = verified => match proof {
                Err(Unproven::Upstream(error)) => {
                    if is_unable(&error) {
                        *self.unable_until.lock() = Some(Instant::now() + UNABLE);
                    }
                    // The watch may still come there.
                    self.reached(before, barrier).await
                }
                proof => {
                    // That others change alone says little: revisions are the cluster's.
                    if proof.as_ref().is_ok_and(is_by_list) {
                        self.note_quiet(true);
                    }
                    proof
                }
            },
        }
    }

    /// The state once the watch has come to `barrier`.
    async fn reached(
        &self,
        before: &Snapshot,
        barrier: ResourceVersion,
    ) -> Result<Proof, Unproven> {
        self.wait_for(barrier).await?;
        self.note_quiet(false);
        Ok(Proof {
            snapshot: self.current(before)?,
            method: ProofMethod::Barrier,
            is_whole: true,
        })
    }

    /// Lists what is `asked`, and waits until the cache has just that, or has come further.
    async fn verify(&self, before: &Snapshot, asked: &Asked) -> Result<Proof, Unproven> {
        let list = self.ask(self.probe.verification_list(&asked.scope)).await?;
        let listed = list.resource_version;
        self.is_of_our_history(before, listed)?;
        let expected = Expected::new(&list);
        loop {
            let snapshot = self.current(before)?;
            let applied = snapshot.resource_version();
            if applied > listed {
                self.note_quiet(false);
                return Ok(Proof {
                    snapshot,
                    method: ProofMethod::Barrier,
                    is_whole: true,
                });
            }
            if expected.is_all_of(&snapshot, &asked.selection) {
                if applied == listed {
                    self.note_quiet(false);
                }
                return Ok(Proof {
                    snapshot: self.reader.proven_at(&snapshot, listed),
                    method: ProofMethod::VerificationList,
                    is_whole: applied == listed || asked.selection.is_everything(),
                });
            }
            if applied == listed {
                self.differs(&expected.differing(&snapshot, &asked.selection), applied);
                return Err(Unproven::CacheDiffers);
            }
            self.wait_for(ResourceVersion(applied.0 + 1)).await?;
        }
    }

    /// Notes whether others change while this resource does not.
    fn note_quiet(&self, is_quiet: bool) {
        *self.quiet_until.lock() = is_quiet.then(|| Instant::now() + QUIET);
    }

    /// Waits as long as it takes; whoever asked has a limit.
    async fn wait_for(&self, version: ResourceVersion) -> Result<(), Unproven> {
        let far = Instant::now() + Duration::from_secs(3600);
        match self.reader.wait_for(version, far).await {
            true => Ok(()),
            false => Err(Unproven::NotReady),
        }
    }

    /// The newest state, unless another history began since `before`: what the API server was asked
    /// since then may be of the old one, and the versions of two histories can't be compared.
    fn current(&self, before: &Snapshot) -> Result<Snapshot, Unproven> {
        let snapshot = self.reader.snapshot().ok_or(Unproven::NotReady)?;
        let is_same = snapshot.epoch() == before.epoch();
        match is_same || mutation::is_active(Mutation::AcrossHistories) {
            true => Ok(snapshot),
            false => Err(Unproven::OtherHistory),
        }
    }

    /// A consistent answer below what was applied before it was asked for: etcd was restored.
    fn is_of_our_history(
        &self,
        before: &Snapshot,
        answered: ResourceVersion,
    ) -> Result<(), Unproven> {
        if answered >= before.resource_version() || mutation::is_active(Mutation::AcrossHistories) {
            return Ok(());
        }
        self.relist.request();
        Err(Unproven::OtherHistory)
    }

    async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, upstream::Error>>,
    ) -> Result<T, Unproven> {
        self.metrics.questions.fetch_add(1, Ordering::Relaxed);
        let answer = question.await;
        answer.map_err(|error| Unproven::Upstream(Arc::new(error)))
    }

    fn differs(&self, keys: &[String], at: ResourceVersion) {
        tracing::error!(
            resource_version = %at,
            keys = keys.join(", "),
            "the cache has other objects than the API server at the same resource version"
        );
        let now = Instant::now();
        let mut relisted = self.relisted.lock();
        if relisted.is_none_or(|last| now.duration_since(last) >= RELIST_PAUSE) {
            *relisted = Some(now);
            self.relist.request();
        }
    }
}

fn is_by_list(proof: &Proof) -> bool {
    proof.method == ProofMethod::VerificationList
}

/// True when the API server won't list metadata alone, whatever is asked for.
fn is_unable(error: &upstream::Error) -> bool {
    match error {
        upstream::Error::MediaType { .. } => true,
        error => error
            .status()
            .is_some_and(|status| matches!(status.code, 406 | 415)),
    }
}

// === impl Asking ===

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}
