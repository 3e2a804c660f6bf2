//! The run of a controller: sources feed a queue, and workers reconcile its objects.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use kube::Resource;
use kubefan_core::shutdown::Shutdown;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::builder::{Parts, Settings};
use super::metrics::{ControllerMetrics, Outcome};
use super::source::Source;
use super::{Action, Controller, Error, Reconciler, Request};
use crate::work_queue;
use crate::work_queue::{AddOptions, Work, WorkQueue};

/// The longest time limit. A longer one would overflow an `Instant`.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 86_400);
/// The time that a drain still has after the reconciles, to give a Lease back.
const DRAIN_RESERVE: Duration = Duration::from_secs(5);
/// How long dropped reconciles may take to reach an await point.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// What the workers of a controller share.
struct Shared<R> {
    name: String,
    reconciler: R,
    queue: WorkQueue<Request>,
    metrics: Option<ControllerMetrics>,
}

/// The workers. Dropping this value aborts them.
struct Workers {
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Waits until all informers that the controller reads have a complete list. The wait begins
    /// when the future is first polled. Cancel safe.
    ///
    /// # Errors
    ///
    /// If an informer has no list in time, or ends.
    pub fn synced(&self) -> impl Future<Output = Result<(), Error>> + Send + use<K> {
        let limit = self.parts.settings.sync_timeout;
        synced(self.name(), self.sources(), limit)
    }

    /// Like [`Controller::run`], with a `stop` of any output, such as
    /// [`Signals::next`](kubefan_core::shutdown::Signals::next). The `stop` of `run` has no output,
    /// so that the type of `std::future::pending()` need not be written.
    ///
    /// ```no_run
    /// # use kubefan::controller::{Controller, Error, Reconciler};
    /// # use kubefan::shutdown::Signals;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # async fn run(controller: Controller<Pod>, reconciler: impl Reconciler) -> Result<(), Error> {
    /// let mut signals = Signals::of_process().expect("signal handlers");
    /// controller.run_until(reconciler, signals.next()).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Controller::run`].
    ///
    /// # Panics
    ///
    /// As for [`Controller::run`].
    pub async fn run_until<R: Reconciler>(
        self,
        reconciler: R,
        stop: impl Future + Send,
    ) -> Result<(), Error> {
        let stop = async { drop(stop.await) };
        self.run(reconciler, stop).await
    }

    /// Waits for the informers' first lists, and then reconciles until `stop` completes, or a drain
    /// of the controller's shutdown begins. Then waits for the running reconciles.
    ///
    /// A reconcile that fails or panics is repeated after the object's backoff. These changes end
    /// the backoff at once: the primary object was added or deleted, its `generation` or labels
    /// changed, or its deletion was requested. If the object has no generation, any change of it
    /// ends the backoff. The next reconcile, when the backoff ends, sees all other changes.
    ///
    /// Dropping the future drops the running reconciles at their next await point.
    ///
    /// # Errors
    ///
    /// If an informer has no list in time or ends, if a predicate or mapping panics, or if a
    /// reconcile does not end in time after the stop.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// See also [`Controller::run_until`].
    pub async fn run<R: Reconciler>(
        self,
        reconciler: R,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), Error> {
        let mut sources = self.others;
        sources.insert(0, Box::new(self.primary));
        run(self.parts, sources, reconciler, stop).await
    }
}

async fn run<R: Reconciler>(
    parts: Parts,
    sources: Vec<Box<dyn Source>>,
    reconciler: R,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let (name, settings, shutdown) = (parts.name, parts.settings, parts.shutdown);
    let queues = parts.metrics.as_ref().map(|metrics| &metrics.queues);
    let queue = WorkQueue::new(work_queue::Config {
        rate_limiter: parts.rate_limiter,
        metrics: queues.map(|queues| queues.queue(&name)),
        ..work_queue::Config::default()
    });
    let mut stop = pin!(stop_or_drain(stop, &shutdown));
    let synced = synced(
        &name,
        sources.iter().map(AsRef::as_ref),
        settings.sync_timeout,
    );
    let mut pumps: FuturesUnordered<_> = sources
        .into_iter()
        .map(|source| source.pump(name.clone(), queue.clone()))
        .collect();
    // There is at least the source of the primary objects, so `Some` is the first end of a source.
    tokio::select! {
        biased;
        () = &mut stop => return Ok(()),
        Some(error) = pumps.next() => return Err(error),
        synced = synced => synced?,
    }
    tracing::info!(controller = name, "the controller starts");
    let max = settings.max_concurrent_reconciles;
    let shared = Arc::new(Shared {
        metrics: parts.metrics.map(|metrics| metrics.controller(&name, max)),
        name: name.clone(),
        reconciler,
        queue: queue.clone(),
    });
    let mut workers = Workers::start(&shared, max, &shutdown);
    let ended = tokio::select! {
        biased;
        () = stop => Ok(()),
        Some(error) = pumps.next() => Err(error),
    };
    drop(pumps);
    let limit = stop_timeout(settings, &shutdown);
    let finished = workers.finish(&name, &queue, settings.drains, limit).await;
    tracing::info!(controller = name, "the controller has stopped");
    ended.and(finished)
}

/// Completes when `stop` does, or when a drain begins.
pub(crate) async fn stop_or_drain(stop: impl Future, shutdown: &Shutdown) {
    tokio::select! {
        _ = stop => {}
        () = shutdown.draining() => {}
    }
}

/// Returns how long the running reconciles may take from now on.
fn stop_timeout(settings: Settings, shutdown: &Shutdown) -> Duration {
    if shutdown.is_draining() {
        let left = shutdown.grace().saturating_sub(DRAIN_RESERVE);
        settings.stop_timeout.min(left)
    } else {
        settings.stop_timeout
    }
}

/// Waits until all `sources` have a complete list.
fn synced<'a>(
    name: &str,
    sources: impl Iterator<Item = &'a dyn Source>,
    limit: Duration,
) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    let controller = name.to_owned();
    let waits: Vec<_> = sources
        .map(|source| (source.resource(), source.synced()))
        .collect();
    Box::pin(async move {
        let deadline = Instant::now() + limit.min(LONGEST_TIMEOUT);
        for (resource, synced) in waits {
            match timeout_at(deadline, synced).await {
                Ok(true) => {}
                Ok(false) => {
                    return Err(Error::InformerEnded {
                        controller,
                        resource,
                    });
                }
                Err(_) => {
                    return Err(Error::NotSynced {
                        controller,
                        resource,
                        limit,
                    });
                }
            }
        }
        Ok(())
    })
}

// === impl Shared ===

impl<R: Reconciler> Shared<R> {
    /// Reconciles until the queue has ended, or until the value of `stopped` is true.
    async fn work(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        loop {
            let work = tokio::select! {
                biased;
                Ok(_) = stopped.wait_for(|stopped| *stopped) => return,
                work = self.queue.get() => work,
            };
            match work {
                Some(work) => self.reconcile(work).await,
                None => return,
            }
        }
    }

    async fn reconcile(&self, work: Work<Request>) {
        let started = Instant::now();
        let active = self.metrics.as_ref().map(ControllerMetrics::active);
        let request = work.key();
        let controller = &self.name;
        tracing::debug!(controller, %request, "a reconcile begins");
        // The call itself may panic, too, before there is a future.
        let call = async { self.reconciler.reconcile(request.clone()).await };
        let result = AssertUnwindSafe(call).catch_unwind().await;
        tracing::debug!(controller, %request, "a reconcile ends");
        let retry = AddOptions {
            priority: work.priority(),
            ..AddOptions::default()
        };
        let rate_limited = AddOptions {
            is_rate_limited: true,
            ..retry
        };
        let (outcome, again) = match result {
            Ok(Ok(Action::Done)) => (Outcome::Success, None),
            Ok(Ok(Action::Requeue)) => (Outcome::Requeue, Some(rate_limited)),
            Ok(Ok(Action::RequeueAfter(after))) => {
                (Outcome::RequeueAfter, Some(AddOptions { after, ..retry }))
            }
            Ok(Err(error)) => {
                tracing::warn!(controller, %request, %error, "a reconcile failed, and is repeated");
                (Outcome::Error, Some(rate_limited))
            }
            Err(_panic) => {
                tracing::error!(controller, %request, "a reconcile panicked, and is repeated");
                (Outcome::Panic, Some(rate_limited))
            }
        };
        if again.is_none_or(|again| !again.is_rate_limited) {
            self.queue.forget(request);
        }
        if let Some(again) = again {
            self.queue.add_with(request.clone(), again);
        }
        drop(active);
        drop(work);
        if let Some(metrics) = &self.metrics {
            metrics.ended(outcome, started.elapsed());
        }
    }
}

// === impl Workers ===

impl Workers {
    /// Starts `count` workers as tasks of `shutdown`.
    fn start<R: Reconciler>(shared: &Arc<Shared<R>>, count: usize, shutdown: &Shutdown) -> Self {
        let (stop, stopped) = watch::channel(false);
        let spawn = |_| shutdown.spawn(Arc::clone(shared).work(stopped.clone()));
        Self {
            tasks: (0..count).map(spawn).collect(),
            stop,
        }
    }

    /// Waits until the running reconciles have ended, at most for `limit`. If the queue `drains`,
    /// also waits for its requests.
    async fn finish(
        &mut self,
        controller: &str,
        queue: &WorkQueue<Request>,
        drains: bool,
        limit: Duration,
    ) -> Result<(), Error> {
        let finished = async {
            if drains {
                queue.shut_down_with_drain().await;
            }
            queue.shut_down();
            self.stop.send_replace(true);
            for task in &mut self.tasks {
                // Unexpected: a panic of a reconcile is caught before it gets here, and workers are
                // aborted only later: after the time limit, or when this value is dropped.
                if let Err(error) = task.await {
                    tracing::error!(controller, %error, "a worker failed");
                }
            }
        };
        if timeout(limit, finished).await.is_ok() {
            return Ok(());
        }
        self.stop.send_replace(true);
        // Workers that only wait for a key end after this stop.
        tokio::task::yield_now().await;
        let reconciles = self.running();
        self.abort();
        let aborted = async {
            for task in self.tasks.iter_mut().filter(|task| !task.is_finished()) {
                // The task ends with the error that it was aborted.
                let _ = task.await;
            }
        };
        // If this takes too long, the returned error has the number of reconciles that still run.
        let _ = timeout(ABORT_TIMEOUT, aborted).await;
        Err(Error::Unfinished {
            controller: controller.to_owned(),
            reconciles,
            running: self.running(),
            limit,
        })
    }

    /// Counts the workers that have not ended.
    fn running(&self) -> usize {
        self.tasks.iter().filter(|task| !task.is_finished()).count()
    }

    fn abort(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.abort();
    }
}
