//! The set of informers: at most one per resource, wire format and scope.
//!
//! `server` starts informers, `app` pins them, and the live REST mapper stops and relists them.

mod changes;
mod definition_changes;
mod key;
mod numbering;
mod refusals;
mod required;
mod samples;
mod scope;
mod start;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use definition_changes::DefinitionChanges;
use key::Key;
use parking_lot::Mutex;
use required::RequiredInformer;
pub use required::Requirement;
use scope::{part_in, upstream_scope, whole_or_part};
use start::Registered;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::reflector::WatchLists;
use super::{BridgeLimits, Config, Hooks, Informer, InformerSpec, ObjectContent, RecentRecoveries};
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
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    client: Client,
    config: ArcSwap<Config>,
    shutdown: Shutdown,
    informers: DashMap<Key, Arc<Informer>>,
    refusals: DashMap<Key, (StartError, Instant)>,
    required: Mutex<Vec<RequiredInformer>>,
    /// Held while an informer with a transform starts, so that no two informers get the same
    /// number.
    numbering: Mutex<()>,
    bridge_limits: Arc<BridgeLimits>,
    evicted: EvictedBytes,
    /// Notified when the API server has ended a watch of a custom resource early.
    pub(super) early_end: Notify,
    pub(super) watch_lists: WatchLists,
    recoveries: Arc<RecentRecoveries>,
    pub(super) definition_changes: DefinitionChanges,
    /// Notified when an informer may need a relist because of a doubt.
    pub(super) doubted: Notify,
}

// === impl InformerSet ===

impl InformerSet {
    /// Creates an empty set. Its informers will call the API server through `client`.
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
            recoveries: Arc::default(),
            definition_changes: DefinitionChanges::default(),
            doubted: Notify::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the informer that can answer for `namespace` (`None`: all namespaces). Starts one if
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

    /// Does what [`InformerSet::get_or_start`] does, but only for the objects of `scope`.
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
        whole_or_part(
            scope,
            part_in(scope, namespace.filter(|_| spec.resource.namespaced)),
            |objects| self.ready(spec, objects),
            |objects| self.get_or_start_scope(spec, objects.clone()),
        )
    }

    /// Returns what [`InformerSet::get_or_start_in`] would return now, but starts and stops no
    /// informer, and does not count as a use of one. Returns `None` if it would start one.
    ///
    /// # Errors
    ///
    /// As for [`InformerSet::get_or_start`].
    pub fn peek_or_start_in(
        &self,
        spec: &InformerSpec,
        scope: &Selection,
        namespace: Option<&str>,
    ) -> Result<Option<Arc<Informer>>, StartError> {
        whole_or_part(
            scope,
            part_in(scope, namespace.filter(|_| spec.resource.namespaced)),
            |objects| self.ready_unused(spec, objects).map(Some),
            |objects| {
                let key = Key::of(spec, objects, ObjectContent::Whole, None);
                match self.registered(&key, spec) {
                    Registered::Running(informer) => Ok(Some(informer)),
                    Registered::Outdated(_) => Err(StartError::Gone),
                    Registered::Refused(refusal) => Err(refusal),
                    Registered::Startable => Ok(None),
                }
            },
        )
    }

    /// Returns an informer with a cache of at least this `content` of the objects of `selection`. A
    /// running informer is shared if its scope [contains](Selection::contains) `selection`.
    /// Otherwise an informer of `selection` is started. It asks the API server only for the
    /// namespace, labels and fields of `selection`, but for all shards, because an API server may
    /// ignore shards.
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

    /// Does what [`InformerSet::get_or_start_for`] does, for an informer with `hooks`. A transform
    /// in `hooks` is called instead of the transform of [`Config::hooks`], and the cache is shared
    /// only with callers that pass a clone of this transform. A failure handler in `hooks` is
    /// called in addition to others, as long as a clone of `hooks` exists. Hooks that
    /// [`Config::hooks`] has too are ignored.
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
                && informer.own_transform.map(|own| own.id) == hooks.transform_id()
                && informer.scope().contains(selection)
        };
        if let Some(informer) = self.all().into_iter().find(can_share) {
            informer.touch();
            informer.hooks.add_failure_handler(hooks);
            return Ok(informer);
        }
        self.get_or_start_content(spec, upstream_scope(spec, selection), content, hooks)
    }

    /// Returns `hooks` without those of [`Config::hooks`], which all informers have.
    #[doc(hidden)]
    pub fn own_hooks(&self, hooks: &Hooks) -> Hooks {
        hooks.without(&self.inner.config.load().hooks)
    }

    /// Returns the `Warning` headers that the API server sent with its answers to informers.
    pub fn warnings(&self) -> &Warnings {
        self.inner.client.warnings()
    }

    /// Returns false while the API server does not respond; see [`Client::is_responding`].
    pub fn is_upstream_responding(&self) -> bool {
        self.inner.client.is_responding()
    }

    /// Returns how often the API server has refused kubefan's credentials; see
    /// [`Client::refused_credentials`].
    pub fn refused_credentials(&self) -> u64 {
        self.inner.client.refused_credentials()
    }

    /// Returns the last recoveries of all informers.
    pub fn recoveries(&self) -> &RecentRecoveries {
        &self.inner.recoveries
    }

    /// Returns [`Config::max_staleness`].
    pub fn max_staleness(&self) -> Option<Duration> {
        self.inner.config.load().max_staleness
    }

    /// Returns the limits and counters of the bridges of all informers.
    pub fn bridge_limits(&self) -> &BridgeLimits {
        &self.inner.bridge_limits
    }

    /// Returns an upper limit of the bytes of the queues of each cache.
    pub fn queue_limit(&self) -> usize {
        self.inner.config.load().groups.queue_bytes
    }

    /// Returns the bytes of events that the caches have dropped and that
    /// clients' watches still hold.
    pub fn evicted_bytes(&self) -> &EvictedBytes {
        &self.inner.evicted
    }

    /// Returns a ready informer for `namespace` (`None`: all namespaces), preferably the
    /// cluster-wide informer. Starts no informer.
    pub fn get_ready(&self, spec: &InformerSpec, namespace: Option<&str>) -> Option<Arc<Informer>> {
        self.get_ready_in(spec, &Selection::default(), namespace)
    }

    /// Does what [`InformerSet::get_ready`] does, but only for the objects of `scope`.
    pub fn get_ready_in(
        &self,
        spec: &InformerSpec,
        scope: &Selection,
        namespace: Option<&str>,
    ) -> Option<Arc<Informer>> {
        let of_part = || self.ready(spec, &part_in(scope, namespace)?);
        self.ready(spec, scope).or_else(of_part)
    }

    /// Returns the informer of exactly the objects of `scope`, if it is ready.
    fn ready(&self, spec: &InformerSpec, scope: &Selection) -> Option<Arc<Informer>> {
        self.ready_unused(spec, scope)
            .inspect(|informer| informer.touch())
    }

    /// Does what [`InformerSet::ready`] does, but does not count as a use of the informer.
    fn ready_unused(&self, spec: &InformerSpec, scope: &Selection) -> Option<Arc<Informer>> {
        let informer = self.running(&Key::of(spec, scope, ObjectContent::Whole, None))?;
        let can_answer = informer.reader().is_ready() && informer.fits(spec);
        can_answer.then_some(informer)
    }

    /// Does what [`InformerSet::get_ready`] does, but does not count as a use of the informer.
    pub fn peek(&self, spec: &InformerSpec, namespace: Option<&str>) -> Option<Arc<Informer>> {
        self.peek_in(spec, &Selection::default(), namespace)
    }

    /// Does what [`InformerSet::get_ready_in`] does, but does not count as a use of the informer.
    pub fn peek_in(
        &self,
        spec: &InformerSpec,
        scope: &Selection,
        namespace: Option<&str>,
    ) -> Option<Arc<Informer>> {
        let of_part = || self.ready_unused(spec, &part_in(scope, namespace)?);
        self.ready_unused(spec, scope).or_else(of_part)
    }

    /// Returns true if the freshness policy of the caches of `spec` serves sessions.
    pub fn serves_sessions(&self, spec: &InformerSpec) -> bool {
        self.inner.config.load().freshness_of(spec) == super::FreshnessPolicy::Session
    }

    /// Returns true if each read of the most recent state must be as fresh as its request.
    pub fn is_strict(&self, spec: &InformerSpec) -> bool {
        self.inner.config.load().freshness_of(spec) == super::FreshnessPolicy::Strict
    }

    /// Starts a cluster-wide informer that is never stopped for being idle.
    ///
    /// # Errors
    ///
    /// As for [`InformerSet::get_or_start`].
    pub fn pin(&self, spec: &InformerSpec) -> Result<Arc<Informer>, StartError> {
        self.pin_scope(spec, &Selection::default())
    }

    /// Starts informers of all objects that may be cached. These informers are never
    /// stopped for being idle.
    ///
    /// # Errors
    ///
    /// As for [`InformerSet::get_or_start`]. If several informers can't be started, returns the
    /// first error.
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

    /// Applies the settings of `config` that can change while informers run: freshness, idle
    /// timeout and maximum staleness. Settings of individual resources are not changed.
    pub fn set_config(&self, config: &Config) {
        let current = self.inner.config.load();
        self.inner.config.store(Arc::new(Config {
            freshness: config.freshness.clone(),
            idle_timeout: config.idle_timeout,
            max_staleness: config.max_staleness,
            ..Config::clone(&current)
        }));
    }

    /// Applies the newest settings of the resource, which are in `spec`, to `informer`. If they
    /// need another cache, stops the informer; the next request starts its successor.
    pub(super) fn update(&self, informer: &Informer, spec: &InformerSpec) {
        if spec.settings.caches_like(&informer.spec.settings) {
            let policy = self.inner.config.load().freshness_of(spec);
            informer.freshness.set_policy(policy)
        } else {
            informer.stop()
        }
    }

    /// Returns all running informers, in arbitrary order.
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

    /// Returns the running informer `key`. The handle is a clone, so that the caller
    /// holds no lock of the map.
    fn running(&self, key: &Key) -> Option<Arc<Informer>> {
        let entry = self.inner.informers.get(key)?;
        Some(Arc::clone(&entry))
    }
}

#[cfg(test)]
mod tests;
