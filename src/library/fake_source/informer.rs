//! Shared informers of a fake source.

use std::any::TypeId;
use std::future::pending;
use std::sync::Arc;

use kube::Resource;
use kube::core::ClusterResourceScope;
use kubefan_core::api::GroupVersionResource;
use kubefan_core::informer::{Reflector, ReflectorConfig, Signals, relist_channel};
use kubefan_core::shutdown::Shutdown;
use kubefan_core::{api, cache};
use serde::de::DeserializeOwned;

use super::FakeSource;
use crate::shared_informer::{Config, SharedInformer};

impl FakeSource {
    /// Starts a shared informer of this source, for handlers, listers and controllers under
    /// test. The informer lists and watches until `shutdown` was drained. Then it has also
    /// ended for its users.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kubefan::fake_source::FakeSource;
    /// use kubefan::shared_informer::{Change, Config};
    /// use kubefan::shutdown::{self, Shutdown};
    /// use serde_json::json;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let source = FakeSource::new();
    /// let shutdown = Shutdown::new(shutdown::Config::default());
    /// let maps = source.informer::<ConfigMap>(Config::default(), &shutdown);
    /// assert!(maps.synced().await);
    /// let mut changes = maps.changes();
    ///
    /// source.add(&json!({"metadata": {"namespace": "default", "name": "settings"}}))?;
    /// let change = changes.next().await.ok_or("the informer ended")?;
    /// assert!(matches!(change, Change::Added { .. }));
    /// assert!(maps.lister().get(Some("default"), "settings")?.is_some());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    /// #     .block_on(run()).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn informer<K>(&self, config: Config, shutdown: &Shutdown) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let resource = api::Resource {
            gvr: GroupVersionResource::new(K::group(&()), K::version(&()), K::plural(&())),
            kind: K::kind(&()).into_owned(),
            singular: K::kind(&()).to_lowercase(),
            short_names: Vec::new(),
            namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
            verbs: ["list", "watch"].map(str::to_owned).into(),
        };
        self.informer_of(resource, config, shutdown)
    }

    /// Like [`FakeSource::informer`], for a type that does not name its resource, such as
    /// `kube::core::DynamicObject`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn informer_of<K>(
        &self,
        resource: api::Resource,
        config: Config,
        shutdown: &Shutdown,
    ) -> SharedInformer<K>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let (writer, reader) = cache::cache(cache::Config::default());
        let (_, relists) = relist_channel();
        let signals = Signals {
            stop: Box::pin(pending()),
            relists,
        };
        let settings = ReflectorConfig::default();
        let resource = Arc::new(resource);
        let reflector = Reflector::new(self.clone(), writer, settings, signals);
        let reflector = reflector.with_hooks(&config.hooks, &resource);
        shutdown.spawn_background(async move {
            reflector.run().await;
        });
        SharedInformer::new(reader, resource, config, shutdown.clone())
    }
}
