//! The set of informers: at most one per resource, wire format and scope.
//!
//! `server` starts informers, `app` pins them, and the live REST mapper stops and relists them.

mod changes;
mod numbering;
mod refusals;
mod required;

use std::sync::Arc;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use parking_lot::Mutex;
use required::RequiredInformer;
pub use required::Requirement;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Instrument;

use super::bridges::Bridges;
use super::hooks::TransformId;
use super::informer::OwnTransform;
use super::reflector::WatchLists;
use super::{
    BridgeLimits, Config, Freshness, Hooks, Informer, InformerSpec, ObjectContent, Reflector,
    ReflectorConfig, ReflectorMetrics, Signals, WireShape, relist_channel,
};
use crate::api::{FieldSelector, GroupVersionResource, Selection, WireFormat};
use crate::cache;
use crate::cache::EvictedBytes;
use crate::codec::Decoder;
use crate::shutdown::{Phase, Shutdown};
use crate::upstream::{Client, ResourceClient, Scope, Warnings};

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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    gvr: GroupVersionResource,
    format: WireFormat,
    scope: Scope,
    content: ObjectContent,
    /// The informer's own transform, if it has one.
    transform: Option<TransformId>,
}

/// All informers of this process. Clones share the set.
#[derive(Clone)]
pub struct InformerSet {
    inner: Arc<Inner>,
}

/// Keeps a running informer registered in the set; dropping the guard removes the informer.
struct RegistrationGuard {
    set: InformerSet,
    key: Key,
    informer: Arc<Informer>,
}

/// An informer before its task runs. If it is dropped, it is removed from the set.
struct MadeInformer {
    registration: RegistrationGuard,
    reflector: Reflector<ResourceClient>,
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

    fn get_or_start_content(
        &self,
        spec: &InformerSpec,
        scope: Selection,
        content: ObjectContent,
        hooks: &Hooks,
    ) -> Result<Arc<Informer>, StartError> {
        let key = Key::of(spec, &scope, content, hooks.transform_id());
        if let Some(informer) = self.running(&key) {
            if !informer.fits(spec) {
                // The informer was started just before the resource's definition changed.
                informer.stop();
                return Err(StartError::Gone);
            }
            informer.touch();
            informer.hooks().add_failure_handler(hooks);
            return Ok(informer);
        }
        if let Some(refusal) = self.remembered_refusal(&key) {
            return Err(refusal);
        }
        if self.inner.shutdown.phase() >= Phase::StopAccepting {
            return Err(StartError::ShuttingDown);
        }
        let numbered = self.number(&key);
        let own_transform = numbered.as_ref().map(|(transform, _)| *transform);
        let made = self.make(key, spec, scope, own_transform, hooks);
        let registered = self.register(&made);
        drop(numbered);
        if !Arc::ptr_eq(&registered, &made.registration.informer) {
            registered.hooks().add_failure_handler(hooks);
            return Ok(registered);
        }
        self.spawn(made);
        Ok(registered)
    }

    /// The running informer `key`. It is a clone, so that no lock of the map is held while it is used.
    fn running(&self, key: &Key) -> Option<Arc<Informer>> {
        let entry = self.inner.informers.get(key)?;
        Some(Arc::clone(&entry))
    }

    /// Adds the informer to the map, and returns it, or that with the same key which was added before.
    ///
    /// Only this is done under the map's lock. A runtime that is shutting down drops a task while it
    /// is spawned, and so the [`RegistrationGuard`], which takes the same lock.
    fn register(&self, made: &MadeInformer) -> Arc<Informer> {
        let RegistrationGuard { key, informer, .. } = &made.registration;
        let entry = self.inner.informers.entry(key.clone());
        Arc::clone(&entry.or_insert_with(|| Arc::clone(informer)))
    }

    /// An informer that is neither registered nor running yet.
    fn make(
        &self,
        key: Key,
        spec: &InformerSpec,
        scope: Selection,
        own_transform: Option<OwnTransform>,
        hooks: &Hooks,
    ) -> MadeInformer {
        let config = self.inner.config.load_full();
        let (writer, reader) = cache::cache(cache::Config {
            indexed_labels: config.indexed_labels.clone(),
            field_count: spec.fields.fields.len(),
            retention_age: spec.settings.retention_age.unwrap_or(config.retention_age),
            retention_bytes: spec.settings.retention_bytes.or(config.retention_bytes),
            groups: config.groups,
            evicted: self.inner.evicted.clone(),
            ..cache::Config::default()
        });
        let hooks = config.hooks.for_informer(hooks, &spec.resource);
        let freshness_policy = config.freshness_of(spec);
        let metrics = Arc::<ReflectorMetrics>::default();
        let lister_watcher = ResourceClient::new(
            self.inner.client.clone(),
            Arc::clone(&spec.resource),
            None,
            spec.format,
            Decoder::new(spec.format, Arc::clone(&spec.fields))
                .stripping_managed_fields(spec.settings.strip_managed_fields),
        )
        .in_scope(&key.scope)
        .with_metadata_only(key.content == ObjectContent::Metadata)
        .with_liveness(metrics.watch_liveness.clone());
        let (relist, relists) = relist_channel();
        let shape = Arc::new(WireShape::new(spec));
        let freshness = Freshness::new(
            lister_watcher.clone(),
            reader.clone(),
            relist.clone(),
            freshness_policy,
            self.inner.shutdown.clone(),
        );
        let source = lister_watcher.clone();
        let bridges = Bridges::new(
            move |scope| source.in_scope(scope),
            Arc::clone(&self.inner.bridge_limits),
            self.inner.shutdown.clone(),
        );
        let informer = Arc::new(Informer::new(
            spec.clone(),
            scope,
            key.content,
            reader,
            relist,
            Arc::clone(&metrics),
            Arc::clone(&shape),
            freshness,
            bridges,
            own_transform,
            hooks.clone(),
        ));
        let (watched, set) = (Arc::clone(&informer), self.clone());
        let idle_timeout = move || set.inner.config.load().idle_timeout;
        let signals = Signals {
            stop: Box::pin(async move { watched.stopped_or_idle(idle_timeout).await }),
            relists,
        };
        let reflector_config = ReflectorConfig {
            refusal_patience: Config::REFUSAL_PATIENCE,
            unauthorized_patience: config.max_unauthorized,
            seed: config.seed,
            ..ReflectorConfig::default()
        };
        let mut reflector = Reflector::new(lister_watcher, writer, reflector_config, signals)
            .with_metrics(metrics)
            .with_shape(shape)
            .with_watch_lists(self.inner.watch_lists.clone())
            .with_resource_hooks(hooks);
        if spec.custom {
            let (watched, set) = (Arc::clone(&informer), self.clone());
            reflector = reflector.with_early_end_hook(move || {
                watched.ended_early();
                set.inner.early_end.notify_one();
            });
        }
        MadeInformer {
            registration: RegistrationGuard {
                set: self.clone(),
                key,
                informer,
            },
            reflector,
        }
    }

    fn spawn(&self, made: MadeInformer) {
        let MadeInformer {
            registration,
            reflector,
        } = made;
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

// === impl Key ===

impl Key {
    /// The key of an informer of the objects of `scope`, of all shards.
    fn of(
        spec: &InformerSpec,
        scope: &Selection,
        content: ObjectContent,
        transform: Option<TransformId>,
    ) -> Self {
        Self {
            gvr: spec.resource.gvr.clone(),
            format: spec.format,
            content,
            transform,
            scope: spec.upstream_scope(scope),
        }
    }
}

/// The part of `scope` in `namespace`; `None` if the scope or the read has only one namespace or none.
fn part_in(scope: &Selection, namespace: Option<&str>) -> Option<Selection> {
    let namespace = namespace.filter(|_| scope.namespace.is_none())?;
    Some(Selection {
        namespace: Some(namespace.to_owned()),
        ..scope.clone()
    })
}

/// All objects of `namespace`, or of all namespaces.
fn of_namespace(namespace: Option<&str>) -> Selection {
    Selection {
        namespace: namespace.map(str::to_owned),
        ..Selection::default()
    }
}

/// The objects that the API server is asked for so that the cache has those of `selection`.
fn upstream_scope(spec: &InformerSpec, selection: &Selection) -> Selection {
    let namespace = selection.single_namespace();
    let namespace = namespace.filter(|_| spec.resource.namespaced);
    let fields = selection.fields.clone();
    // Fields that the resource does not have cannot be sent.
    let is_printable = fields.to_text(&spec.fields).is_some();
    Selection {
        labels: selection.labels.clone(),
        fields: if is_printable {
            fields
        } else {
            FieldSelector::default()
        },
        ..of_namespace(namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::api::{LabelSelector, RawFieldSelector, Resource, SelectableFields};
    use crate::informer::ResourceRule;
    use crate::shutdown;
    use crate::telemetry::Registry;
    use crate::upstream::Dial;

    fn slices(fields: SelectableFields) -> InformerSpec {
        let resource = Resource {
            gvr: GroupVersionResource::new("resource.k8s.io", "v1", "resourceslices"),
            kind: "ResourceSlice".to_owned(),
            singular: String::new(),
            short_names: Vec::new(),
            namespaced: false,
            verbs: Vec::new(),
        };
        InformerSpec {
            resource: Arc::new(resource),
            format: WireFormat::Json,
            fields: Arc::new(fields),
            custom: false,
            list_kind: None,
            settings: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_other_fields_stop_an_informer_and_not_a_newer_server() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let client = Client::in_memory(&dial);
        let informers = InformerSet::new(client, Config::default(), shutdown);
        let resource = slices(SelectableFields::default()).resource;
        let at = |minor| slices(SelectableFields::for_resource(&resource, minor));
        let (unknown, newer) = (at(None), at(Some(37)));
        assert_ne!(unknown.fields, newer.fields);
        let started = informers.get_or_start(&unknown, None).expect("it starts");
        let found = informers.get_or_start(&newer, None).expect("it runs");
        assert!(Arc::ptr_eq(&started, &found));
        assert!(started.fits(&newer));
        // Its objects have the values of other fields.
        let other = slices(SelectableFields::default());
        assert!(!started.fits(&other));
        let refused = informers.get_or_start(&other, None).err();
        assert_eq!(refused, Some(StartError::Gone));
    }

    /// An informer of all objects with these hooks.
    fn start_with(informers: &InformerSet, spec: &InformerSpec, hooks: &Hooks) -> Arc<Informer> {
        let everything = Selection::default();
        let started = informers.get_or_start_with(spec, &everything, ObjectContent::Whole, hooks);
        started.expect("it starts")
    }

    #[test]
    fn a_rule_may_select_by_a_field_of_newer_servers_before_the_version_is_known() {
        let resource = slices(SelectableFields::default()).resource;
        let unknown = SelectableFields::for_resource(&resource, None);
        for (field, is_valid) in [("spec.pool.name", true), ("spec.nosuch", false)] {
            let selector = RawFieldSelector::parse(&format!("{field}=x"));
            let rule = ResourceRule {
                fields: selector.expect("a selector"),
                ..ResourceRule::default()
            };
            assert_eq!(rule.settings(&resource, &unknown).is_ok(), is_valid);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn informers_start_until_connections_accept_no_further_requests() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let shutdown = Shutdown::new(shutdown::Config {
            not_ready_delay: Duration::from_secs(5),
            ..shutdown::Config::default()
        });
        let client = Client::in_memory(&dial);
        let informers = InformerSet::new(client, Config::default(), shutdown.clone());
        let start = |format| {
            let spec = slices(SelectableFields::default());
            informers
                .get_or_start(&InformerSpec { format, ..spec }, None)
                .err()
        };
        let requests = async {
            shutdown.reached(Phase::NotReady).await;
            let first = start(WireFormat::Json);
            shutdown.reached(Phase::StopAccepting).await;
            (first, start(WireFormat::Protobuf))
        };
        let (_, refused) = tokio::join!(shutdown.drain(), requests);
        assert_eq!(refused, (None, Some(StartError::ShuttingDown)));
    }

    /// Calls `body` on a thread of its own, and fails if it hangs.
    fn ends(body: impl FnOnce() + Send + 'static) {
        let (done, is_done) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            body();
            let _ = done.send(());
        });
        // Disconnected: `body` has panicked.
        let is_stuck = is_done.recv_timeout(Duration::from_secs(60))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        assert!(!is_stuck, "an informer that starts hangs");
        thread.join().expect("the body did not panic");
    }

    #[test]
    fn an_informer_may_start_while_its_runtime_is_dropped() {
        ends(|| {
            for _ in 0..100 {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .expect("a runtime");
                let dial: Dial =
                    Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
                let shutdown = Shutdown::new(shutdown::Config::default());
                let handle = runtime.handle().clone();
                let informers = {
                    let _entered = runtime.enter();
                    InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown)
                };
                let starting = informers.clone();
                let (first, has_first) = std::sync::mpsc::channel();
                let starts = std::thread::spawn(move || {
                    let _entered = handle.enter();
                    let mut spec = slices(SelectableFields::default());
                    Arc::make_mut(&mut spec.resource).namespaced = true;
                    // Starts some while the runtime runs, some while it is dropped, and one after that.
                    for namespace in 0.. {
                        let scope = of_namespace(Some(&format!("n{namespace}")));
                        let started = starting.get_or_start_scope(&spec, scope);
                        let started = started.expect("it starts");
                        let _ = first.send(());
                        let all = starting.all();
                        if !all.iter().any(|running| Arc::ptr_eq(running, &started)) {
                            break;
                        }
                    }
                });
                has_first.recv().expect("one has started");
                drop(runtime);
                starts.join().expect("informers start");
                assert!(informers.all().is_empty(), "one stayed in the set");
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn an_informer_is_shared_with_what_its_scope_contains() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let informers = InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown);
        let mut spec = slices(SelectableFields::default());
        Arc::make_mut(&mut spec.resource).namespaced = true;
        let selection = |namespace: &str, labels: &str, fields: &str| Selection {
            namespace: Some(namespace)
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            labels: LabelSelector::parse(labels).expect("a selector"),
            fields: FieldSelector::parse(fields, &spec.fields).expect("a selector"),
            shard: None,
        };
        let start = |selection: &Selection| {
            let started = informers.get_or_start_for(&spec, selection, ObjectContent::Whole);
            started.expect("it starts")
        };
        let metadata = |selection: &Selection| {
            let started = informers.get_or_start_for(&spec, selection, ObjectContent::Metadata);
            started.expect("it starts")
        };
        let only_metadata = metadata(&selection("c", "", ""));
        assert!(!Arc::ptr_eq(
            &only_metadata,
            &start(&selection("c", "", ""))
        ));
        let labelled = start(&selection("a", "app in (x,y)", ""));
        assert_eq!(labelled.scope(), &selection("a", "app in (x,y)", ""));
        for contained in ["app=x", "app=y,tier", "app in (y,x)"] {
            let shared = start(&selection("a", contained, "metadata.name=n"));
            assert!(Arc::ptr_eq(&shared, &labelled), "{contained}");
        }
        // None of these is contained.
        let by_name = start(&selection("", "", "metadata.namespace=a,metadata.name=n"));
        assert_eq!(by_name.namespace(), Some("a"));
        let all = start(&selection("", "", ""));
        for other in [&by_name, &all] {
            assert!(!Arc::ptr_eq(other, &labelled));
        }
        assert_eq!(informers.all().len(), 5);
        // Two have these objects, and any of them is shared.
        let shared = metadata(&selection("a", "app=x", ""));
        let sharing = [&labelled, &all];
        assert!(sharing.iter().any(|found| Arc::ptr_eq(found, &shared)));
        let shared = start(&selection("b", "app=x", ""));
        assert!(Arc::ptr_eq(&shared, &all));
        // Reads of a whole namespace never get an informer of a part of it.
        let whole = informers.get_or_start(&spec, Some("a"));
        assert!(Arc::ptr_eq(&whole.expect("it runs"), &all));
    }

    #[tokio::test(start_paused = true)]
    async fn hooks_of_an_informer_do_not_concern_others() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let informers = InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown);
        let spec = slices(SelectableFields::default());
        let start = |hooks: &Hooks| start_with(&informers, &spec, hooks);
        let transform = Hooks::default().with_transform(|_, object| drop(object.take()));
        let others = Hooks::default().with_transform(|_, object| drop(object.take()));
        let own = start(&transform);
        let plain = start(&Hooks::default());
        assert!(!Arc::ptr_eq(&own, &plain));
        assert!(!Arc::ptr_eq(&own, &start(&others)));
        assert!(Arc::ptr_eq(&own, &start(&transform.clone())));
        let whole = informers.get_or_start(&spec, None).expect("it starts");
        assert!(Arc::ptr_eq(&plain, &whole));

        // Handlers of failures are called as long as their users exist, and share a cache.
        let (sender, mut failures) = tokio::sync::mpsc::unbounded_channel();
        let handler = |number| {
            let sender = sender.clone();
            let send = move |_: &super::super::Failure<'_>| {
                let _ = sender.send(number);
            };
            Hooks::default().with_failure_handler(send)
        };
        let (first, second) = (handler(1), handler(2));
        for hooks in [&first, &second, &first] {
            assert!(Arc::ptr_eq(&plain, &start(hooks)));
        }
        let mut calls = vec![failures.recv().await, failures.recv().await];
        calls.sort_unstable();
        assert_eq!(calls, [Some(1), Some(2)]);
        drop(first);
        for _ in 0..3 {
            assert_eq!(failures.recv().await, Some(2));
        }
        assert_eq!(informers.all().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_transform_keeps_its_number_while_others_come_and_go() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let informers = InformerSet::new(Client::in_memory(&dial), Config::default(), shutdown);
        let spec = slices(SelectableFields::default());
        let transform = || Hooks::default().with_transform(|_, object| drop(object.take()));
        let start = |hooks: &Hooks| start_with(&informers, &spec, hooks);
        let registry = Registry::new();
        let sampled = informers.clone();
        registry.on_scrape(move |samples| sampled.sample(samples));
        // The numbers in the series of the informers.
        let series = || {
            let (_, text) = registry.render();
            let ready = text
                .lines()
                .filter(|line| line.starts_with("kubefan_informer_ready{"));
            let number = |line: &str| {
                let (_, number) = line.split_once("transform=\"")?;
                number.split('"').next()?.parse().ok()
            };
            let mut numbers: Vec<Option<usize>> = ready.map(number).collect();
            numbers.sort_unstable();
            numbers
        };
        let plain = start(&Hooks::default());
        let (first, second) = (start(&transform()), start(&transform()));
        let numbers = [&plain, &first, &second].map(|informer| informer.transform_number());
        assert_eq!(numbers, [None, Some(1), Some(2)]);
        assert_eq!(series(), numbers);

        first.stop();
        first.reader().closed().await;
        while informers.all().len() == 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(second.transform_number(), Some(2));
        assert_eq!(series(), [None, Some(2)]);
        let (third, fourth) = (start(&transform()), start(&transform()));
        let numbers = [&third, &second, &fourth].map(|informer| informer.transform_number());
        assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
        assert_eq!(series(), [None, Some(1), Some(2), Some(3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn hooks_of_the_set_count_as_none_of_an_informer() {
        let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
        let shutdown = Shutdown::new(shutdown::Config::default());
        let (sender, mut failures) = tokio::sync::mpsc::unbounded_channel();
        let hooks = Hooks::default()
            .with_transform(|_, object| drop(object.take()))
            .with_failure_handler(move |_| {
                let _ = sender.send(Instant::now());
            });
        let config = Config {
            hooks: hooks.clone(),
            ..Config::default()
        };
        let informers = InformerSet::new(Client::in_memory(&dial), config, shutdown);
        let spec = slices(SelectableFields::default());
        let start = |hooks: &Hooks| start_with(&informers, &spec, hooks);
        let informer = start(&hooks);
        assert!(Arc::ptr_eq(&informer, &start(&hooks.clone())));
        assert!(Arc::ptr_eq(&informer, &start(&Hooks::default())));
        let whole = informers.get_or_start(&spec, None).expect("it starts");
        assert!(Arc::ptr_eq(&informer, &whole));
        assert_eq!(informers.own_hooks(&hooks).transform_id(), None);
        // Each attempt fails once, and the next one comes after a backoff.
        let (first, second) = (failures.recv().await, failures.recv().await);
        assert!(first < second, "{first:?}, {second:?}");
    }
}
