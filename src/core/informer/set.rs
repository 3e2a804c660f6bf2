//! The set of informers: at most one per resource, wire format and scope.
//!
//! `server` starts informers, `app` pins them, and the live REST mapper stops and relists them.

mod changes;
mod key;
mod numbering;
mod refusals;
mod required;
mod samples;
mod scope;
mod start;

use std::sync::Arc;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use key::Key;
use parking_lot::Mutex;
use required::RequiredInformer;
pub use required::Requirement;
use scope::{part_in, upstream_scope};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::reflector::WatchLists;
use super::{BridgeLimits, Config, Hooks, Informer, InformerSpec, ObjectContent};
use crate::api::Selection;
use crate::cache::EvictedBytes;
use crate::shutdown::Shutdown;
use crate::upstream::{Client, Warnings};

/// Why [`InformerSet::get_or_start`] returns no informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The API server does not allow kubefan's identity to list or watch the resource (403), or has
    /// not accepted its credentials for a long time (401).
    #[error("kubefan may not list and watch the resource")]
    Forbidden,
    /// The API server does not serve the resource in this wire format (406).
    #[error("the API server does not serve the resource in this format")]
    NotAcceptable,
    /// The API server does not have the resource (404), even if discovery lists it; or the
    /// informer was started from an outdated definition, and stops.
    #[error("the API server does not have the resource")]
    Gone,
    /// kubefan is shutting down and starts no more informers.
    #[error("kubefan is shutting down")]
    ShuttingDown,
}

/// All informers of this process. Clones share the set.
#[derive(Clone)]
pub struct InformerSet {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    config: ArcSwap<Config>,
    shutdown: Shutdown,
    informers: DashMap<Key, Arc<Informer>>,
    refusals: DashMap<Key, (StartError, Instant)>,
    required: Mutex<Vec<RequiredInformer>>,
    /// Held while an informer with a transform starts, so that no two get the same number.
    numbering: Mutex<()>,
    bridge_limits: Arc<BridgeLimits>,
    evicted: EvictedBytes,
    /// Notified when the API server has ended a watch of a custom resource early.
    early_end: Notify,
    watch_lists: WatchLists,
}

// === impl InformerSet ===

impl InformerSet {
    /// An empty set whose informers call the API server through `client`.
    pub fn new(client: Client, config: Config, shutdown: Shutdown) -> Self {
        let evicted = EvictedBytes::default();
        let bridge_limits = BridgeLimits::new(config.bridge_bytes, evicted.clone());
        let inner = Inner {
            client,
            config: ArcSwap::from_pointee(config),
            shutdown,
            informers: DashMap::new(),
            refusals: DashMap::new(),
            required: Mutex::default(),
            numbering: Mutex::default(),
            bridge_limits: Arc::new(bridge_limits),
            evicted,
            early_end: Notify::new(),
            watch_lists: WatchLists::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The informer that can answer for `namespace` (`None`: all namespaces). Starts one if
    /// necessary; it need not be ready yet.
    ///
    /// A cluster-wide informer is preferred. If the API server forbids it, a request for one
    /// namespace gets an informer of that namespace.
    ///
    /// # Errors
    ///
    /// [`StartError`] if the API server refused the informer a short time ago, if the definition of
    /// the resource has just changed, or if kubefan is shutting down.
    pub fn get_or_start(
        &self,
        spec: &InformerSpec,
        namespace: Option<&str>,
    ) -> Result<Arc<Informer>, StartError> {
        self.get_or_start_in(spec, &Selection::default(), namespace)
    }

    /// Like [`InformerSet::get_or_start`], for the objects of `scope`.
    ///
    /// # Errors
    ///
    /// As for [`InformerSet::get_or_start`].
    pub fn get_or_start_in(
        &self,
        spec: &InformerSpec,
        scope: &Selection,
        namespace: Option<&str>,
    ) -> Result<Arc<Informer>, StartError> {
        let part = part_in(scope, namespace.filter(|_| spec.resource.namespaced));
        // After a refusal is forgotten, another request may start the wider informer again. During an
        // outage that one does not become ready, while the one of the namespace can still answer.
        if let Some(part) = &part
            && self.ready(spec, scope).is_none()
            && let Some(informer) = self.ready(spec, part)
        {
            return Ok(informer);
        }
        match (self.get_or_start_scope(spec, scope.clone()), part) {
            (Err(StartError::Forbidden), Some(part)) => self.get_or_start_scope(spec, part),
            (outcome, _) => outcome,
        }
    }

    /// An informer whose cache has this `content` of the objects of `selection`, and perhaps other
    /// objects, or more of them. Any running one is shared whose scope
    /// [contains](Selection::contains) `selection`. Otherwise one of exactly these objects is started:
    /// the API server is asked only for the namespace, labels and fields of `selection`, but for all
    /// shards, because it may ignore them.
    ///
    /// # Errors
    ///
    /// As for [`InformerSet::get_or_start`].
    pub fn get_or_start_for(
        &self,
        spec: &InformerSpec,
        selection: &Selection,
        content: ObjectContent,
    ) -> Result<Arc<Informer>, StartError> {
        self.get_or_start_with(spec, selection, content, &Hooks::default())
    }

    /// Like [`InformerSet::get_or_start_for`], with hooks of its own. If they have a transform, it is
    /// called instead of that of [`Config::hooks`], and the cache is shared only with the same
    /// transform. Their failure handler is called, beside others, as long as a clone of `hooks` exists.
    /// Hooks that are those of [`Config::hooks`] count as none.
    ///
    /// # Errors
    ///
    /// As for [`InformerSet::get_or_start`].
    pub fn get_or_start_with(
        &self,
        spec: &InformerSpec,
        selection: &Selection,
        content: ObjectContent,
        hooks: &Hooks,
    ) -> Result<Arc<Informer>, StartError> {
        let hooks = &self.own_hooks(hooks);
        let can_share = |informer: &Arc<Informer>| {
            informer.resource().gvr == spec.resource.gvr
                && informer.format() == spec.format
                && informer.fits(spec)
                && [content, ObjectContent::Whole].contains(&informer.content())
                && informer.own_transform() == hooks.transform_id()
                && informer.scope().contains(selection)
        };
        if let Some(informer) = self.all().into_iter().find(can_share) {
            informer.touch();
            informer.hooks().add_failure_handler(hooks);
            return Ok(informer);
        }
        self.get_or_start_content(spec, upstream_scope(spec, selection), content, hooks)
    }

    /// `hooks` without those of [`Config::hooks`], which all informers have.
    #[doc(hidden)]
    pub fn own_hooks(&self, hooks: &Hooks) -> Hooks {
        hooks.without(&self.inner.config.load().hooks)
    }

    /// The `Warning` headers that the API server sent with its answers to informers.
    pub fn warnings(&self) -> &Warnings {
        self.inner.client.warnings()
    }

    /// False while the API server does not respond; see [`Client::is_responding`].
    pub fn is_upstream_responding(&self) -> bool {
        self.inner.client.is_responding()
    }

    /// The limits and counters of the bridges of all informers.
    pub fn bridge_limits(&self) -> &BridgeLimits {
        &self.inner.bridge_limits
    }

    /// Upper limit of the bytes of the queues of each cache.
    pub fn queue_limit(&self) -> usize {
        self.inner.config.load().groups.queue_bytes
    }

    /// The bytes of events that the caches no longer have and that clients' watches still hold.
    pub fn evicted_bytes(&self) -> &EvictedBytes {
        &self.inner.evicted
    }

    /// A ready informer for `namespace` (`None`: all), preferably the cluster-wide one. Starts
    /// none.
    pub fn get_ready(&self, spec: &InformerSpec, namespace: Option<&str>) -> Option<Arc<Informer>> {
        self.get_ready_in(spec, &Selection::default(), namespace)
    }

    /// Like [`InformerSet::get_ready`], for the objects of `scope`.
    pub fn get_ready_in(
        &self,
        spec: &InformerSpec,
        scope: &Selection,
        namespace: Option<&str>,
    ) -> Option<Arc<Informer>> {
        let of_part = || self.ready(spec, &part_in(scope, namespace)?);
        self.ready(spec, scope).or_else(of_part)
    }

    /// The informer of exactly the objects of `scope`, if it is ready.
    fn ready(&self, spec: &InformerSpec, scope: &Selection) -> Option<Arc<Informer>> {
        let informer = self.running(&Key::of(spec, scope, ObjectContent::Whole, None))?;
        let can_answer = informer.reader().is_ready() && informer.fits(spec);
        can_answer.then(|| {
            informer.touch();
            informer
        })
    }

    /// Starts a cluster-wide informer that is never stopped for being idle.
    ///
    /// # Errors
    ///
    /// The same errors as [`InformerSet::get_or_start`].
    pub fn pin(&self, spec: &InformerSpec) -> Result<Arc<Informer>, StartError> {
        self.pin_scope(spec, &Selection::default())
    }

    /// Starts informers of all objects that may be cached. They are never stopped for being idle.
    ///
    /// # Errors
    ///
    /// The same errors as [`InformerSet::get_or_start`]; the first one if there are several.
    pub fn pin_scopes(&self, spec: &InformerSpec) -> Result<(), StartError> {
        let scopes = spec.settings.scopes().iter();
        let pinned: Vec<_> = scopes.map(|scope| self.pin_scope(spec, scope)).collect();
        pinned.into_iter().try_for_each(|pinned| pinned.map(drop))
    }

    fn pin_scope(
        &self,
        spec: &InformerSpec,
        scope: &Selection,
    ) -> Result<Arc<Informer>, StartError> {
        let informer = self.get_or_start_scope(spec, scope.clone())?;
        informer.pin();
        Ok(informer)
    }

    /// Applies what can change in `config` while informers run: freshness, idle timeout and maximum
    /// staleness. Settings of single resources are not concerned.
    pub fn set_config(&self, config: &Config) {
        let current = self.inner.config.load();
        self.inner.config.store(Arc::new(Config {
            freshness: config.freshness.clone(),
            idle_timeout: config.idle_timeout,
            max_staleness: config.max_staleness,
            ..Config::clone(&current)
        }));
    }

    /// Applies the settings in `spec`, the newest of the resource, to `informer`. If that is possible
    /// only with another cache, it is stopped, and the next request starts its successor.
    pub(super) fn update(&self, informer: &Informer, spec: &InformerSpec) {
        match spec.settings.caches_like(informer.settings()) {
            true => informer.set_freshness(self.inner.config.load().freshness_of(spec)),
            false => informer.stop(),
        }
    }

    /// All running informers, in arbitrary order.
    pub fn all(&self) -> Vec<Arc<Informer>> {
        let entries = self.inner.informers.iter();
        entries.map(|entry| Arc::clone(&entry)).collect()
    }

    fn get_or_start_scope(
        &self,
        spec: &InformerSpec,
        scope: Selection,
    ) -> Result<Arc<Informer>, StartError> {
        self.get_or_start_content(spec, scope, ObjectContent::Whole, &Hooks::default())
    }

    /// The running informer `key`. It is a clone, so that no lock of the map is held while it is used.
    fn running(&self, key: &Key) -> Option<Arc<Informer>> {
        let entry = self.inner.informers.get(key)?;
        Some(Arc::clone(&entry))
    }
}

#[cfg(test)]
mod tests;
