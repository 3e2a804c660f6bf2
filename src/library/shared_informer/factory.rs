//! Factory: starts shared informers, and returns a running one if it fits.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Resource;
use kube::core::PartialObjectMeta;
use kubefan_core::api::{
    FieldSelector, GroupVersionResource, LabelSelector, Malformed, Selection, WireFormat,
};
use kubefan_core::cache::Reader;
use kubefan_core::informer::{
    Informer, InformerSet, InformerSpec, LiveRestMapper, ObjectContent, StartError, TransformId,
};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::upstream::{Client, NotCacheable};
use kubefan_core::{informer, upstream};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::shared::Shared;
use super::source::Source;
use super::{Config, SharedInformer, Storage};

/// How long a factory waits before it restarts an informer that has ended.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Starts shared informers. Clones of a factory share its informers.
///
/// There is one [`SharedInformer`] for each Rust type, selection, storage and transform, however
/// often it is asked for. Each informer reads a cache, which lists and watches only the objects of
/// the informer's selection. If the selection of a running cache [contains](Selection::contains)
/// the informer's selection, the informer uses this cache, and shows only the objects of its own
/// selection. So a program that needs a wide and a narrow informer asks for the wide one first.
///
/// A factory restarts an informer that ends, for example because a custom resource is defined
/// again. The handlers of the informer then get the difference. An informer without users is
/// stopped after [`informer::Config::idle_timeout`](kubefan_core::informer::Config::idle_timeout).
///
/// # Rights
///
/// The program needs the rights to `list` and `watch` the resources of its informers, in all
/// namespaces or in those of the informers' selections, and the rights for its own reads and
/// writes. Every authenticated user may read discovery. This ClusterRole is sufficient for
/// informers of Pods and of a custom resource:
///
/// ```yaml
/// apiVersion: rbac.authorization.k8s.io/v1
/// kind: ClusterRole
/// metadata:
///   name: my-controller
/// rules:
///   - apiGroups: [""]
///     resources: [pods]
///     verbs: [list, watch]
///   - apiGroups: [example.com]
///     resources: [widgets]
///     verbs: [list, watch]
/// ```
///
/// With the right to `list` and `watch` CustomResourceDefinitions (`apiextensions.k8s.io`), a
/// factory notices a changed definition at once, and informers may select by the fields that the
/// definition declares. Without this right, the factory polls discovery once a minute. When a
/// definition changes, the API server ends the watches, after which the informer lists again. With
/// the right to `list` and `watch` APIServices (`apiregistration.k8s.io`), a factory refuses the
/// resources of aggregated API servers. Without this right, the factory does not detect such a
/// resource, and the program must not name one.
///
/// # Metrics
///
/// A [`Manager`](crate::manager::Manager) renders the metrics of its factory's caches. A program
/// without a manager makes the [`InformerSet`] itself, passes it to [`Factory::new`], and calls
/// [`InformerSet::sample`] from
/// [`Registry::on_scrape`](kubefan_core::telemetry::Registry::on_scrape).
#[derive(Clone)]
pub struct Factory(Arc<Inner>);

struct Inner {
    informers: InformerSet,
    mapper: Arc<LiveRestMapper>,
    shutdown: Shutdown,
    started: Mutex<HashMap<Key, Weak<dyn Started>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    object_type: TypeId,
    gvr: GroupVersionResource,
    selection: Selection,
    storage: Storage,
    content: ObjectContent,
    transform: Option<TransformId>,
}

/// Why a factory has no informer of a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there can be no informer of {resource}")]
pub struct FactoryError {
    /// The resource.
    pub resource: GroupVersionResource,
    source: NotCacheable,
}

/// An informer of any type.
trait Started: Any + Send + Sync {
    fn synced(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}

// === impl Factory ===

impl Factory {
    /// Discovers the resources of the API server of `client`, and returns a factory of informers
    /// for them. `client` may also be a `kube::Client`. The factory's tasks belong to `shutdown`.
    ///
    /// # Errors
    ///
    /// If discovery fails.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn start(
        client: impl Into<Client>,
        config: informer::Config,
        shutdown: Shutdown,
    ) -> Result<Self, upstream::Error> {
        let client = client.into();
        let mapper = Arc::new(LiveRestMapper::discover(client.clone()).await?);
        let informers = InformerSet::new(client, config, shutdown.clone());
        let (live, all) = (Arc::clone(&mapper), informers.clone());
        shutdown.spawn_background(async move { live.run(all).await });
        Ok(Self::new(informers, mapper, shutdown))
    }

    /// Returns a factory that shares `informers` with other users. `mapper` must be
    /// [running](LiveRestMapper::run).
    pub fn new(informers: InformerSet, mapper: Arc<LiveRestMapper>, shutdown: Shutdown) -> Self {
        Self(Arc::new(Inner {
            informers,
            mapper,
            shutdown,
            started: Mutex::default(),
        }))
    }

    /// Returns the informers that fill the caches, for their metrics.
    pub(crate) fn informers(&self) -> &InformerSet {
        &self.0.informers
    }

    /// Returns the mapper of the API server's resources and kinds.
    pub fn rest_mapper(&self) -> &LiveRestMapper {
        &self.0.mapper
    }

    /// Returns the informer of the objects of type `K` that `config` selects, and starts it if
    /// there is none yet. An informer that is running already uses the error functions and the
    /// failure handler of its first user, not those of `config`.
    ///
    /// # Errors
    ///
    /// [`FactoryError`] if the API server does not have the resource now, or the resource cannot be
    /// cached. [`Factory::wait_for`] waits for a resource.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn informer<K>(&self, config: Config) -> Result<SharedInformer<K>, FactoryError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let gvr = GroupVersionResource::new(K::group(&()), K::version(&()), K::plural(&()));
        self.informer_of(&gvr, config)
    }

    /// Like [`Factory::informer`], for a type that does not name its resource, such as
    /// `kube::core::DynamicObject` or `kube::core::PartialObjectMeta`.
    ///
    /// # Errors
    ///
    /// As for [`Factory::informer`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn informer_of<K>(
        &self,
        gvr: &GroupVersionResource,
        config: Config,
    ) -> Result<SharedInformer<K>, FactoryError>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        self.informer_with(gvr, config, ObjectContent::Whole)
    }

    /// Like [`Factory::informer_of`], for the objects' metadata. The API server sends nothing else,
    /// unless a running cache of complete objects contains them. The selection may name labels,
    /// namespace and name, but no other fields.
    ///
    /// # Errors
    ///
    /// As for [`Factory::informer`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn metadata_informer(
        &self,
        gvr: &GroupVersionResource,
        config: Config,
    ) -> Result<SharedInformer<PartialObjectMeta>, FactoryError> {
        self.informer_with(gvr, config, ObjectContent::Metadata)
    }

    fn informer_with<K>(
        &self,
        gvr: &GroupVersionResource,
        config: Config,
        content: ObjectContent,
    ) -> Result<SharedInformer<K>, FactoryError>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let key = Key {
            object_type: TypeId::of::<K>(),
            gvr: gvr.clone(),
            selection: config.selection.clone(),
            storage: config.storage,
            content,
            transform: self.0.informers.own_hooks(&config.hooks).transform_id(),
        };
        let running = self.0.started.lock().get(&key).and_then(Weak::upgrade);
        if let Some(running) = running.and_then(informer_of) {
            return Ok(running);
        }
        self.0.mapper.refresh_unless_known(gvr);
        let spec = self.spec(gvr)?;
        let (readers, source) = watch::channel(None);
        let keeper = Keeper {
            factory: self.clone(),
            gvr: gvr.clone(),
            content,
            // The program's function must go with the informer, not with this task.
            config: Config {
                on_decode_error: Config::default().on_decode_error,
                ..config.clone()
            },
            readers,
        };
        let source = Source::new(source);
        let shutdown = self.0.shutdown.clone();
        // Made and spawned without the lock of the map: a runtime that is shutting down drops a
        // task while it is spawned, and drops the program's functions with the task.
        let shared = Shared::new(source, spec.resource, config, shutdown);
        let informer = SharedInformer(Arc::new(shared));
        if let Some(earlier) = self.register(key, &informer) {
            return Ok(earlier);
        }
        self.0.shutdown.spawn_background(keeper.keep());
        Ok(informer)
    }

    /// Registers `informer` under `key`. If the key has an informer already, returns that one.
    fn register<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        key: Key,
        informer: &SharedInformer<K>,
    ) -> Option<SharedInformer<K>> {
        let shared: Arc<dyn Started> = informer.0.clone();
        let mut started = self.0.started.lock();
        let earlier = started.get(&key).and_then(Weak::upgrade);
        if earlier.is_none() {
            started.retain(|_, informer| informer.strong_count() > 0);
            started.insert(key, Arc::downgrade(&shared));
        }
        drop(started);
        earlier.and_then(informer_of)
    }

    /// Returns what an informer of `gvr` needs to know about the resource.
    fn spec(&self, gvr: &GroupVersionResource) -> Result<InformerSpec, FactoryError> {
        let spec = self.0.mapper.named_informer_spec(gvr, WireFormat::Json);
        spec.map_err(|source| FactoryError {
            resource: gvr.clone(),
            source,
        })
    }

    /// Returns one informer for each of `namespaces`, in their order. Each informer has its own
    /// handlers and listers, and shows the objects of `config`'s selection in its namespace.
    ///
    /// # Errors
    ///
    /// As for [`Factory::informer`].
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn informers_in<K>(
        &self,
        namespaces: &[&str],
        config: &Config,
    ) -> Result<Vec<SharedInformer<K>>, FactoryError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let of_namespace = |namespace: &&str| {
            let mut config = config.clone();
            config.selection.namespace = Some((*namespace).to_owned());
            self.informer(config)
        };
        namespaces.iter().map(of_namespace).collect()
    }

    /// Returns the selection of objects of `gvr` for the parameters of a request:
    /// `namespace` (`None` selects all namespaces), `labelSelector` and `fieldSelector`. The
    /// selectors may be empty.
    ///
    /// # Errors
    ///
    /// If a selector is malformed, or names a field by which the API server does not select objects
    /// of `gvr`. For a resource that the API server does not have, only the fields for name and
    /// namespace are accepted.
    pub fn selection(
        &self,
        gvr: &GroupVersionResource,
        namespace: Option<&str>,
        label_selector: &str,
        field_selector: &str,
    ) -> Result<Selection, Malformed> {
        let fields = self.spec(gvr).map(|spec| spec.fields).unwrap_or_default();
        Ok(Selection {
            namespace: namespace.map(str::to_owned),
            labels: LabelSelector::parse(label_selector)?,
            fields: FieldSelector::parse(field_selector, &fields)?,
            ..Selection::default()
        })
    }

    /// Waits until the API server has the resource of `K`, for example a custom resource that is
    /// defined later. Then [`Factory::informer`] returns an informer of the resource, unless the
    /// resource is removed again. This needs only the right to read discovery, which every
    /// authenticated user has. It also waits while the API server does not answer, so a program
    /// waits for its own shutdown at the same time, for example with `tokio::select!`.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// [`FactoryError`] if the resource exists, but cannot be cached.
    pub async fn wait_for<K>(&self) -> Result<(), FactoryError>
    where
        K: Resource<DynamicType = ()>,
    {
        let gvr = GroupVersionResource::new(K::group(&()), K::version(&()), K::plural(&()));
        self.wait_for_resource(&gvr).await
    }

    /// Like [`Factory::wait_for`], for a type that does not name its resource.
    ///
    /// # Errors
    ///
    /// As for [`Factory::wait_for`].
    pub async fn wait_for_resource(&self, gvr: &GroupVersionResource) -> Result<(), FactoryError> {
        let Inner {
            informers, mapper, ..
        } = &*self.0;
        loop {
            mapper.wait_for(gvr, informers).await;
            match self.spec(gvr) {
                // The resource was removed again.
                Err(error) if error.source == NotCacheable::Unknown => {}
                found => return found.map(drop),
            }
        }
    }

    /// Waits until all informers of the factory have a complete list, and returns true. Returns
    /// false if one of them has ended. Cancel safe.
    pub async fn wait_for_cache_sync(&self) -> bool {
        let started: Vec<_> = {
            let started = self.0.started.lock();
            started.values().filter_map(Weak::upgrade).collect()
        };
        for informer in started {
            if !informer.synced().await {
                return false;
            }
        }
        true
    }
}

/// Returns the informer with its type `K`; `None` if the type in its [`Key`] is another one.
fn informer_of<K>(started: Arc<dyn Started>) -> Option<SharedInformer<K>>
where
    K: DeserializeOwned + Send + Sync + 'static,
{
    let started: Arc<dyn Any + Send + Sync> = started;
    started.downcast().ok().map(SharedInformer)
}

// === impl Started ===

impl<K: DeserializeOwned + Send + Sync + 'static> Started for Shared<K> {
    fn synced(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.wait_for_sync())
    }
}

// === impl Keeper ===

/// Restarts the cache of a shared informer whenever it ends.
struct Keeper {
    factory: Factory,
    gvr: GroupVersionResource,
    content: ObjectContent,
    config: Config,
    readers: watch::Sender<Option<Reader>>,
}

impl Keeper {
    /// Runs until the last user of the shared informer is gone.
    async fn keep(self) {
        let mut reported = None;
        while !self.readers.is_closed() {
            match self.start() {
                Some(Ok(informer)) => {
                    let _hold = informer.hold();
                    let reader = informer.reader().clone();
                    // Listers show the last state even of a cache that they have not read
                    // before it ended.
                    reader.keep_lost();
                    self.readers.send_replace(Some(reader.clone()));
                    let ended = async {
                        if reader.ready().await {
                            reported = None;
                        }
                        reader.closed().await;
                    };
                    tokio::select! {
                        () = ended => {}
                        () = self.readers.closed() => return,
                    }
                }
                Some(Err(error)) if reported != Some(error) => {
                    reported = Some(error);
                    (self.config.on_start_error)(&error);
                }
                Some(Err(_)) | None => {}
            }
            tokio::select! {
                () = tokio::time::sleep(RESTART_PAUSE) => {}
                () = self.readers.closed() => return,
            }
        }
    }

    /// Starts the informer that fills the cache. `None` if the API server does not
    /// have the resource now.
    fn start(&self) -> Option<Result<Arc<Informer>, StartError>> {
        let informers = &self.factory.0.informers;
        self.factory.0.mapper.refresh_unless_known(&self.gvr);
        let spec = self.factory.spec(&self.gvr).ok()?;
        let (selection, hooks) = (&self.config.selection, &self.config.hooks);
        Some(informers.get_or_start_with(&spec, selection, self.content, hooks))
    }
}
