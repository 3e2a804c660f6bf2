//! Proofs of freshness: a snapshot of the cache and a resource version that are at least as fresh
//! as a request.
//!
//! A LIST without a resource version must return every write that was acknowledged before the LIST
//! was sent. The API server ensures this with etcd's progress notifications (KEP-2340), which a
//! proxy does not get. So kubefan makes a small call to the API server, and compares the answer
//! with the cache.
//!
//! - **Proof.** A [`Proof`] is a *pair* of a snapshot and the version that the snapshot was proven
//!   for. A current version proves nothing about a snapshot that was taken earlier or later,
//!   because an object may have been created and deleted in between.
//! - **Barrier.** The API server returns its current version. When the watch has reached it, the
//!   newest snapshot is proven.
//! - **Verification list.** On a quiet resource, the watch may not reach the barrier for a minute.
//!   The API server then lists the metadata of the requested objects, at version *X*. If the cache
//!   holds exactly these objects at these versions, the snapshot is proven for *X* and this scope.
//!   If not, the complete sets are compared again after each event. When the watch has passed *X*,
//!   the event log shows whether the cache had the list's objects at *X* (`evidence.rs`). If so,
//!   the newest snapshot is proven (`evidence_that_changes_explain_is_dropped`).
//! - **Wrong cache.** A difference at *X* means that the cache is wrong: the difference is logged,
//!   and the cache is relisted (`a_list_contradicts_the_cache_only_at_the_same_version`). Until
//!   then, no barrier proves the cache
//!   (`a_wrong_cache_is_proven_by_no_barrier_until_it_is_relisted`). Evidence is stored until the
//!   cache reaches *X*, even if no caller waits
//!   (`a_wrong_cache_is_found_after_its_last_reader_gave_up`). If the relist does not repair the
//!   cache, `isolation.rs` isolates the selection: only its reads are forwarded
//!   (`a_lasting_difference_isolates_one_selection`).
//! - **Own list.** If the cache's reflector sent a list or watch-list after a request was made,
//!   that list proves every later snapshot for this request, without a call. So the request that
//!   starts an informer costs no second list.
//! - **A kubefan as the upstream** may answer with older states, by its policy. Such an answer, or
//!   list of the reflector, proves nothing (`upstream::FreshnessProbe`).
//! - **Order.** `plan.rs` chooses the first call: a verification list for up to 500 objects, else a
//!   barrier. `prover.rs` continues from there.
//! - **Group commit.** Requests that arrive before a call starts share it, through
//!   `concurrency::GroupCommit`. Several different scopes are listed side by side, or by one call
//!   for all objects of the cache if that is cheaper.
//! - **Crowds of GETs** share barriers, as long as the watch reaches them soon
//!   (`a_crowd_of_gets_is_proven_by_barriers_that_the_watch_reaches_soon`). With
//!   `Strict`, any other GET of the most recent state is forwarded. Single Tables without objects,
//!   and Events, get only such barriers.
//! - **Small scopes** do not wait for slow calls: after half a second without a free call they get
//!   a separate call (`a_small_scope_does_not_wait_for_slow_lists`).
//! - **Time limit.** `time_limit.rs`: 3 s, or as long as a direct list would take.
//! - **Epochs.** Versions of different epochs are never compared. A consistent answer below the
//!   version that was applied before the call means that etcd was restored.
//! - **Lists in flight.** A list of the reflector that was in flight when a call was sent may
//!   belong to an older history than the call's answer. If the cache continues from it, the proof
//!   starts again (`a_list_that_was_in_flight_is_not_proven_by_an_earlier_version`).
//! - **Policies.** A [`FreshnessPolicy`] can allow a resource's reads to be older, without a call.
//!   With [`FreshnessPolicy::Session`], a proof of all objects serves all reads whose moment is not
//!   after its request.
//!
//! `consistent_answers_show_a_state_no_older_than_the_request` checks all of this with a random
//! model. `the_model_notices_each_broken_rule` breaks the rules in turn (complete sets, epochs,
//! pairs, the time of a list, lists in flight) and expects a wrong answer.

mod doubt;
mod evidence;
mod isolation;
mod metrics;
mod plan;
mod policy;
mod proof;
mod prover;
mod recent_proof;
mod repair;
#[cfg(test)]
mod tests;
mod time_limit;
mod verification;
mod wrong_cache;

use std::collections::HashSet;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
pub(super) use doubt::{Doubt, SETTLED_AFTER};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
pub use metrics::FreshnessMetrics;
pub use plan::ProofRequest;
pub use policy::{FreshnessPolicies, FreshnessPolicy};
use proof::Proofs;
pub use proof::{Proof, ProofCall, ProofError, ProofMethod};
use prover::Prover;
use recent_proof::RecentProof;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::api::Selection;
use crate::cache::{Reader, Snapshot};
use crate::concurrency::{CallSpacing, GroupCommit};
use crate::informer::RelistHandle;
use crate::shutdown::Shutdown;
use crate::upstream::FreshnessProbe;

/// Delays between calls. With them, a thousand readers within 100 ms cost three or four calls.
const CALL_SPACING: CallSpacing = CallSpacing {
    min: Duration::from_millis(5),
    after_large_group: Duration::from_millis(100),
};

/// Delays between the barriers for crowds of GETs. A GET takes a few milliseconds, so it must not
/// wait longer than that for others.
const CROWD_SPACING: CallSpacing = CallSpacing {
    min: Duration::from_millis(5),
    after_large_group: Duration::from_millis(5),
};

/// How long [`Freshness::prove_soon`] waits in all: perhaps for the barriers in flight first, and
/// then for its own barrier. Only a slow API server makes it reach this limit.
const SOON_WITH_OTHERS: Duration = Duration::from_millis(2_500);

/// How long a request of few objects waits for calls in flight before it gets a separate call.
const PATIENCE: Duration = Duration::from_millis(500);

/// Proves the freshness of one cache. Concurrent callers of [`Freshness::prove`] share calls.
pub struct Freshness<P> {
    inner: Arc<Inner<P>>,
    shutdown: Shutdown,
    group: GroupCommit<ProofRequest, Result<Proofs, ProofError>>,
    /// The calls for requests of few objects while the calls of `group` take long.
    small: GroupCommit<ProofRequest, Result<Proofs, ProofError>>,
    /// The barriers for crowds of GETs.
    barriers: GroupCommit<(), Result<Proof, ProofError>>,
}

struct Inner<P> {
    prover: Prover<P>,
    policy: ArcSwap<FreshnessPolicy>,
    /// The last proof of all objects of the cache; used only with the policies that use proofs
    /// again.
    recent_proof: RecentProof,
    /// Number of lists of some objects since the last proof of all, or since the last try.
    partial_lists: AtomicUsize,
    /// One permit: for the proof of all objects that is made for sessions.
    whole_permit: Arc<Semaphore>,
}

// === impl Freshness ===

impl<P: FreshnessProbe> Freshness<P> {
    /// Creates the prover for the cache of `reader`. It calls `probe` in background tasks of
    /// `shutdown`. If the cache differs from the API server, it requests a repair through `relist`.
    pub fn new(
        probe: P,
        reader: Reader,
        relist: RelistHandle,
        policy: FreshnessPolicy,
        shutdown: Shutdown,
    ) -> Self {
        let inner = Inner {
            prover: Prover::new(probe, reader, relist),
            policy: ArcSwap::from_pointee(policy),
            recent_proof: RecentProof::default(),
            partial_lists: AtomicUsize::new(0),
            whole_permit: Arc::new(Semaphore::new(1)),
        };
        Self {
            inner: Arc::new(inner),
            shutdown,
            group: GroupCommit::new(CALL_SPACING),
            small: GroupCommit::new(CALL_SPACING),
            barriers: GroupCommit::new(CROWD_SPACING),
        }
    }

    /// Returns the counters of the proofs of this cache.
    pub fn metrics(&self) -> &FreshnessMetrics {
        &self.inner.prover.metrics
    }

    /// Changes the policy of the proofs that begin from now on.
    pub fn set_policy(&self, policy: FreshnessPolicy) {
        self.inner.policy.store(Arc::new(policy));
    }

    /// Returns the policy of the proofs that begin now.
    pub(super) fn policy(&self) -> FreshnessPolicy {
        **self.inner.policy.load()
    }

    /// Returns true if the policy serves sessions.
    pub(super) fn is_session(&self) -> bool {
        matches!(**self.inner.policy.load(), FreshnessPolicy::Session)
    }

    /// Returns true if the policy accepts the newest snapshot without any proof.
    pub(super) fn is_any(&self) -> bool {
        matches!(**self.inner.policy.load(), FreshnessPolicy::Any)
    }

    /// Returns true if the cache and the API server lastingly have different objects of
    /// `selection`. Then all reads of `selection` must be forwarded. [`Freshness::prove`] checks
    /// now and then whether this has ended.
    pub fn is_isolated(&self, selection: &Selection) -> bool {
        self.inner.prover.isolation.contains(selection)
    }

    /// Returns the number of isolated selections.
    pub fn isolated_selections(&self) -> usize {
        self.inner.prover.isolation.len()
    }

    /// Returns a proof that the policy permits without a call to the API server, or `None` if there
    /// is none. With [`FreshnessPolicy::Strict`], the result is always `None`.
    pub fn proof_by_policy(&self, asked_at: Instant) -> Option<Proof> {
        let inner = &self.inner;
        match **inner.policy.load() {
            FreshnessPolicy::Strict => None,
            FreshnessPolicy::Session => inner.proof_of_session(asked_at),
            FreshnessPolicy::Any => Some(Proof {
                snapshot: inner.prover.reader.snapshot()?,
                method: ProofMethod::Any,
                as_of: None,
                call: None,
            }),
            FreshnessPolicy::Bounded(bound) => {
                let recent = inner.recent_proof.within(bound, &inner.prover.reader);
                inner.recent(recent?)
            }
        }
    }

    /// Returns a proof that needs no call to the API server for a request that arrived at
    /// `asked_at`, or `None` if there is none: one that the policy permits, or the reflector's own
    /// list, if it began after that time.
    pub(super) fn proof_without_call(&self, asked_at: Instant) -> Option<Proof> {
        let by_policy = self.proof_by_policy(asked_at);
        by_policy.or_else(|| self.inner.proof_by_informer_list(asked_at))
    }

    /// Returns a proven snapshot of the objects that `request` selects. It contains all writes that
    /// were acknowledged before `asked_at`, or is as fresh as the policy requires. `asked_at` is
    /// the arrival time of the client's request; the cache may have become ready later.
    ///
    /// If several callers wait, or the last call to the API server was for many callers, the next
    /// call starts at least `min_interval` after the last one, so that more callers can share it.
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// [`ProofError`] after 3 s at the latest. If a direct list of the objects would take longer,
    /// this limit is longer too, up to 30 s. [`ProofError::Isolated`] if the selection is isolated,
    /// with every policy. [`ProofError::TooCostly`] for Events, if no later change comes soon, or
    /// if the API server is slow. [`ProofError::UpstreamUnproven`] if the upstream is a kubefan that
    /// may answer with older states.
    pub async fn prove(
        &self,
        request: ProofRequest,
        asked_at: Instant,
        min_interval: Duration,
    ) -> Result<Proof, ProofError> {
        let selection = Arc::clone(&request.selection);
        if !self.is_isolated(&selection) {
            if let Some(proof) = self.proof_without_call(asked_at) {
                let proof = Ok(proof);
                self.metrics().count(&proof);
                return proof;
            }
        } else if !self.inner.prover.isolation.begin_check(&selection) {
            return Err(ProofError::Isolated);
        }
        let proof = self.prove_by_call(request, min_interval).await;
        // Only an equal list ends an isolation, and the proof may be of another kind.
        if self.is_isolated(&selection) {
            return Err(ProofError::Isolated);
        }
        proof
    }

    /// Returns a proof of all objects of the cache, for a GET of a crowd or for a single Table without
    /// objects, or `None` if there is probably none soon. It contains all writes that were
    /// acknowledged before this call.
    ///
    /// Concurrent callers share barriers. There are no verification lists, because the API server
    /// answers these reads for less. If the watch misses the barriers, the result is `None` for some
    /// seconds, without a call. Cancel safe.
    pub async fn prove_soon(&self) -> Option<Proof> {
        let has_isolated = || self.isolated_selections() > 0;
        if has_isolated() || !self.inner.prover.may_prove_soon() {
            return None;
        }
        let inner = Arc::clone(&self.inner);
        let call = move |_| inner.run_soon();
        let proof = self.barriers.join((), Duration::ZERO, call);
        let proof = timeout(SOON_WITH_OTHERS, proof).await.ok()?.ok()?;
        // The object may be one of the selection that was isolated meanwhile.
        (!has_isolated()).then_some(proof)
    }

    /// Returns a proof by calls to the API server, which concurrent callers share.
    async fn prove_by_call(
        &self,
        request: ProofRequest,
        min_interval: Duration,
    ) -> Result<Proof, ProofError> {
        let request = match **self.inner.policy.load() {
            // A proof of all objects can be used again for any later request.
            FreshnessPolicy::Bounded(_) if !self.is_isolated(&request.selection) => {
                ProofRequest::default()
            }
            _ => request,
        };
        let proofs = self.proofs(&request, min_interval);
        let proofs = self.inner.in_time(&request, proofs).await?;
        if self.is_session() && self.inner.is_whole_due() {
            self.prove_whole();
        }
        proofs.of(&request)
    }

    /// Proves all objects of the cache in the background, for all sessions.
    fn prove_whole(&self) {
        let inner = Arc::clone(&self.inner);
        let Ok(permit) = Arc::clone(&inner.whole_permit).try_acquire_owned() else {
            return;
        };
        self.shutdown.spawn_background(async move {
            let whole = ProofRequest::default();
            let proofs = inner.run(HashSet::from([whole.clone()]));
            // The metrics count how it ends.
            if let Err(error) = inner.in_time(&whole, proofs).await {
                tracing::debug!(%error, "the cache could not be proven for sessions");
            }
            drop(permit);
            inner.prover.follow_evidence().await;
        });
    }

    /// Returns the result of the calls for `request`. A request of few objects does not wait long
    /// for calls of other requests.
    async fn proofs(
        &self,
        request: &ProofRequest,
        min_interval: Duration,
    ) -> Result<Proofs, ProofError> {
        let proofs = self.group.join(request.clone(), min_interval, self.call());
        let mut proofs = pin!(proofs);
        if let Ok(proofs) = timeout(PATIENCE, &mut proofs).await {
            return proofs;
        }
        let is_small = async {
            match self.inner.prover.reader.snapshot() {
                Some(snapshot) => plan::is_small(request, &snapshot).await,
                None => false,
            }
        };
        if !self.group.is_waiting(request) || !is_small.await {
            return proofs.await;
        }
        tokio::select! {
            proofs = proofs => proofs,
            small = self.small.join(request.clone(), min_interval, self.call()) => small,
        }
    }

    /// Returns a function that calls the API server. The call runs in a background task, because
    /// decoding a large list would delay the other streams of a serving thread. The call is
    /// cancelled when no caller waits any more, but the task continues while there is evidence that
    /// the cache may be wrong.
    fn call(
        &self,
    ) -> impl FnOnce(HashSet<ProofRequest>) -> BoxFuture<'static, Result<Proofs, ProofError>> + use<P>
    {
        let inner = Arc::clone(&self.inner);
        let shutdown = self.shutdown.clone();
        move |requests| {
            let proofs = async move {
                let (mut sender, receiver) = oneshot::channel();
                shutdown.spawn_background(async move {
                    tokio::select! {
                        proofs = inner.run(requests) => {
                            // Sending fails if no caller waits any more.
                            sender.send(proofs).ok();
                        }
                        () = sender.closed() => {}
                    }
                    inner.prover.follow_evidence().await;
                });
                receiver.await.unwrap_or(Err(ProofError::NotReady))
            };
            proofs.boxed()
        }
    }
}

impl<P> fmt::Debug for Freshness<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freshness").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl<P: FreshnessProbe> Inner<P> {
    /// Returns the newest snapshot, if a proof of all objects was requested at `asked_at` or later,
    /// or if the list that the snapshot continues was. Clients may have seen the version of an
    /// earlier proof, so no older one follows. `asked_at` may be long ago, so a definition may have
    /// changed since: the method is not [`ProofMethod::InformerList`], which is never in doubt.
    fn proof_of_session(&self, asked_at: Instant) -> Option<Proof> {
        let reader = &self.prover.reader;
        let recent = self.recent_proof.since(asked_at, reader).or_else(|| {
            let newest = reader.snapshot()?;
            let is_covered = self.prover.is_listed_after(asked_at, &newest);
            if !is_covered || self.recent_proof.is_ahead_of(&newest) {
                return None;
            }
            let began = newest.list_began();
            self.remember(began, &newest);
            Some((newest, began))
        });
        self.recent(recent?)
    }

    /// Returns the proof by an earlier one, which has shown that `snapshot` has all changes up to
    /// `as_of`. Returns `None` if the cache was found wrong.
    fn recent(&self, (snapshot, as_of): (Snapshot, Instant)) -> Option<Proof> {
        let is_right = !self.prover.is_wrong(&snapshot);
        is_right.then_some(Proof {
            snapshot,
            method: ProofMethod::Recent,
            as_of: Some(as_of),
            call: None,
        })
    }

    /// Returns true if the lists of some objects since the last proof of all objects have cost as
    /// much as one of all objects, and counts from zero then. So proofs of all objects cost no more
    /// than the lists that they replace.
    fn is_whole_due(&self) -> bool {
        let lists = self.partial_lists.load(Ordering::Relaxed);
        let objects = self.prover.reader.snapshot().map_or(0, |whole| whole.len());
        let is_due = lists > 0 && lists.saturating_mul(self.prover.list_costs.call) >= objects;
        is_due && self.partial_lists.swap(0, Ordering::Relaxed) > 0
    }

    /// Stores that all objects of `proven` were proven by a proof that was requested at
    /// `requested_at`, if the policy uses proofs again.
    fn remember(&self, requested_at: Instant, proven: &Snapshot) {
        if self.policy.load().reuses_proofs() {
            self.recent_proof.remember(requested_at, proven);
            self.partial_lists.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the newest snapshot, if the list that it continues was sent after `asked_at`. A list
    /// that was sent before `asked_at` proves nothing, even if its answer came later. Guarded by
    /// `the_model_notices_each_broken_rule`.
    fn proof_by_informer_list(&self, asked_at: Instant) -> Option<Proof> {
        let snapshot = self.prover.reader.snapshot()?;
        let is_session = matches!(**self.policy.load(), FreshnessPolicy::Session);
        let is_covered = self.prover.is_listed_after(asked_at, &snapshot);
        if is_session || !is_covered || self.prover.is_wrong(&snapshot) {
            return None;
        }
        let began = snapshot.list_began();
        self.remember(began, &snapshot);
        Some(Proof {
            snapshot,
            method: ProofMethod::InformerList,
            as_of: Some(began),
            call: None,
        })
    }

    async fn run(&self, requests: HashSet<ProofRequest>) -> Result<Proofs, ProofError> {
        let requested_at = Instant::now();
        let lists = requests.len();
        let proofs = self.prover.prove(requests).await;
        let proofs = proofs.map(|proofs| proofs.made_by(&ProofCall::since(requested_at)));
        self.prover.metrics.count_all(&proofs);
        let proven: Vec<_> = match &proofs {
            Ok(Proofs::Shared(proof)) => vec![proof],
            Ok(Proofs::Scoped(proofs)) => proofs.values().flatten().collect(),
            Err(_) => Vec::new(),
        };
        for proof in proven {
            self.recent_proof.show(&proof.snapshot);
        }
        if let Ok(Proofs::Shared(proof)) = &proofs
            && proof.snapshot.is_whole()
            && !self.prover.is_wrong(&proof.snapshot)
        {
            self.remember(requested_at, &proof.snapshot);
        } else {
            self.partial_lists.fetch_add(lists, Ordering::Relaxed);
        }
        proofs
    }

    /// Proves all objects of the cache by a barrier that the watch reaches soon. A barrier that it
    /// misses is not counted as a failure, because the API server answers instead.
    async fn run_soon(self: Arc<Self>) -> Result<Proof, ProofError> {
        let requested_at = Instant::now();
        let mut proof = self.prover.prove_soon().await;
        if let Ok(proof) = &mut proof {
            proof.call = Some(ProofCall::since(requested_at));
        }
        if let Ok(Proof { snapshot, .. }) = &proof {
            self.prover.metrics.count(&proof);
            self.recent_proof.show(snapshot);
            self.remember(requested_at, snapshot);
        }
        proof
    }

    /// Returns the result of `proofs` for `request`, within the time limit. A call that no caller
    /// waits for any more is cancelled.
    async fn in_time(
        &self,
        request: &ProofRequest,
        proofs: impl Future<Output = Result<Proofs, ProofError>>,
    ) -> Result<Proofs, ProofError> {
        let mut proofs = pin!(proofs);
        if let Ok(proofs) = timeout(time_limit::SHORTEST, &mut proofs).await {
            return proofs;
        }
        // The size of the objects is determined only now, because that takes time.
        let limit = match self.prover.reader.snapshot() {
            Some(snapshot) => time_limit::of(&snapshot, &request.selection).await,
            None => time_limit::SHORTEST,
        };
        let rest = limit.saturating_sub(time_limit::SHORTEST);
        timeout(rest, proofs).await.unwrap_or_else(|_| {
            self.prover.metrics.count(&Err(ProofError::TimedOut));
            Err(ProofError::TimedOut)
        })
    }
}
