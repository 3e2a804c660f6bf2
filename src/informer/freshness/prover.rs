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
use super::plan::Asked;
use super::plan::Plan;
use super::plan::plan;
use super::proof::Proof;
use super::proof::ProofMethod;
use super::proof::Unproven;
use super::verification::Expected;

/// How long an API server that can't list metadata alone is not asked to.
const UNABLE: Duration = Duration::from_secs(300);
/// How long a cache that was listed anew, because it was found wrong, is not again. What differs may
/// be how a selector is understood, which no list mends.
const RELIST_PAUSE: Duration = Duration::from_secs(60);
/// How long the watch has to reach a barrier before all objects are verified.
const ON_THE_WAY: Duration = Duration::from_millis(10);
/// How long it is remembered that only a list could prove the cache, as others change and it doesn't.
const QUIET: Duration = Duration::from_secs(10);

/// Proves one cache by asking the API server.
pub(super) struct Prover<P> {
    pub(super) reader: Reader,
    pub(super) metrics: FreshnessMetrics,
    probe: P,
    relist: RelistHandle,
    /// The API server has shown that it can't list metadata alone.
    is_unable: Until,
    /// A barrier is not tried, as the watch did not come to the last one.
    is_quiet: Until,
    /// When a list was last asked for because the cache was wrong.
    relisted: Mutex<Option<Instant>>,
}

/// How far a question has come. A `barrier` is a version that is no older than the question: once
/// the watch has applied it, whatever else is under way, the state is proven.
enum State {
    /// The API server is to be asked for a barrier; if the watch doesn't reach it soon, these are to
    /// be listed, if any.
    Asking(Option<Asked>),
    /// The watch may reach the barrier soon.
    Approaching {
        barrier: ResourceVersion,
        asked: Asked,
    },
    /// What is asked is to be listed.
    Listing {
        asked: Asked,
        barrier: Option<ResourceVersion>,
    },
    /// The cache is compared with the list, at each event anew.
    Comparing {
        list: Listed,
        barrier: Option<ResourceVersion>,
    },
    /// There is nothing but to wait for the watch.
    Waiting { barrier: ResourceVersion },
}

/// What the API server listed of what is asked.
struct Listed {
    asked: Asked,
    expected: Expected,
    version: ResourceVersion,
}

/// The proof, or the next state.
type Flow = Result<ControlFlow<Proof, State>, Unproven>;

/// What is taken to hold for a while.
#[derive(Default)]
struct Until(Mutex<Option<Instant>>);

// === impl Prover: the states ===

impl<P: FreshnessProbe> Prover<P> {
    pub(super) fn new(probe: P, reader: Reader, relist: RelistHandle) -> Self {
        Self {
            reader,
            metrics: FreshnessMetrics::default(),
            probe,
            relist,
            is_unable: Until::default(),
            is_quiet: Until::default(),
            relisted: Mutex::default(),
        }
    }

    /// A state of all that is `asked` at least as fresh as this call. Takes as long as it takes.
    pub(super) async fn prove(&self, asked: HashSet<Asked>) -> Result<Proof, Unproven> {
        let before = self.reader.snapshot().ok_or(Unproven::NotReady)?;
        let can_verify = !self.is_unable.holds();
        let mut state = match plan(asked, &before, can_verify, self.is_quiet.holds()) {
            Plan::Verify(asked) => State::Listing {
                asked,
                barrier: None,
            },
            Plan::Barrier(asked) => State::Asking(asked),
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
            State::Asking(asked) => self.ask_for_barrier(before, asked).await,
            State::Approaching { barrier, asked } => self.approach(before, barrier, asked).await,
            State::Listing { asked, barrier } => self.list(before, asked, barrier).await,
            State::Comparing { list, barrier } => self.compare(before, list, barrier).await,
            State::Waiting { barrier } => self.reached(before, barrier).await.map(done),
        }
    }

    async fn ask_for_barrier(&self, before: &Snapshot, asked: Option<Asked>) -> Flow {
        let barrier = self.ask(self.probe.barrier()).await.map_err(unanswered)?;
        self.is_of_our_history(before, barrier)?;
        Ok(ControlFlow::Continue(match asked {
            Some(asked) => State::Approaching { barrier, asked },
            None => State::Waiting { barrier },
        }))
    }

    async fn approach(&self, before: &Snapshot, barrier: ResourceVersion, asked: Asked) -> Flow {
        match timeout(ON_THE_WAY, self.reached(before, barrier)).await {
            Ok(proof) => proof.map(done),
            Err(_) => Ok(ControlFlow::Continue(State::Listing {
                asked,
                barrier: Some(barrier),
            })),
        }
    }

    async fn list(
        &self,
        before: &Snapshot,
        asked: Asked,
        barrier: Option<ResourceVersion>,
    ) -> Flow {
        let listing = self.ask(self.probe.verification_list(&asked.scope));
        let list = match barrier {
            None => listing.await,
            Some(barrier) => tokio::select! {
                proof = self.reached(before, barrier) => return proof.map(done),
                list = listing => list,
            },
        };
        let list = match list {
            Ok(list) => list,
            Err(error) => return self.list_failed(error, barrier),
        };
        let version = list.resource_version;
        self.is_of_our_history(before, version)?;
        let list = Listed {
            asked,
            expected: Expected::new(list),
            version,
        };
        Ok(ControlFlow::Continue(State::Comparing { list, barrier }))
    }

    fn list_failed(&self, error: upstream::Error, barrier: Option<ResourceVersion>) -> Flow {
        let is_unable = is_unable(&error);
        if is_unable {
            self.is_unable.set(Some(UNABLE));
        }
        match barrier {
            // The watch may still come there.
            Some(barrier) => Ok(ControlFlow::Continue(State::Waiting { barrier })),
            None if is_unable => Ok(ControlFlow::Continue(State::Asking(None))),
            None => Err(unanswered(error)),
        }
    }

    async fn compare(
        &self,
        before: &Snapshot,
        list: Listed,
        barrier: Option<ResourceVersion>,
    ) -> Flow {
        let snapshot = self.current(before)?;
        let applied = snapshot.resource_version();
        if applied > list.version {
            return Ok(done(self.by_barrier(snapshot)));
        }
        if list.is_all_of(&snapshot) {
            if applied >= barrier.unwrap_or(list.version) {
                self.is_quiet.set(None);
            } else if barrier.is_some() {
                // That others change alone says little: revisions are the cluster's.
                self.is_quiet.set(Some(QUIET));
            }
            return Ok(done(Proof {
                snapshot: self.reader.proven_at(&snapshot, list.version),
                method: ProofMethod::VerificationList,
                is_whole: applied == list.version || list.asked.selection.is_everything(),
            }));
        }
        if applied == list.version {
            self.differs(&list.differing(&snapshot), applied);
            return Err(Unproven::CacheDiffers);
        }
        if barrier.is_some_and(|barrier| applied >= barrier) {
            return Ok(done(self.by_barrier(snapshot)));
        }
        self.wait_for(ResourceVersion(applied.0 + 1)).await?;
        Ok(ControlFlow::Continue(State::Comparing { list, barrier }))
    }
}

// === impl Prover: what the states share ===

impl<P: FreshnessProbe> Prover<P> {
    /// The state once the watch has come to `barrier`.
    async fn reached(
        &self,
        before: &Snapshot,
        barrier: ResourceVersion,
    ) -> Result<Proof, Unproven> {
        self.wait_for(barrier).await?;
        Ok(self.by_barrier(self.current(before)?))
    }

    fn by_barrier(&self, snapshot: Snapshot) -> Proof {
        self.is_quiet.set(None);
        Proof {
            snapshot,
            method: ProofMethod::Barrier,
            is_whole: true,
        }
    }

    /// Waits as long as it takes; whoever asked has a limit.
    async fn wait_for(&self, version: ResourceVersion) -> Result<(), Unproven> {
        let far = Instant::now() + Duration::from_secs(3600);
        if self.reader.wait_for(version, far).await {
            Ok(())
        } else {
            Err(Unproven::NotReady)
        }
    }

    /// The newest state, unless another history began since `before`: what the API server was asked
    /// since then may be of the old one, and the versions of two histories can't be compared.
    fn current(&self, before: &Snapshot) -> Result<Snapshot, Unproven> {
        let snapshot = self.reader.snapshot().ok_or(Unproven::NotReady)?;
        let is_same = snapshot.epoch() == before.epoch();
        if is_same || mutation::is_active(Mutation::AcrossHistories) {
            Ok(snapshot)
        } else {
            Err(Unproven::OtherHistory)
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
    ) -> Result<T, upstream::Error> {
        self.metrics.questions.fetch_add(1, Ordering::Relaxed);
        question.await
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

fn done(proof: Proof) -> ControlFlow<Proof, State> {
    ControlFlow::Break(proof)
}

fn unanswered(error: upstream::Error) -> Unproven {
    Unproven::Upstream(Arc::new(error))
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

// === impl Listed ===

impl Listed {
    fn is_all_of(&self, snapshot: &Snapshot) -> bool {
        self.expected.is_all_of(snapshot, &self.asked.selection)
    }

    fn differing(&self, snapshot: &Snapshot) -> Vec<String> {
        self.expected.differing(snapshot, &self.asked.selection)
    }
}

// === impl Until ===

impl Until {
    fn holds(&self) -> bool {
        self.0.lock().is_some_and(|end| Instant::now() <= end)
    }

    /// From now on for so long, or no more.
    fn set(&self, duration: Option<Duration>) {
        *self.0.lock() = duration.map(|duration| Instant::now() + duration);
    }
}
