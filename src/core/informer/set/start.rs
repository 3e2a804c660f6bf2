//! Makes an informer, registers it in the set, and runs it.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::Instrument;

use super::key::Key;
use super::{InformerSet, StartError};
use crate::api::Selection;
use crate::cache;
use crate::cache::Writer;
use crate::codec::Decoder;
use crate::informer::bridges::Bridges;
use crate::informer::freshness::SETTLED_AFTER;
use crate::informer::informer::OwnTransform;
use crate::informer::reflector::RecoveryLog;
use crate::informer::{
    CacheName, Config, Freshness, Hooks, Informer, InformerSpec, ObjectContent, Reflector,
    ReflectorConfig, ReflectorMetrics, RelistRequests, Signals, relist_channel,
};
use crate::shutdown::Phase;
use crate::upstream::ResourceClient;

/// What the set has for a key.
pub(super) enum Registered {
    Running(Arc<Informer>),
    /// It was started just before the resource's definition changed, and must be stopped.
    Outdated(Arc<Informer>),
    /// None may be started now.
    Refused(StartError),
    /// None runs, and one may be started.
    Startable,
}

/// The registration of a running informer in the set. Dropping this removes the
/// informer from the set.
struct RegistrationGuard {
    set: InformerSet,
    key: Key,
    informer: Arc<Informer>,
}

// === impl InformerSet ===

impl InformerSet {
    /// Returns the informer that is registered for these objects, or a new one.
    pub(super) fn get_or_start_content(
        &self,
        spec: &InformerSpec,
        scope: Selection,
        content: ObjectContent,
        hooks: &Hooks,
    ) -> Result<Arc<Informer>, StartError> {
        let key = Key::of(spec, &scope, content, hooks.transform_id());
        match self.registered(&key, spec) {
            Registered::Running(informer) => {
                informer.touch();
                informer.hooks.add_failure_handler(hooks);
                return Ok(informer);
            }
            Registered::Outdated(informer) => {
                informer.stop();
                return Err(StartError::Gone);
            }
            Registered::Refused(refusal) => return Err(refusal),
            Registered::Startable => {}
        }
        let numbered = self.number(&key);
        let own_transform = numbered.as_ref().map(|(transform, _)| *transform);
        let (registration, reflector) = self.make(key, spec, scope, own_transform, hooks);
        let registered = self.register(&registration);
        drop(numbered);
        if !Arc::ptr_eq(&registered, &registration.informer) {
            registered.hooks.add_failure_handler(hooks);
            return Ok(registered);
        }
        // Read this after the registration, so that no change is missed.
        let gvr = &spec.resource.gvr;
        let changes = &self.inner.definition_changes;
        let changed_at = changes.before(gvr, Instant::now());
        if let Some(changed_at) = changed_at.filter(|at| at.elapsed() < SETTLED_AFTER) {
            registered.definition_changed(changed_at);
            self.inner.doubted.notify_one();
        }
        self.spawn(registration, reflector);
        Ok(registered)
    }

    /// Returns what the set has for `key`, and whether an informer of `spec` may be started.
    pub(super) fn registered(&self, key: &Key, spec: &InformerSpec) -> Registered {
        if let Some(informer) = self.running(key) {
            return if informer.fits(spec) {
                Registered::Running(informer)
            } else {
                Registered::Outdated(informer)
            };
        }
        match self.remembered_refusal(key) {
            Some(refusal) => Registered::Refused(refusal),
            None if self.inner.shutdown.phase() >= Phase::StopAccepting => {
                Registered::Refused(StartError::ShuttingDown)
            }
            None => Registered::Startable,
        }
    }

    /// Adds the informer to the map and returns it. If the map has an informer with its key
    /// already, returns that one.
    ///
    /// Nothing else is done under the map's lock. A runtime that is shutting down drops a task
    /// while it is spawned, and with it the [`RegistrationGuard`], which takes that lock too.
    fn register(&self, registration: &RegistrationGuard) -> Arc<Informer> {
        let RegistrationGuard { key, informer, .. } = registration;
        let entry = self.inner.informers.entry(key.clone());
        Arc::clone(&entry.or_insert_with(|| Arc::clone(informer)))
    }

    /// Creates an informer, but neither registers nor runs it.
    fn make(
        &self,
        key: Key,
        spec: &InformerSpec,
        scope: Selection,
        own_transform: Option<OwnTransform>,
        hooks: &Hooks,
    ) -> (RegistrationGuard, Reflector<ResourceClient>) {
        let config = self.inner.config.load_full();
        let (writer, reader) = cache::cache(self.cache_config(&config, spec));
        let metrics = Arc::<ReflectorMetrics>::default();
        let lister_watcher = self.lister_watcher(&key, spec, &metrics);
        let (relist, relists) = relist_channel();
        let freshness = Freshness::new(
            lister_watcher.clone(),
            reader.clone(),
            relist.clone(),
            config.freshness_of(spec),
            self.inner.shutdown.clone(),
        );
        let informer = Arc::new(Informer::new(
            spec.clone(),
            scope,
            key.content,
            reader,
            relist,
            Arc::clone(&metrics),
            freshness,
            self.bridges(lister_watcher.clone()),
            own_transform,
            config.hooks.for_informer(hooks, &spec.resource),
        ));
        let reflector = self.reflector(&informer, lister_watcher, writer, relists);
        let registration = RegistrationGuard {
            set: self.clone(),
            key,
            informer,
        };
        (registration, reflector.with_metrics(metrics))
    }

    fn cache_config(&self, config: &Config, spec: &InformerSpec) -> cache::Config {
        cache::Config {
            indexed_labels: config.indexed_labels.clone(),
            field_count: spec.fields.fields.len(),
            retention_age: spec.settings.retention_age.unwrap_or(config.retention_age),
            retention_bytes: spec.settings.retention_bytes.or(config.retention_bytes),
            shares_versions: spec.resource.gvr.is_events(),
            groups: config.groups,
            evicted: self.inner.evicted.clone(),
            ..cache::Config::default()
        }
    }

    fn lister_watcher(
        &self,
        key: &Key,
        spec: &InformerSpec,
        metrics: &ReflectorMetrics,
    ) -> ResourceClient {
        let decoder = Decoder::new(spec.format, Arc::clone(&spec.fields))
            .stripping_managed_fields(spec.settings.strip_managed_fields);
        let (client, resource) = (self.inner.client.clone(), Arc::clone(&spec.resource));
        ResourceClient::new(client, resource, None, spec.format, decoder)
            .in_scope(&key.scope)
            .with_metadata_only(key.content == ObjectContent::Metadata)
            .with_liveness(metrics.watch_liveness.clone())
    }

    fn bridges(&self, source: ResourceClient) -> Bridges<ResourceClient> {
        Bridges::new(
            move |scope| source.in_scope(scope),
            Arc::clone(&self.inner.bridge_limits),
            self.inner.shutdown.clone(),
        )
    }

    /// Creates the reflector of `informer`. It ends when the informer is stopped or idle.
    fn reflector(
        &self,
        informer: &Arc<Informer>,
        lister_watcher: ResourceClient,
        writer: Writer,
        relists: RelistRequests,
    ) -> Reflector<ResourceClient> {
        let config = self.inner.config.load();
        let config = ReflectorConfig {
            refusal_patience: Config::REFUSAL_PATIENCE,
            unauthorized_patience: config.max_unauthorized,
            seed: config.seed,
            expects_bookmarks: !informer.resource().gvr.is_events(),
            ..ReflectorConfig::default()
        };
        let (watched, set) = (Arc::clone(informer), self.clone());
        let idle_timeout = move || set.inner.config.load().idle_timeout;
        let signals = Signals {
            stop: Box::pin(async move { watched.stopped_or_idle(idle_timeout).await }),
            relists,
        };
        let recoveries = Arc::clone(&self.inner.recoveries);
        let recoveries = RecoveryLog::new(CacheName::of(informer), recoveries);
        let reflector = Reflector::new(lister_watcher, writer, config, signals)
            .with_recoveries(recoveries)
            .with_shape(Arc::clone(&informer.shape))
            .with_watch_lists(self.inner.watch_lists.clone())
            .with_resource_hooks(informer.hooks.clone());
        if !informer.spec.custom {
            return reflector;
        }
        let (watched, set) = (Arc::clone(informer), self.clone());
        reflector.with_early_end_hook(move || {
            watched.ended_early();
            set.inner.early_end.notify_one();
        })
    }

    fn spawn(&self, registration: RegistrationGuard, reflector: Reflector<ResourceClient>) {
        let key = &registration.key;
        let span = tracing::info_span!(
            "informer",
            resource = %key.gvr,
            format = key.format.name(),
            namespace = key.scope.namespace.as_deref().unwrap_or("*"),
            labels = key.scope.label_selector,
            fields = key.scope.field_selector,
        );
        let run = async move {
            let ended = reflector.run().await;
            registration.set.remember_refusal(&registration.key, &ended);
        };
        self.inner.shutdown.spawn_background(run.instrument(span));
    }
}

// === impl RegistrationGuard ===

impl Drop for RegistrationGuard {
    /// Removes the informer on drop, so that a reflector that panicked does not stay registered.
    /// The reflector's task drops the guard after it has remembered the refusal: in the other
    /// order, a request in between would start the informer again.
    fn drop(&mut self) {
        let is_this_one = |_: &Key, running: &Arc<Informer>| Arc::ptr_eq(running, &self.informer);
        self.set.inner.informers.remove_if(&self.key, is_this_one);
    }
}
