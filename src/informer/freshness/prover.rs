//! The way of one question to its proof: what the API server is asked, and what the cache has then.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio::time::timeout;

use crate::api::ResourceVersion;
use crate::cache::Reader;
use crate::cache::Snapshot;
use crate::informer::RelistHandle;
use crate::mutation;
use crate::mutation::Mutation;
use crate::upstream;
use crate::upstream::FreshnessProbe;

use super::metrics::FreshnessMetrics;
use super::plan::Plan;
use super::plan::ProofRequest;
use super::plan::plan;
use super::proof::Proof;
use super::proof::ProofError;
use super::proof::ProofMethod;
use super::verification::ExpectedObjects;

/// How long an API server that can't list metadata alone is not asked to.
const LISTS_UNSUPPORTED_FOR: Duration = Duration::from_secs(300);
/// How long a cache that was listed anew, because it was found wrong, is not again. What differs may
/// be how a selector is understood, which no list mends.
const RELIST_PAUSE: Duration = Duration::from_secs(60);
/// How long the watch has to reach a barrier before all objects are verified.
const BARRIER_WAIT: Duration = Duration::from_millis(10);
/// How long it is remembered that only a list could prove the cache, as others change and it doesn't.
const SKIP_BARRIER_FOR: Duration = Duration::from_secs(10);

/// Proves one cache by asking the API server.
pub(super) struct Prover<P> {
    pub(super) reader: Reader,
    pub(super) metrics: FreshnessMetrics,
    probe: P,
    relist: RelistHandle,
    /// The API server has shown that it can't list metadata alone.
    lists_unsupported: ExpiringFlag,
    /// A barrier is not tried, as the watch did not come to the last one.
    barrier_skipped: ExpiringFlag,
    /// When a list was last asked for because the cache was wrong.
    relist_requested_at: Mutex<Option<Instant>>,
}

/// How far a question has come. A `barrier` is a version that is no older than the question: once
/// the watch has applied it, whatever else is under way, the state is proven.
enum State {
    /// The API server is to be asked for a barrier; if the watch doesn't reach it soon, these are to
    /// be listed, if any.
    RequestingBarrier(Option<ProofRequest>),
    /// The watch may reach the barrier soon.
    AwaitingBarrierBriefly {
        barrier: ResourceVersion,
        request: ProofRequest,
    },
    /// What is asked is to be listed.
    Listing {
        request: ProofRequest,
        barrier: Option<ResourceVersion>,
    },
    /// The cache is compared with the list, at each event anew.
    Comparing {
        list: VerificationList,
        barrier: Option<ResourceVersion>,
    },
    /// There is nothing but to wait for the watch.
    AwaitingBarrier { barrier: ResourceVersion },
}

/// What the API server listed of what is asked.
struct VerificationList {
    request: ProofRequest,
    expected: ExpectedObjects,
    version: ResourceVersion,
}

/// The proof, or the next state.
type Flow = Result<ControlFlow<Proof, State>, ProofError>;

/// What is taken to hold for a while.
#[derive(Default)]
struct ExpiringFlag(Mutex<Option<Instant>>);

// === impl Prover: the states ===

impl<P: FreshnessProbe> Prover<P> {
    pub(super) fn new(probe: P, reader: Reader, relist: RelistHandle) -> Self {
        Self {
            reader,
            metrics: FreshnessMetrics::default(),
            probe,
            relist,
            lists_unsupported: ExpiringFlag::default(),
            barrier_skipped: ExpiringFlag::default(),
            relist_requested_at: Mutex::default(),
        }
    }

    /// A state of all that `requests` select, at least as fresh as this call. Takes as long as it
    /// takes.
    pub(super) async fn prove(&self, requests: HashSet<ProofRequest>) -> Result<Proof, ProofError> {
        let before = self.reader.snapshot().ok_or(ProofError::NotReady)?;
        let can_verify = !self.lists_unsupported.is_set();
        let mut state = match plan(requests, &before, can_verify, self.barrier_skipped.is_set()) {
            Plan::Verify(request) => State::Listing {
                request,
                barrier: None,
            },
            Plan::Barrier(request) => State::RequestingBarrier(request),
        };
        loop {
            match self.step(&before, state).await? {
                ControlFlow::Continue(next) => state = next,
                ControlFlow::Break(proof) => return Ok(proof),
            }
        }
    }

    async fn step(&self, before: &Snapshot, state: State) -> Flow {
        match state {
            State::RequestingBarrier(request) => self.request_barrier(before, request).await,
            State::AwaitingBarrierBriefly { barrier, request } => {
                self.await_barrier_briefly(before, barrier, request).await
            }
            State::Listing { request, barrier } => self.list(before, request, barrier).await,
            State::Comparing { list, barrier } => self.compare(before, list, barrier).await,
            State::AwaitingBarrier { barrier } => {
                self.prove_by_barrier(before, barrier).await.map(done)
            }
        }
    }

    async fn request_barrier(&self, before: &Snapshot, request: Option<ProofRequest>) -> Flow {
        let barrier = self
            .send_counted(self.probe.barrier())
            .await
            .map_err(upstream_error)?;
        self.check_history(before, barrier)?;
        Ok(ControlFlow::Continue(match request {
            Some(request) => State::AwaitingBarrierBriefly { barrier, request },
            None => State::AwaitingBarrier { barrier },
        }))
    }

    async fn await_barrier_briefly(
        &self,
        before: &Snapshot,
        barrier: ResourceVersion,
        request: ProofRequest,
    ) -> Flow {
        match timeout(BARRIER_WAIT, self.prove_by_barrier(before, barrier)).await {
            Ok(proof) => proof.map(done),
            Err(_) => Ok(ControlFlow::Continue(State::Listing {
                request,
                barrier: Some(barrier),
            })),
        }
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
            expected: ExpectedObjects::new(list),
            version,
        };
        Ok(ControlFlow::Continue(State::Comparing { list, barrier }))
    }

    fn list_failed(&self, error: upstream::Error, barrier: Option<ResourceVersion>) -> Flow {
        let is_metadata_unsupported = is_metadata_unsupported(&error);
        if is_metadata_unsupported {
            self.lists_unsupported.set_for(Some(LISTS_UNSUPPORTED_FOR));
        }
        match barrier {
            // The watch may still come there.
            Some(barrier) => Ok(ControlFlow::Continue(State::AwaitingBarrier { barrier })),
            None if is_metadata_unsupported => {
                Ok(ControlFlow::Continue(State::RequestingBarrier(None)))
            }
            None => Err(upstream_error(error)),
        }
    }

    async fn compare(
        &self,
        before: &Snapshot,
        list: VerificationList,
        barrier: Option<ResourceVersion>,
    ) -> Flow {
        let snapshot = self.current(before)?;
        let applied = snapshot.resource_version();
        if applied > list.version {
            return Ok(done(self.barrier_proof(snapshot)));
        }
        if list.matches(&snapshot) {
            if applied >= barrier.unwrap_or(list.version) {
                self.barrier_skipped.set_for(None);
            } else if barrier.is_some() {
                // That others change alone says little: revisions are the cluster's.
                self.barrier_skipped.set_for(Some(SKIP_BARRIER_FOR));
            }
            return Ok(done(Proof {
                snapshot: self.reader.proven_at(&snapshot, list.version),
                method: ProofMethod::VerificationList,
                is_whole: applied == list.version || list.request.selection.is_everything(),
            }));
        }
        if applied == list.version {
            self.report_difference(&list.differing_keys(&snapshot), applied);
            return Err(ProofError::CacheDiffers);
        }
        if barrier.is_some_and(|barrier| applied >= barrier) {
            return Ok(done(self.barrier_proof(snapshot)));
        }
        self.wait_for(ResourceVersion(applied.0 + 1)).await?;
        Ok(ControlFlow::Continue(State::Comparing { list, barrier }))
    }
}

// === impl Prover: what the states share ===

impl<P: FreshnessProbe> Prover<P> {
    /// The state once the watch has come to `barrier`.
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
            is_whole: true,
        }
    }

    /// Waits as long as it takes; whoever asked has a limit.
    async fn wait_for(&self, version: ResourceVersion) -> Result<(), ProofError> {
        let far = Instant::now() + Duration::from_secs(3600);
        if self.reader.wait_for(version, far).await {
            Ok(())
        } else {
            Err(ProofError::NotReady)
        }
    }

    /// The newest state, unless another history began since `before`: what the API server was asked
    /// since then may be of the old one, and the versions of two histories can't be compared.
    fn current(&self, before: &Snapshot) -> Result<Snapshot, ProofError> {
        let snapshot = self.reader.snapshot().ok_or(ProofError::NotReady)?;
        let is_same = snapshot.epoch() == before.epoch();
        if is_same || mutation::is_active(Mutation::AcrossHistories) {
            Ok(snapshot)
        } else {
            Err(ProofError::OtherHistory)
        }
    }

    /// A consistent answer below what was applied before it was asked for: etcd was restored.
    fn check_history(
        &self,
        before: &Snapshot,
        answered: ResourceVersion,
    ) -> Result<(), ProofError> {
        if answered >= before.resource_version() || mutation::is_active(Mutation::AcrossHistories) {
            return Ok(());
        }
        self.relist.request();
        Err(ProofError::OtherHistory)
    }

    async fn send_counted<T>(
        &self,
        question: impl Future<Output = Result<T, upstream::Error>>,
    ) -> Result<T, upstream::Error> {
        self.metrics.questions.fetch_add(1, Ordering::Relaxed);
        question.await
    }

    fn report_difference(&self, keys: &[String], at: ResourceVersion) {
        tracing::error!(
            resource_version = %at,
            keys = keys.join(", "),
            "the cache has other objects than the API server at the same resource version"
        );
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

/// True when the API server won't list metadata alone, whatever is asked for.
fn is_metadata_unsupported(error: &upstream::Error) -> bool {
    match error {
        upstream::Error::MediaType { .. } => true,
        error => error
            .status()
            .is_some_and(|status| matches!(status.code, 406 | 415)),
    }
}

// === impl VerificationList ===

impl VerificationList {
    fn matches(&self, snapshot: &Snapshot) -> bool {
        self.expected.matches(snapshot, &self.request.selection)
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

    /// From now on for so long, or no more.
    fn set_for(&self, duration: Option<Duration>) {
        *self.0.lock() = duration.map(|duration| Instant::now() + duration);
    }
}
