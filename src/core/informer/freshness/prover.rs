//! One proof: calls to the API server, waits for the watch, comparisons.

mod lone_barrier;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::evidence::{Evidence, Verdict};
use super::isolation::Isolation;
use super::metrics::FreshnessMetrics;
use super::plan::{ListCosts, LoneBarriers, ProofRequest, plan};
use super::proof::{Proof, ProofError, ProofMethod, Proofs};
use super::repair::Repair;
use super::verification::VerificationList;
use crate::api::{ResourceVersion, Selection};
use crate::cache::{Reader, Snapshot};
use crate::informer::{RelistHandle, RelistReason};
use crate::mutation::Mutation;
use crate::upstream::FreshnessProbe;
use crate::{mutation, upstream};

/// After the API server has shown that it cannot list metadata alone, no verification list is sent
/// for this time.
const LISTS_UNSUPPORTED_FOR: Duration = Duration::from_secs(300);
/// If the watch does not reach a barrier within this time, a verification list is sent.
const BARRIER_WAIT: Duration = Duration::from_millis(10);
/// How many verification lists of one proof are sent concurrently.
const CONCURRENT_LISTS: usize = 8;
/// After the watch missed a barrier, verification lists are sent first for this time. The watch
/// misses barriers when only other resources change. Guarded by
/// `after_the_watch_misses_a_barrier_a_list_is_tried_first_for_a_while`.
const SKIP_BARRIER_FOR: Duration = Duration::from_secs(10);

/// Proves the freshness of one cache by calls to the API server.
pub(super) struct Prover<P> {
    pub(super) reader: Reader,
    pub(super) metrics: FreshnessMetrics,
    pub(super) list_costs: ListCosts,
    pub(super) isolation: Isolation,
    pub(super) evidence: Evidence,
    pub(super) repair: Repair,
    probe: P,
    /// Set after the API server has shown that it cannot list metadata alone.
    lists_unsupported: ExpiringFlag,
    /// Set after the watch missed a barrier, so that the verification list is sent first.
    barrier_skipped: ExpiringFlag,
    /// Whether barriers are tried that no verification list follows.
    lone_barriers: Mutex<LoneBarriers>,
}

/// The cache at the start of a proof, before its calls are sent.
struct Start {
    snapshot: Snapshot,
    began: Instant,
}

/// The result of an attempt at a proof. `None` if the proof has to start again: the cache was
/// listed again by a list that was in flight when the attempt began, so the received versions prove
/// nothing.
type Attempt = Result<Option<Proof>, ProofError>;

/// A flag that expires.
#[derive(Default)]
struct ExpiringFlag(Mutex<Option<Instant>>);

// === impl Prover: the attempts ===

impl<P: FreshnessProbe> Prover<P> {
    pub(super) fn new(probe: P, reader: Reader, relist: RelistHandle) -> Self {
        Self {
            lone_barriers: Mutex::new(lone_barrier::barriers_of(&reader)),
            reader,
            metrics: FreshnessMetrics::default(),
            list_costs: ListCosts::default(),
            isolation: Isolation::default(),
            evidence: Evidence::default(),
            repair: Repair::new(relist),
            probe,
            lists_unsupported: ExpiringFlag::default(),
            barrier_skipped: ExpiringFlag::default(),
        }
    }

    /// Proves snapshots of the objects that `requests` select. They are at least as fresh as this
    /// call. There is no time limit.
    pub(super) async fn prove(
        &self,
        requests: HashSet<ProofRequest>,
    ) -> Result<Proofs, ProofError> {
        loop {
            let start = self.start()?;
            if let Some(proofs) = self.prove_from(&start, requests.clone()).await? {
                return Ok(proofs);
            }
        }
    }

    fn start(&self) -> Result<Start, ProofError> {
        // Read the time before the snapshot: a list that begins after this time shows a state after
        // the calls of this proof.
        let began = Instant::now();
        let snapshot = self.reader.snapshot().ok_or(ProofError::NotReady)?;
        Ok(Start { snapshot, began })
    }

    /// Makes one attempt of [`Prover::prove`]. Returns `None` if the proof has to start again.
    async fn prove_from(
        &self,
        start: &Start,
        requests: HashSet<ProofRequest>,
    ) -> Result<Option<Proofs>, ProofError> {
        if self.reader.shares_versions() {
            let proof = self.prove_by_later_event(start).await?;
            return Ok(proof.map(Proofs::Shared));
        }
        if self.lists_unsupported.is_set() {
            let proof = self.prove_by_new_barrier(start).await?;
            return Ok(proof.map(Proofs::Shared));
        }
        // Isolated selections are listed separately: only an equal list of the
        // selection ends its isolation.
        let (isolated, others) = self.split_isolated(requests);
        let may_list_whole = !self.isolation.contains(&Selection::default());
        let mut plan = plan(others, &start.snapshot, self.list_costs, may_list_whole).await;
        let mut barrier = None;
        let is_barrier_useless = self.barrier_skipped.is_set() || self.is_wrong(&start.snapshot);
        if !plan.is_cheap && isolated.is_empty() && !is_barrier_useless {
            let requested = self.request_barrier(start).await?;
            let proof = self.prove_by_barrier(start, requested);
            match timeout(BARRIER_WAIT, proof).await {
                Err(_) => barrier = Some(requested),
                // A list may still prove the requested objects.
                Ok(Err(ProofError::CacheDiffers)) => {}
                Ok(proof) => return Ok(proof?.map(Proofs::Shared)),
            }
        }
        plan.lists.extend(isolated);
        let lists = plan.lists.into_iter();
        let mut lists: Vec<_> = lists
            .map(|request| self.prove_by_list(start, request, barrier))
            .collect();
        if lists.len() == 1
            && let Some(list) = lists.pop()
        {
            let (_, proof) = list.await;
            return proof.map(|proof| Some(Proofs::Shared(proof)));
        }
        let lists = stream::iter(lists).buffer_unordered(CONCURRENT_LISTS);
        Ok(Some(Proofs::Scoped(Arc::new(lists.collect().await))))
    }

    /// Returns the requests for isolated selections, which this proof checks, and the others.
    fn split_isolated(
        &self,
        requests: HashSet<ProofRequest>,
    ) -> (HashSet<ProofRequest>, HashSet<ProofRequest>) {
        let requests = requests.into_iter();
        requests.partition(|request| self.isolation.contains(&request.selection))
    }

    /// Proves `request` by a verification list, or by `barrier` if the watch reaches it first.
    async fn prove_by_list(
        &self,
        start: &Start,
        request: ProofRequest,
        barrier: Option<ResourceVersion>,
    ) -> (ProofRequest, Result<Proof, ProofError>) {
        let mut attempt = self.list(start, &request, barrier).await;
        let proof = loop {
            match attempt.transpose() {
                Some(proof) => break proof,
                None => attempt = self.list_again(&request).await,
            }
        };
        (request, proof)
    }

    /// Makes another attempt of [`Prover::prove_by_list`], from a new start.
    async fn list_again(&self, request: &ProofRequest) -> Attempt {
        let start = self.start()?;
        if self.lists_unsupported.is_set() {
            self.prove_by_new_barrier(&start).await
        } else {
            self.list(&start, request, None).await
        }
    }

    async fn request_barrier(&self, start: &Start) -> Result<ResourceVersion, ProofError> {
        let barrier = self
            .send_counted(self.probe.barrier())
            .await
            .map_err(upstream_error)?;
        self.check_history(start, barrier)?;
        Ok(barrier)
    }

    /// Compares the cache with a new verification list for `request`.
    ///
    /// A `barrier` is the resource version that the API server returned to this proof's barrier
    /// request. Once the watch has applied this version, the newest snapshot is proven, even if the
    /// verification list is still pending.
    async fn list(
        &self,
        start: &Start,
        request: &ProofRequest,
        barrier: Option<ResourceVersion>,
    ) -> Attempt {
        let listing = self.send_counted(self.probe.verification_list(&request.scope));
        let list = match barrier {
            None => listing.await,
            Some(barrier) => tokio::select! {
                proof = self.prove_by_barrier(start, barrier) => return proof,
                list = listing => list,
            },
        };
        let list = match list {
            Ok(list) => list,
            Err(error) => return self.list_failed(start, error, barrier).await,
        };
        self.check_history(start, list.resource_version)?;
        let list = VerificationList::new(request.clone(), list).await;
        self.compare(start, list, barrier).await
    }

    async fn list_failed(
        &self,
        start: &Start,
        error: upstream::Error,
        barrier: Option<ResourceVersion>,
    ) -> Attempt {
        let is_metadata_unsupported = is_metadata_unsupported(&error);
        if is_metadata_unsupported {
            self.lists_unsupported.set_for(Some(LISTS_UNSUPPORTED_FOR));
        }
        match barrier {
            // The watch may still reach the barrier.
            Some(barrier) => self.prove_by_barrier(start, barrier).await,
            None if is_metadata_unsupported => self.prove_by_new_barrier(start).await,
            None => Err(upstream_error(error)),
        }
    }

    /// Compares the cache with `list`, and again after each event.
    async fn compare(
        &self,
        start: &Start,
        mut list: VerificationList,
        barrier: Option<ResourceVersion>,
    ) -> Attempt {
        loop {
            let snapshot = self.current(start)?;
            let applied = snapshot.resource_version();
            if applied > list.version {
                return self.prove_passed(start, &mut list, snapshot).await;
            }
            if list.matches(&snapshot).await {
                return Ok(Some(self.list_proof(start, &list, &snapshot, barrier)));
            }
            if applied == list.version {
                // An earlier difference may lack the objects that differ now.
                list.difference = None;
            }
            let difference = list.difference_from(&snapshot).await;
            if applied == list.version {
                self.decide(&difference).await;
                return Err(ProofError::CacheDiffers);
            }
            self.evidence.keep(&difference);
            if barrier.is_some_and(|barrier| applied >= barrier) {
                return self.barrier_proof(start, snapshot).await;
            }
            self.wait_for(ResourceVersion(applied.0 + 1)).await?;
        }
    }

    /// Returns the proof by an equal list.
    fn list_proof(
        &self,
        start: &Start,
        list: &VerificationList,
        snapshot: &Snapshot,
        barrier: Option<ResourceVersion>,
    ) -> Proof {
        let applied = snapshot.resource_version();
        if self.isolation.equals(&list.request.selection) {
            tracing::warn!(
                selection = ?list.request.scope,
                "the cache has the same objects as the API server again"
            );
        }
        if applied >= barrier.unwrap_or(list.version) {
            self.barrier_skipped.set_for(None);
        } else if barrier.is_some() {
            // Only a missed barrier sets the flag. A list's version above the applied version is
            // normal, because all resources share one sequence of versions.
            self.barrier_skipped.set_for(Some(SKIP_BARRIER_FOR));
        }
        let selection = &list.request.selection;
        Proof {
            snapshot: self.reader.proven_at(snapshot, list.version, selection),
            method: ProofMethod::VerificationList,
            as_of: Some(start.began),
            call: None,
        }
    }

    /// Returns the proof of `snapshot`, which has passed the version of `list`. Fails if the event
    /// log shows that the cache was wrong at the list's version.
    async fn prove_passed(
        &self,
        start: &Start,
        list: &mut VerificationList,
        snapshot: Snapshot,
    ) -> Attempt {
        let difference = match &list.difference {
            Some(difference) => Arc::clone(difference),
            None => list.difference_from(&start.snapshot).await,
        };
        match self.decide(&difference).await {
            Verdict::CacheDiffers => Err(ProofError::CacheDiffers),
            Verdict::Explained if !self.is_overtaken(start, &snapshot) => {
                // The cache is right in this selection, even if it is wrong in another one.
                self.barrier_skipped.set_for(None);
                Ok(Some(start.proof_by_barrier(snapshot)))
            }
            Verdict::Explained | Verdict::Unknown => self.barrier_proof(start, snapshot).await,
        }
    }
}

// === impl Prover: what the attempts share ===

impl<P: FreshnessProbe> Prover<P> {
    /// Proves the newest snapshot by a barrier that is requested now.
    async fn prove_by_new_barrier(&self, start: &Start) -> Attempt {
        let barrier = self.request_barrier(start).await?;
        self.prove_by_barrier(start, barrier).await
    }

    /// Waits until the watch has applied `barrier`; then the newest snapshot is proven. Returns
    /// `None` if the proof has to start again.
    async fn prove_by_barrier(&self, start: &Start, barrier: ResourceVersion) -> Attempt {
        self.wait_for(barrier).await?;
        self.barrier_proof(start, self.current(start)?).await
    }

    /// Returns the proof of `snapshot`, which has reached a version that was received since
    /// `start`. Fails if the cache was found wrong. Returns `None` if the proof has to start again.
    async fn barrier_proof(&self, start: &Start, snapshot: Snapshot) -> Attempt {
        if self.is_overtaken(start, &snapshot) {
            return Ok(None);
        }
        self.decide_evidence(&snapshot).await;
        if self.is_wrong(&snapshot) {
            return Err(ProofError::CacheDiffers);
        }
        self.barrier_skipped.set_for(None);
        Ok(Some(start.proof_by_barrier(snapshot)))
    }

    /// Returns true if `snapshot` continues from a list that was in flight at `start`. Such a list
    /// may belong to an older history than the versions that were received since `start`, and only
    /// another call can show this. Guarded by `the_model_notices_each_broken_rule`.
    fn is_overtaken(&self, start: &Start, snapshot: &Snapshot) -> bool {
        snapshot.list_began() != start.snapshot.list_began()
            && !self.is_listed_after(start.began, snapshot)
            && !mutation::is_active(Mutation::ListInFlightProven)
    }

    /// Returns true if `snapshot` contains all writes that were acknowledged by `moment`, because
    /// it continues from a list that was sent later. If the upstream is a kubefan, the answer to a
    /// list may be older than its request.
    pub(super) fn is_listed_after(&self, moment: Instant, snapshot: &Snapshot) -> bool {
        let list_began = snapshot.list_began();
        list_began > moment && self.probe.unproven_at() < Some(list_began)
    }

    /// Waits until the cache has applied `version`. The time limit here is far longer than the
    /// caller's limit.
    async fn wait_for(&self, version: ResourceVersion) -> Result<(), ProofError> {
        let far = Instant::now() + Duration::from_secs(3600);
        if self.reader.wait_for(version, far).await {
            Ok(())
        } else {
            Err(ProofError::NotReady)
        }
    }

    /// Returns the newest snapshot. Fails if a new epoch began since `start`: answers of the API
    /// server since then may belong to the old history, and versions of two histories cannot be
    /// compared. Guarded by `the_model_notices_each_broken_rule`.
    fn current(&self, start: &Start) -> Result<Snapshot, ProofError> {
        let snapshot = self.reader.snapshot().ok_or(ProofError::NotReady)?;
        let is_same = snapshot.epoch() == start.snapshot.epoch();
        if is_same || mutation::is_active(Mutation::AcrossHistories) {
            Ok(snapshot)
        } else {
            Err(ProofError::OtherHistory)
        }
    }

    /// Fails if `received`, the version of a consistent answer, is below the version that was
    /// applied before the call. Then etcd was restored, and a relist is requested.
    fn check_history(&self, start: &Start, received: ResourceVersion) -> Result<(), ProofError> {
        let applied = start.snapshot.resource_version();
        if received >= applied || mutation::is_active(Mutation::AcrossHistories) {
            return Ok(());
        }
        let reason = RelistReason::OtherHistory;
        self.repair.relist.request_because(reason);
        Err(ProofError::OtherHistory)
    }

    async fn send_counted<T>(
        &self,
        call: impl Future<Output = Result<T, upstream::Error>>,
    ) -> Result<T, upstream::Error> {
        self.metrics.calls.fetch_add(1, Ordering::Relaxed);
        call.await
    }
}

impl Start {
    /// Returns the proof of `snapshot`, which has reached a version that was received since the
    /// start.
    fn proof_by_barrier(&self, snapshot: Snapshot) -> Proof {
        Proof {
            snapshot,
            method: ProofMethod::Barrier,
            as_of: Some(self.began),
            call: None,
        }
    }
}

fn upstream_error(error: upstream::Error) -> ProofError {
    match error {
        upstream::Error::Unproven { .. } => ProofError::UpstreamUnproven,
        error => ProofError::Upstream(Arc::new(error)),
    }
}

/// Returns true if the error shows that the API server cannot list metadata alone for any scope.
fn is_metadata_unsupported(error: &upstream::Error) -> bool {
    match error {
        upstream::Error::MediaType { .. } => true,
        error => error
            .status()
            .is_some_and(|status| matches!(status.code, 406 | 415)),
    }
}

// === impl ExpiringFlag ===

impl ExpiringFlag {
    fn is_set(&self) -> bool {
        self.0.lock().is_some_and(|end| Instant::now() <= end)
    }

    /// Sets the flag for `duration` from now on; `None` clears it.
    fn set_for(&self, duration: Option<Duration>) {
        *self.0.lock() = duration.map(|duration| Instant::now() + duration);
    }
}
