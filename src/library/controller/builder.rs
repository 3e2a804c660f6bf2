//! Controller: which objects it watches, and how it reconciles them.

use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kubefan_core::api;
use kubefan_core::shutdown::Shutdown;
use serde::de::DeserializeOwned;

use super::source::{InformerSource, Source, controller_of, itself, may_mend};
use super::{Metrics, Predicate, Request};
use crate::shared_informer::SharedInformer;
use crate::work_queue::{RateLimiter, default_rate_limiter};

/// How long the informers may take to have a complete list.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// How long running reconciles may take after the stop. A pod has 30 s, and the Lease is given back
/// after the reconciles.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Reconciles the objects of one resource, the *primary* resource. The objects have the type `K`.
///
/// A controller does nothing until [`Controller::run`](Self::run).
pub struct Controller<K> {
    pub(super) parts: Parts,
    pub(super) primary: InformerSource<K>,
    pub(super) others: Vec<Box<dyn Source>>,
}

/// The settings that are plain values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) max_concurrent_reconciles: usize,
    pub(super) sync_timeout: Duration,
    pub(super) stop_timeout: Duration,
    pub(super) drains: bool,
}

/// What a run needs, without the type of the primary objects.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) shutdown: Shutdown,
    pub(super) settings: Settings,
    pub(super) rate_limiter: Box<dyn RateLimiter<Request>>,
    pub(super) metrics: Option<Metrics>,
}

// === impl Controller ===

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    /// Creates a controller of the objects of `informer`. `name` is its name in logs and metrics.
    /// Its workers belong to `shutdown`.
    pub fn new(name: impl Into<String>, informer: &SharedInformer<K>, shutdown: Shutdown) -> Self {
        let settings = Settings {
            max_concurrent_reconciles: 1,
            sync_timeout: SYNC_TIMEOUT,
            stop_timeout: STOP_TIMEOUT,
            drains: false,
        };
        Self {
            parts: Parts {
                name: name.into(),
                shutdown,
                settings,
                rate_limiter: Box::new(default_rate_limiter()),
                metrics: None,
            },
            primary: InformerSource {
                informer: informer.clone(),
                predicate: None,
                mapping: Arc::new(itself),
                mends: Some(may_mend()),
                resync: None,
            },
            others: Vec::new(),
        }
    }

    /// Ignores the changes of primary objects that `predicate` does not accept. Default accepts
    /// all.
    #[must_use]
    pub fn with_predicate(mut self, predicate: Predicate<K>) -> Self {
        self.primary.predicate = Some(predicate);
        self
    }

    /// Requests all primary objects again after each `interval`, with [`LOW_PRIORITY`]. The
    /// interval is raised to [`shared_informer::Config::LEAST_RESYNC`] if it is shorter. A
    /// predicate has to accept these updates, too. Default is never.
    ///
    /// [`LOW_PRIORITY`]: super::LOW_PRIORITY
    /// [`shared_informer::Config::LEAST_RESYNC`]: crate::shared_informer::Config::LEAST_RESYNC
    #[must_use]
    pub fn with_resync(mut self, interval: Duration) -> Self {
        self.primary.resync = Some(interval);
        self
    }

    /// Reconciles a primary object after each change of an object of `informer` that the primary
    /// object owns as controller, if `predicate` accepts the change. `None` accepts all changes.
    #[must_use]
    pub fn owns<O>(self, informer: &SharedInformer<O>, predicate: Option<Predicate<O>>) -> Self
    where
        O: Resource + DeserializeOwned + Send + Sync + 'static,
    {
        let primary: Arc<api::Resource> = Arc::clone(self.primary.informer.resource());
        self.watches(informer, predicate, move |object| {
            controller_of(object, &primary)
        })
    }

    /// Reconciles the primary objects that `mapping` returns for a changed object of `informer`, if
    /// `predicate` accepts the change. `None` accepts all changes. After an update, reconciles the
    /// primary objects for both states, before and after. `mapping` must not block.
    #[must_use]
    pub fn watches<O>(
        mut self,
        informer: &SharedInformer<O>,
        predicate: Option<Predicate<O>>,
        mapping: impl Fn(&O) -> Vec<Request> + Send + Sync + 'static,
    ) -> Self
    where
        O: Resource + DeserializeOwned + Send + Sync + 'static,
    {
        self.others.push(Box::new(InformerSource {
            informer: informer.clone(),
            predicate,
            mapping: Arc::new(mapping),
            mends: None,
            resync: None,
        }));
        self
    }

    /// Sets how many objects are reconciled at once. Default is 1, which is also the minimum.
    #[must_use]
    pub fn max_concurrent_reconciles(mut self, max: usize) -> Self {
        self.parts.settings.max_concurrent_reconciles = max.max(1);
        self
    }

    /// Sets how long an object waits after each failure. Default is [`default_rate_limiter`].
    #[must_use]
    pub fn with_rate_limiter(mut self, limiter: impl RateLimiter<Request>) -> Self {
        self.parts.rate_limiter = Box::new(limiter);
        self
    }

    /// Counts reconciles in `metrics`. Default is not to count them.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.parts.metrics = Some(metrics.clone());
        self
    }

    /// Sets how long the informers may take to have a complete list. Default is 2 minutes.
    #[must_use]
    pub fn with_sync_timeout(mut self, timeout: Duration) -> Self {
        self.parts.settings.sync_timeout = timeout;
        self
    }

    /// Sets how long reconciles may take to end after the stop. Default is 20 s. In a drain of the
    /// controller's shutdown, reconciles must end at the latest 5 s before the end of the
    /// [grace period](kubefan_core::shutdown::Config::grace).
    #[must_use]
    pub fn with_stop_timeout(mut self, timeout: Duration) -> Self {
        self.parts.settings.stop_timeout = timeout;
        self
    }

    /// If `drains` is true, first reconciles the objects that wait for a reconcile at the stop,
    /// within the time limit of [`Controller::with_stop_timeout`]. Objects in backoff or with a
    /// delay are not reconciled. Default is false.
    #[must_use]
    pub fn drain_on_stop(mut self, drains: bool) -> Self {
        self.parts.settings.drains = drains;
        self
    }

    /// Returns the name of the controller.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Returns the informers that the controller reads.
    pub(super) fn sources(&self) -> impl Iterator<Item = &dyn Source> {
        let primary: &dyn Source = &self.primary;
        std::iter::once(primary).chain(self.others.iter().map(AsRef::as_ref))
    }
}

debug_fields!([K] Controller<K>, |it| name: it.parts.name, settings: it.parts.settings);
