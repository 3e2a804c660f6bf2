//! Manager: starts the parts of a program in order, and stops them in reverse order.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kube::Resource;
use kubefan_core::shutdown::Shutdown;
use kubefan_core::telemetry::Registry;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{Error, Health};
use crate::controller::Error::Unfinished;
use crate::controller::{Controller, Reconciler, stop_or_drain};
use crate::leader_election::{InvalidConfig, LeaderElector, LeaseStore, Status};
use crate::shared_informer::Factory;
use crate::{controller, leader_election, work_queue};

/// How long the informers of the factory may take to have complete lists.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs controllers; see the [module's documentation](super). It does nothing until
/// [`Manager::run`].
pub struct Manager {
    shutdown: Shutdown,
    factory: Option<Factory>,
    /// The factory, for scrapes during the lifetime of the manager.
    scraped: Arc<Mutex<Option<Factory>>>,
    election: Option<StartElection>,
    registry: Registry,
    metrics: controller::Metrics,
    /// The waits for the first lists of each controller.
    syncs: Vec<Ending>,
    runs: Vec<Run>,
    health: Health,
    has_synced: Arc<AtomicBool>,
}

type Ending = Pin<Box<dyn Future<Output = Result<(), controller::Error>> + Send>>;
type Run = Box<dyn FnOnce(watch::Receiver<bool>) -> Ending + Send>;
type StartElection = Box<dyn FnOnce(&Shutdown) -> Result<LeaderElector, InvalidConfig> + Send>;

impl Manager {
    /// Creates a manager without controllers, with a new registry. Its tasks belong to `shutdown`.
    pub fn new(shutdown: Shutdown) -> Self {
        Self::with_registry(shutdown, Registry::new())
    }

    /// Like [`Manager::new`], with the program's registry.
    ///
    /// # Panics
    ///
    /// If the metrics of controllers or of work queues were declared in `registry` before.
    pub fn with_registry(shutdown: Shutdown, registry: Registry) -> Self {
        let queues = work_queue::Metrics::new(&registry);
        let health = Health::new();
        let has_synced = Arc::new(AtomicBool::new(false));
        let synced = Arc::clone(&has_synced);
        health.add_readyz("informers", move || {
            let has_synced = synced.load(Ordering::Relaxed).then_some(());
            has_synced.ok_or_else(|| "the first lists are not complete".to_owned())
        });
        let scraped = Arc::<Mutex<Option<Factory>>>::default();
        let factory = Arc::downgrade(&scraped);
        registry.on_scrape(move |samples| {
            let factory = factory.upgrade().and_then(|factory| factory.lock().clone());
            if let Some(factory) = factory {
                factory.informers().sample(samples);
            }
        });
        Self {
            shutdown,
            factory: None,
            scraped,
            election: None,
            metrics: controller::Metrics::new(&registry, queues),
            registry,
            syncs: Vec::new(),
            runs: Vec::new(),
            health,
            has_synced,
        }
    }

    /// Holds the informers of `factory`, and waits for all informers that were started before the
    /// run, at most two minutes. The run waits for the controllers' informers in any case. The
    /// metrics of the factory's caches are in the manager's registry during the lifetime of the
    /// manager. Replaces an earlier factory.
    #[must_use]
    pub fn with_factory(mut self, factory: Factory) -> Self {
        let replaced = self.scraped.lock().replace(factory.clone());
        drop(replaced);
        self.factory = Some(factory);
        self
    }

    /// Runs the controllers only while this process is the leader. Default is always.
    ///
    /// # Panics
    ///
    /// If `config` has no metrics, and those of an election were declared in the registry before.
    #[must_use]
    pub fn with_leader_election(
        mut self,
        store: impl LeaseStore,
        mut config: leader_election::Config,
    ) -> Self {
        let metrics = || leader_election::Metrics::new(&self.registry, store.name());
        config.metrics = Some(config.metrics.unwrap_or_else(metrics));
        self.election = Some(Box::new(move |shutdown| {
            LeaderElector::start(store, config, shutdown)
        }));
        self
    }

    /// Adds a controller. Its reconciles and its queue are counted in the manager's registry.
    #[must_use]
    pub fn add<K, R>(mut self, controller: Controller<K>, reconciler: R) -> Self
    where
        K: Resource + DeserializeOwned + Send + Sync + 'static,
        R: Reconciler,
    {
        let controller = controller.with_metrics(&self.metrics);
        self.syncs.push(Box::pin(controller.synced()));
        self.runs.push(Box::new(move |mut stopped| {
            let stop = async move {
                // An error means that the manager is dropped. Then this future is dropped, too.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            Box::pin(controller.run(reconciler, stop))
        }));
        self
    }

    /// Returns the factory of [`Manager::with_factory`].
    pub fn factory(&self) -> Option<&Factory> {
        self.factory.as_ref()
    }

    /// Returns the metrics of the controllers, their queues, the election and the factory's
    /// caches. The program may declare others in this registry, and serves [`Registry::render`]
    /// with its own HTTP server.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the checks of this manager. `readyz` fails until the first lists are complete, and
    /// `healthz` fails after the Lease was lost. A candidate that does not lead is ready. The
    /// program may add other checks.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until `stop` completes or a drain begins, in the order that the
    /// [module's documentation](super) describes. The drain waits until the Lease is given back.
    ///
    /// Dropping the future stops everything at once, and does not give the Lease back.
    ///
    /// # Errors
    ///
    /// If a part cannot start, if a controller fails, or if the Lease is lost or not given back.
    /// The controllers have stopped then.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn run(self, stop: impl Future + Send) -> Result<(), Error> {
        let shutdown = self.shutdown;
        // A drain waits until this hold is dropped. Only then informers and the election end.
        let _running = shutdown.hold();
        let mut stop = pin!(stop_or_drain(stop, &shutdown));
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            synced = synced(self.factory.as_ref(), self.syncs) => synced?,
        }
        self.has_synced.store(true, Ordering::Relaxed);
        let elector = match self.election {
            Some(start) => start(&shutdown)?,
            None => return lead(self.runs, std::future::pending(), stop).await,
        };
        let status = elector.statuses();
        self.health
            .add_healthz("leader-election", move || match *status.borrow() {
                Status::Lost => Err("the lease was lost".to_owned()),
                Status::Leading { until } if until <= Instant::now() => {
                    Err("the lease was not renewed in time".to_owned())
                }
                _ => Ok(()),
            });
        let ended = tokio::select! {
            biased;
            () = &mut stop => Ok(()),
            is_elected = elector.elected() => if is_elected {
                lead(self.runs, elector.lost(), stop).await
            } else {
                Err(Error::LeaseLost)
            },
        };
        // No other candidate may lead while reconciles run here, so the Lease is left to expire.
        if let Err(Error::LeaseLost | Error::Controller(Unfinished { running: 1.., .. })) = &ended {
            return ended;
        }
        let released = elector.leave().await;
        ended.and(released.map_err(Error::from))
    }
}

/// Waits for the first lists of all informers.
async fn synced(factory: Option<&Factory>, members: Vec<Ending>) -> Result<(), Error> {
    if let Some(factory) = factory {
        let synced = timeout(SYNC_TIMEOUT, factory.wait_for_cache_sync()).await;
        if synced != Ok(true) {
            let limit = SYNC_TIMEOUT;
            return Err(Error::NotSynced { limit });
        }
    }
    for synced in members {
        synced.await?;
    }
    Ok(())
}

/// Runs the controllers until `stop`, until one ends, or until `lost`.
async fn lead(
    runs: Vec<Run>,
    lost: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let (sender, stopped) = watch::channel(false);
    let mut running: FuturesUnordered<_> =
        runs.into_iter().map(|run| run(stopped.clone())).collect();
    let mut lost = pin!(lost);
    let mut result = tokio::select! {
        biased;
        // The return drops all reconciles.
        () = &mut lost => return Err(Error::LeaseLost),
        () = stop => Ok(()),
        Some(ended) = running.next() => ended,
    };
    sender.send_replace(true);
    loop {
        tokio::select! {
            biased;
            () = &mut lost => return Err(Error::LeaseLost),
            ended = running.next() => match ended {
                Some(ended) => result = result.and(ended),
                None => return Ok(result?),
            },
        }
    }
}

debug_fields!(
    [] Manager,
    |it| controllers: it.runs.len(), has_election: it.election.is_some()
);
