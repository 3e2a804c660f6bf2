//! SharedInformer: the objects of one resource as a Rust type, for any number of users.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::Resource;
use kubefan_core::cache::Reader;
use kubefan_core::shutdown::Shutdown;
use serde::de::DeserializeOwned;

use super::shared::Shared;
use super::source::Source;
use super::{Changes, Config, EventHandler, HandlerRegistration, IndexError, Lister};

/// The objects of one resource, synchronized with the API server's. Clones share the informer.
///
/// `K` is any type that deserializes from the objects: those of `k8s-openapi` and `kube`, derived
/// custom resources, `kube::core::DynamicObject`, or `PartialObjectMeta`.
pub struct SharedInformer<K>(pub(super) Arc<Shared<K>>);

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// === impl SharedInformer ===

impl<K: DeserializeOwned + Send + Sync + 'static> SharedInformer<K> {
    /// Creates an informer of the cache of `reader`, which has the objects of `resource` as JSON.
    /// Its tasks belong to `shutdown`.
    ///
    /// # Panics
    ///
    /// With [`Storage::Decoded`](super::Storage::Decoded), outside of a tokio runtime.
    pub fn new(
        reader: Reader,
        resource: Arc<Resource>,
        config: Config,
        shutdown: Shutdown,
    ) -> Self {
        let source = Source::fixed(reader);
        Self(Arc::new(Shared::new(source, resource, config, shutdown)))
    }

    /// Calls `handler` for each present object, and then for each change, in a new task.
    ///
    /// With `resync`, it also calls [`EventHandler::on_update`] for all present objects after each
    /// interval of this length, which is raised to [`Config::LEAST_RESYNC`] if it is shorter.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn add_handler<H: EventHandler<K>>(
        &self,
        handler: H,
        resync: Option<Duration>,
    ) -> HandlerRegistration {
        let changes = match resync {
            Some(interval) => self.changes().with_resync(interval),
            None => self.changes(),
        };
        let spawn = |calls| self.0.shutdown.spawn_background(calls);
        HandlerRegistration::spawn(changes, handler, spawn)
    }

    /// Returns the present objects, and then the changes. They cost nothing until they are read.
    pub fn changes(&self) -> Changes<K> {
        Changes::new(Arc::clone(&self.0))
    }

    /// Returns a lister of the informer's objects.
    pub fn lister(&self) -> Lister<K> {
        Lister(Arc::clone(&self.0))
    }

    /// Adds an index: [`Lister::by_index`] finds the objects for which `values` returns a value.
    /// The index has all present objects when this returns, which may take long if there are many.
    /// Other threads read the informer in that time, except this index, which is missing until
    /// then. `values` must not read this informer.
    ///
    /// # Errors
    ///
    /// [`IndexError::Exists`] if there is an index `name` already.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn add_index(
        &self,
        name: impl Into<String>,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), IndexError> {
        self.0.keep_view();
        let name: String = name.into();
        self.0.view.add_index(&name, Arc::new(values))?;
        drop(self.0.view());
        Ok(())
    }

    /// Returns the resource of the informer's objects.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.0.decoder.resource
    }

    /// Returns true if the cache has a complete list.
    pub fn has_synced(&self) -> bool {
        let reader = self.0.source.current();
        reader.is_some_and(|reader| reader.is_ready())
    }

    /// Waits until [`SharedInformer::has_synced`] is true and decoded objects are loaded, and
    /// returns true. Returns false if the informer ended before that. Cancel safe.
    pub async fn synced(&self) -> bool {
        self.0.wait_for_sync().await
    }
}
