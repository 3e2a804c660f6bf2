//! The state machine of one proof: calls to the API server, waits for the watch, comparisons.

use std::collections::HashMap;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::api::ResourceVersion;
use crate::api::Selection;
use crate::cache::Reader;
use crate::cache::Snapshot;
use crate::informer::RelistHandle;
use crate::mutation;
use crate::mutation::Mutation;
use crate::upstream;
use crate::upstream::FreshnessProbe;

use super::isolation::Isolation;
use super::isolation::Remedy;
use super::metrics::FreshnessMetrics;
use super::plan::ListCosts;
use super::plan::ProofRequest;
use super::plan::plan;
use super::proof::Proof;
use super::proof::ProofError;
use super::proof::ProofMethod;
use super::verification::ExpectedObjects;

/// How long no verification list is sent to an API server that cannot list metadata alone.
const LISTS_UNSUPPORTED_FOR: Duration = Duration::from_secs(300);
/// Minimum time between relists of a cache that was found wrong. Guarded by
/// `a_wrong_cache_is_relisted_but_not_for_each_reader`.
const RELIST_PAUSE: Duration = Duration::from_secs(60);
/// If the watch does not reach a barrier within this time, a verification list is sent.
const BARRIER_WAIT: Duration = Duration::from_millis(10);
/// How many verification lists of one proof are sent concurrently.
const CONCURRENT_LISTS: usize = 8;
/// How long the verification list is sent first after the watch missed a barrier, which happens
/// when only other resources change. Guarded by
/// `after_the_watch_misses_a_barrier_a_list_is_tried_first_for_a_while`.
const SKIP_BARRIER_FOR: Duration = Duration::from_secs(10);

/// Proves the freshness of one cache by calls to the API server.
pub(super) struct Prover<P> {
    pub(super) reader: Reader,
    pub(super) metrics: FreshnessMetrics,
    pub(super) list_costs: ListCosts,
    pub(super) isolation: Isolation,
    probe: P,
    relist: RelistHandle,
    /// Set after the API server has shown that it cannot list metadata alone.
    lists_unsupported: ExpiringFlag,
    /// Set after the watch missed a barrier, so that the verification list is sent first.
    barrier_skipped: ExpiringFlag,
    /// When a relist was last requested because the cache was found wrong.
    relist_requested_at: Mutex<Option<Instant>>,
}

/// The result of the calls for several requests.
#[derive(Clone)]
pub(super) enum Proofs {
    /// One proof for all requests.
    Shared(Proof),
    /// A proof for each request.
    Scoped(Arc<HashMap<ProofRequest, Result<Proof, ProofError>>>),
}

/// The progress of the proof for one verification list.
///
/// A `barrier` is the resource version that the API server returned to this proof's barrier
/// request. Once the watch has applied this version, the newest snapshot is proven, even if a
/// verification list is still pending.
enum State {
    /// A barrier is requested next, because the API server has no verification lists.
    RequestingBarrier,
    /// The verification list for `request` is sent next.
    Listing {
        request: ProofRequest,
        barrier: Option<ResourceVersion>,
    },
    /// The snapshot is compared with the verification list, again after each event.
    Comparing {
        list: VerificationList,
        barrier: Option<ResourceVersion>,
    },
    /// The verification list failed or is not supported: the proof waits for the watch to reach the
    /// barrier.
    AwaitingBarrier { barrier: ResourceVersion },
}

/// A received verification list.
struct VerificationList {
    request: ProofRequest,
    expected: ExpectedObjects,
    version: ResourceVersion,
    /// The last snapshot that was found unequal; its version is below that of the list.
    unequal: Option<Snapshot>,
}

/// The proof, or the next state.
type Flow = Result<ControlFlow<Proof, State>, ProofError>;

/// A flag that expires.
#[derive(Default)]
struct ExpiringFlag(Mutex<Option<Instant>>);

// === impl Prover: the states ===

impl<P: FreshnessProbe> Prover<P> {
    pub(super) fn new(probe: P, reader: Reader, relist: RelistHandle) -> Self {
        Self {
            reader,
            metrics: FreshnessMetrics::default(),
            list_costs: ListCosts::default(),
            isolation: Isolation::default(),
            probe,
            relist,
            lists_unsupported: ExpiringFlag::default(),
            barrier_skipped: ExpiringFlag::default(),
            relist_requested_at: Mutex::default(),
        }
    }

    /// Snapshots of the objects that `requests` select, at least as fresh as this call. Has no time
    /// limit.
    pub(super) async fn prove(
        &self,
        requests: HashSet<ProofRequest>,
    ) -> Result<Proofs, ProofError> {
        let before = self.reader.snapshot().ok_or(ProofError::NotReady)?;
        if self.lists_unsupported.is_set() {
            let barrier = self.request_barrier(&before).await?;
            let proof = self.prove_by_barrier(&before, barrier).await;
            return proof.map(Proofs::Shared);
        }
        // Only an equal list of its own ends the isolation of a selection.
        let (isolated, others) = self.split_isolated(requests);
        let may_list_whole = !self.isolation.contains(&Selection::default());
        let mut plan = plan(others, &before, self.list_costs, may_list_whole).await;
        let mut barrier = None;
        if !plan.is_cheap && isolated.is_empty() && !self.barrier_skipped.is_set() {
            let requested = self.request_barrier(&before).await?;
            let proof = self.prove_by_barrier(&before, requested);
            if let Ok(proof) = timeout(BARRIER_WAIT, proof).await {
                return proof.map(Proofs::Shared);
            }
            barrier = Some(requested);
        }
        plan.lists.extend(isolated);
        let lists = plan.lists.into_iter();
        let mut lists: Vec<_> = lists
            .map(|request| self.prove_by_list(&before, request, barrier))
            .collect();
        if lists.len() == 1
            && let Some(list) = lists.pop()
        {
            let (_, proof) = list.await;
            return proof.map(Proofs::Shared);
        }
        let lists = stream::iter(lists).buffer_unordered(CONCURRENT_LISTS);
        Ok(Proofs::Scoped(Arc::new(lists.collect().await)))
    }

    /// The requests for isolated selections, which this proof checks, and the others.
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
        before: &Snapshot,
        request: ProofRequest,
        barrier: Option<ResourceVersion>,
    ) -> (ProofRequest, Result<Proof, ProofError>) {
        let mut state = State::Listing {
            request: request.clone(),
            barrier,
        };
        loop {
            match self.step(before, state).await {
                Ok(ControlFlow::Continue(next)) => state = next,
                Ok(ControlFlow::Break(proof)) => return (request, Ok(proof)),
                Err(error) => return (request, Err(error)),
            }
        }
    }

    async fn step(&self, before: &Snapshot, state: State) -> Flow {
        match state {
            State::RequestingBarrier => {
                let barrier = self.request_barrier(before).await?;
                Ok(ControlFlow::Continue(State::AwaitingBarrier { barrier }))
            }
            State::Listing { request, barrier } => self.list(before, request, barrier).await,
            State::Comparing { list, barrier } => self.compare(before, list, barrier).await,
            State::AwaitingBarrier { barrier } => {
                self.prove_by_barrier(before, barrier).await.map(done)
            }
        }
    }

    async fn request_barrier(&self, before: &Snapshot) -> Result<ResourceVersion, ProofError> {
        let barrier = self
            .send_counted(self.probe.barrier())
            .await
            .map_err(upstream_error)?;
        self.check_history(before, barrier)?;
        Ok(barrier)
    }

    async fn list(
        &self,
        before: &Snapshot,
        request: ProofRequest,
        barrier: Option<ResourceVersion>,
    ) -> Flow {
        let listing = self.send_counted(self.probe.verification_list(&request.scope));
        let list = match barrier {
            None => listing.await,
            Some(barrier) => tokio::select! {
                proof = self.prove_by_barrier(before, barrier) => return proof.map(done),
                list = listing => list,
            },
        };
        let list = match list {
            Ok(list) => list,
            Err(error) => return self.list_failed(error, barrier),
        };
        let version = list.resource_version;
        self.check_history(before, version)?;
        let list = VerificationList {
            request,
            expected: ExpectedObjects::new(list).await,
            version,
            unequal: None,
        };
        Ok(ControlFlow::Continue(State::Comparing { list, barrier }))
    }

    fn list_failed(&self, error: upstream::Error, barrier: Option<ResourceVersion>) -> Flow {
        let is_metadata_unsupported = is_metadata_unsupported(&error);
        if is_metadata_unsupported {
            self.lists_unsupported.set_for(Some(LISTS_UNSUPPORTED_FOR));
        }
        match barrier {
            // The watch may still reach the barrier.
            Some(barrier) => Ok(ControlFlow::Continue(State::AwaitingBarrier { barrier })),
            None if is_metadata_unsupported => Ok(ControlFlow::Continue(State::RequestingBarrier)),
            None => Err(upstream_error(error)),
        }
    }

    async fn compare(
        &self,
        before: &Snapshot,
        mut list: VerificationList,
        barrier: Option<ResourceVersion>,
    ) -> Flow {
        let snapshot = self.current(before)?;
        let applied = snapshot.resource_version();
        if applied > list.version {
            let unequal = list.unequal.as_ref();
            if unequal.is_some_and(|unequal| snapshot.has_no_change_since(unequal)) {
                // The cache had the unequal objects at the list's version too.
                return Err(self.report_difference(&list, &snapshot));
            }
            return Ok(done(self.barrier_proof(snapshot)));
        }
        if list.matches(&snapshot).await {
            if self.isolation.equals(&list.request.selection) {
                tracing::warn!(
                    selection = ?list.request.scope,
                    "the cache has the same objects as the API server again"
                );
            }
            if applied >= barrier.unwrap_or(list.version) {
                self.barrier_skipped.set_for(None);
            } else if barrier.is_some() {
                // Only a missed barrier sets the flag. A list's version above the applied version
                // is normal, because all resources share one sequence of versions.
                self.barrier_skipped.set_for(Some(SKIP_BARRIER_FOR));
            }
            return Ok(done(Proof {
                snapshot: self
                    .reader
                    .proven_at(&snapshot, list.version, &list.request.selection),
                method: ProofMethod::VerificationList,
            }));
        }
        if applied == list.version {
            return Err(self.report_difference(&list, &snapshot));
        }
        if barrier.is_some_and(|barrier| applied >= barrier) {
            return Ok(done(self.barrier_proof(snapshot)));
        }
        list.unequal = Some(snapshot);
        self.wait_for(ResourceVersion(applied.0 + 1)).await?;
        Ok(ControlFlow::Continue(State::Comparing { list, barrier }))
    }
}

// === impl Prover: what the states share ===

impl<P: FreshnessProbe> Prover<P> {
    /// Waits until the watch has applied `barrier`; then the newest snapshot is proven.
    async fn prove_by_barrier(
        &self,
        before: &Snapshot,
        barrier: ResourceVersion,
    ) -> Result<Proof, ProofError> {
        self.wait_for(barrier).await?;
        Ok(self.barrier_proof(self.current(before)?))
    }

    fn barrier_proof(&self, snapshot: Snapshot) -> Proof {
        self.barrier_skipped.set_for(None);
        Proof {
            snapshot,
            method: ProofMethod::Barrier,
        }
    }

    /// Waits until the cache has applied `version`. The limit is far longer than the caller's own.
    async fn wait_for(&self, version: ResourceVersion) -> Result<(), ProofError> {
        let far = Instant::now() + Duration::from_secs(3600);
        if self.reader.wait_for(version, far).await {
            Ok(())
        } else {
            Err(ProofError::NotReady)
        }
    }

    /// The newest snapshot, unless a new epoch began since `before`. Answers of the API server
    /// since then may belong to the old history, and versions of two histories cannot be compared.
    /// Guarded by `the_model_notices_each_broken_rule`.
    fn current(&self, before: &Snapshot) -> Result<Snapshot, ProofError> {
        let snapshot = self.reader.snapshot().ok_or(ProofError::NotReady)?;
        let is_same = snapshot.epoch() == before.epoch();
        if is_same || mutation::is_active(Mutation::AcrossHistories) {
            Ok(snapshot)
        } else {
            Err(ProofError::OtherHistory)
        }
    }

    /// Fails if `received`, the version of a consistent answer, is below the version that was
    /// applied before the call. Then etcd was restored, and a relist is requested.
    fn check_history(
        &self,
        before: &Snapshot,
        received: ResourceVersion,
    ) -> Result<(), ProofError> {
        if received >= before.resource_version() || mutation::is_active(Mutation::AcrossHistories) {
            return Ok(());
        }
        self.relist.request();
        Err(ProofError::OtherHistory)
    }

    async fn send_counted<T>(
        &self,
        call: impl Future<Output = Result<T, upstream::Error>>,
    ) -> Result<T, upstream::Error> {
        self.metrics.calls.fetch_add(1, Ordering::Relaxed);
        call.await
    }

    /// Reports that `snapshot` has other objects than `list`, and requests a relist if one may
    /// repair that. If a relist did not, the reads of this selection alone are forwarded.
    fn report_difference(&self, list: &VerificationList, snapshot: &Snapshot) -> ProofError {
        let selection = &list.request.selection;
        let remedy = self.isolation.differs(selection, snapshot.list_began());
        tracing::error!(
            resource_version = %list.version,
            selection = ?list.request.scope,
            keys = list.differing_keys(snapshot).join(", "),
            ?remedy,
            "the cache has other objects than the API server at the same resource version"
        );
        if remedy == Remedy::Relist {
            self.request_relist();
        }
        ProofError::CacheDiffers
    }

    fn request_relist(&self) {
        let now = Instant::now();
        let mut relist_requested_at = self.relist_requested_at.lock();
        if relist_requested_at.is_none_or(|last| now.duration_since(last) >= RELIST_PAUSE) {
            *relist_requested_at = Some(now);
            self.relist.request();
        }
    }
}

fn done(proof: Proof) -> ControlFlow<Proof, State> {
    ControlFlow::Break(proof)
}

fn upstream_error(error: upstream::Error) -> ProofError {
    ProofError::Upstream(Arc::new(error))
}

/// True if the error shows that the API server cannot list metadata alone for any scope.
fn is_metadata_unsupported(error: &upstream::Error) -> bool {
    match error {
        upstream::Error::MediaType { .. } => true,
        error => error
            .status()
            .is_some_and(|status| matches!(status.code, 406 | 415)),
    }
}

// === impl Proofs ===

impl Proofs {
    /// The proof for `request`, which was one of the requests.
    pub(super) fn of(&self, request: &ProofRequest) -> Result<Proof, ProofError> {
        match self {
            Self::Shared(proof) => Ok(proof.clone()),
            Self::Scoped(proofs) => {
                let whole = || proofs.get(&ProofRequest::everything());
                let proof = proofs.get(request).or_else(whole).cloned();
                proof.unwrap_or(Err(ProofError::NotReady))
            }
        }
    }
}

// === impl VerificationList ===

impl VerificationList {
    async fn matches(&self, snapshot: &Snapshot) -> bool {
        let selection = &self.request.selection;
        self.expected.matches(snapshot, selection).await
    }

    fn differing_keys(&self, snapshot: &Snapshot) -> Vec<String> {
        self.expected
            .differing_keys(snapshot, &self.request.selection)
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
