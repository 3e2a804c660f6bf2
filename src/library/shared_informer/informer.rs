//! SharedInformer: the objects of one resource as a Rust type, for any number of users.

use std::sync::Arc;
use std::time::Duration;

use kubefan_core::api::{Object, ObjectKey, Resource, Selection};
use kubefan_core::cache::{Reader, Snapshot};
use kubefan_core::concurrency::CoopBudget;
use kubefan_core::shutdown::Shutdown;
use parking_lot::{Mutex, RwLockReadGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::decode::Decoder;
use super::source::Source;
use super::view::{SharedView, View};
use super::{Changes, Config, EventHandler, HandlerRegistration, IndexError, Lister, Storage};

/// The steps after which a read of one object decodes it, rather than what else has changed.
const STEPS_OF_GET: usize = 4;
/// Budget units of a step of a view, which decodes up to 32 objects.
const UNITS_PER_STEP: usize = CoopBudget::UNITS / 4;
/// How long the background task first waits after it has applied everything.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause. A lister has at most the changes of this time to apply.
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// The objects of one resource, kept equal to the API server's. Clones share the informer.
///
/// `K` is any type that deserializes from the objects: those of `k8s-openapi` and `kube`, derived
/// custom resources, `kube::core::DynamicObject`, or `PartialObjectMeta`.
pub struct SharedInformer<K>(Arc<Shared<K>>);

/// What handlers and listers share.
pub(super) struct Shared<K> {
    pub(super) source: Source,
    pub(super) selection: Arc<Selection>,
    pub(super) storage: Storage,
    pub(super) decoder: Arc<Decoder<K>>,
    pub(super) view: Arc<SharedView<K>>,
    shutdown: Shutdown,
    /// The last cache that was ready, which is read until the next one is ready.
    last_ready: Mutex<Option<Reader>>,
    /// Ends the task that follows the cache when the last user is gone.
    users: watch::Sender<()>,
    /// Started at the first need: an informer of bytes without indexes has no view.
    follower: std::sync::Once,
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// === impl SharedInformer ===

impl<K: DeserializeOwned + Send + Sync + 'static> SharedInformer<K> {
    /// An informer of the cache of `reader`, which has the objects of `resource` as JSON. Its tasks
    /// belong to `shutdown`.
    ///
    /// # Panics
    ///
    /// With [`Storage::Decoded`], outside of a tokio runtime.
    pub fn new(
        reader: Reader,
        resource: Arc<Resource>,
        config: Config,
        shutdown: Shutdown,
    ) -> Self {
        Self::of_source(Source::fixed(reader), resource, config, shutdown)
    }

    pub(super) fn of_source(
        source: Source,
        resource: Arc<Resource>,
        config: Config,
        shutdown: Shutdown,
    ) -> Self {
        let decoder = Arc::new(Decoder::new(resource, &config));
        let selection = Arc::new(config.selection);
        let keeps_objects = config.storage == Storage::Decoded;
        let view = View::new(Arc::clone(&selection), Arc::clone(&decoder), keeps_objects);
        let shared = Shared {
            source,
            selection,
            storage: config.storage,
            decoder,
            view: Arc::new(SharedView::new(view)),
            shutdown,
            last_ready: Mutex::default(),
            users: watch::Sender::new(()),
            follower: std::sync::Once::new(),
        };
        if keeps_objects {
            shared.keep_view();
        }
        Self(Arc::new(shared))
    }

    /// Calls `handler` for each present object, and then for each change, in a task of its own.
    ///
    /// With `resync`, [`EventHandler::on_update`] is also called for all present objects after each
    /// such interval, which is at least [`Config::LEAST_RESYNC`].
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

    /// The present objects, and then the changes. They cost nothing until they are read.
    pub fn changes(&self) -> Changes<K> {
        Changes::new(Arc::clone(&self.0))
    }

    /// A lister of the informer's objects.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(Arc::clone(&self.0))
    }

    /// Adds an index: [`Lister::by_index`] finds the objects for which `values` returns a value. It
    /// has all present objects when this returns, which may take long if there are many. `values`
    /// must not read this informer.
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
        self.0.view.add_index(name.into(), Arc::new(values))
    }

    /// The resource of the informer's objects.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.0.decoder.resource
    }

    /// True if the cache has a complete list.
    pub fn has_synced(&self) -> bool {
        let reader = self.0.source.current();
        reader.is_some_and(|reader| reader.is_ready())
    }

    /// Waits until [`SharedInformer::has_synced`] is true and decoded objects are loaded, and returns
    /// true. Returns false if the informer ended before. Cancel safe.
    pub async fn synced(&self) -> bool {
        self.0.wait_for_sync().await
    }

    pub(super) fn from_shared(shared: Arc<Shared<K>>) -> Self {
        Self(shared)
    }

    pub(super) fn shared(&self) -> &Arc<Shared<K>> {
        &self.0
    }
}

// === impl Shared ===

impl<K: DeserializeOwned> Shared<K> {
    /// Waits until the decoded objects are loaded, if the informer keeps them. Cancel safe.
    pub(super) async fn loaded(&self) {
        if self.storage == Storage::Decoded {
            self.view.loaded().await;
        }
    }

    /// Waits for the first complete list, and until decoded objects are loaded. Returns false if the
    /// informer ended before. Cancel safe.
    pub(super) async fn wait_for_sync(&self) -> bool {
        self.loaded().await;
        let is_synced = self.source.clone().next_ready().await.is_some();
        self.reader();
        is_synced
    }

    /// The reader of the present cache if it is or was ready, otherwise that of the last one that was.
    pub(super) fn reader(&self) -> Option<Reader> {
        let current = self.source.current()?;
        let mut last = self.last_ready.lock();
        let is_last = |last: &Reader| last.is_of_same_cache(&current);
        if !last.as_ref().is_some_and(is_last)
            && (current.is_ready() || current.last_snapshot().is_some())
        {
            current.keep_lost();
            *last = Some(current);
        }
        last.clone()
    }

    /// The newest state that is known.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        self.reader()?.last_snapshot()
    }

    /// The view, with everything that the cache has applied.
    pub(super) fn view(&self) -> RwLockReadGuard<'_, View<K>> {
        self.view.current(|| self.reader())
    }

    /// Makes the view apply what the cache has applied, and yields between its steps. So a handler that
    /// goes on, and the listers that it reads, find little to do. Cancel safe.
    pub(super) async fn catch_up(&self) {
        let mut budget = CoopBudget::new();
        while self.storage == Storage::Decoded && !self.view.step(self.reader()) {
            budget.charge(UNITS_PER_STEP);
            budget.proceed().await;
        }
    }

    /// The decoded form of the object at `key`, if the view has it after a few steps. If it lacks more
    /// changes, the caller decodes the object of a snapshot.
    pub(super) fn kept(&self, key: &ObjectKey) -> Option<Arc<K>> {
        if self.storage == Storage::Bytes {
            return None;
        }
        if !(0..STEPS_OF_GET).any(|_| self.view.step(self.reader())) {
            return None;
        }
        let view = self.view.if_current(self.reader().as_ref())?;
        view.get(key).cloned()
    }

    /// The decoded form of `object`. `None` if it has none, which is reported unless the view has
    /// reported it.
    pub(super) fn decode(&self, object: &Arc<Object>) -> Option<Arc<K>> {
        let kept = match self.storage {
            Storage::Bytes => None,
            Storage::Decoded => self.view.decoded(object),
        };
        kept.unwrap_or_else(|| self.decoder.decode_or_report(object))
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Shared<K> {
    /// Makes the view follow the cache from now on, in the background.
    fn keep_view(&self) {
        self.follower.call_once(|| {
            if let Some(reader) = self.reader() {
                self.view.follow(reader);
            }
            let follow = follow(self.source.clone(), Arc::clone(&self.view));
            let mut users = self.users.subscribe();
            let ended = EndLoading(Arc::clone(&self.view));
            self.shutdown.spawn_background(async move {
                tokio::select! {
                    () = follow => {}
                    Err(_) = users.changed() => {}
                }
                drop(ended);
            });
        });
    }
}

/// Lets nobody wait for a view whose follower has ended, even if it was dropped or has panicked.
struct EndLoading<K: DeserializeOwned>(Arc<SharedView<K>>);

impl<K: DeserializeOwned> Drop for EndLoading<K> {
    fn drop(&mut self) {
        self.0.end_loading();
    }
}

/// Keeps `view` near the newest state of the cache of `source`, so that its readers find little to
/// do. Ends with the source.
async fn follow<K: DeserializeOwned>(mut source: Source, view: Arc<SharedView<K>>) {
    while let Some(reader) = source.next_ready().await {
        view.follow(reader);
        let mut pause = PAUSE;
        loop {
            while !view.advance() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(pause).await;
            pause = next_pause(pause, view.is_current());
            if !view.changed().await {
                break;
            }
        }
    }
}

/// The pause that follows `pause`, after which the view was current or not. If it was, there are few
/// changes, or handlers apply them, each before it reports them. The task would only cost them time.
fn next_pause(pause: Duration, is_current: bool) -> Duration {
    match is_current {
        true => LONGEST_PAUSE.min(pause * 2),
        false => PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_the_view_is_current() {
        let (mut pause, mut pauses) = (PAUSE, Vec::new());
        for is_current in [true, true, true, true, false, true] {
            pause = next_pause(pause, is_current);
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses, [40, 80, 160, 160, 20, 40]);
    }
}
