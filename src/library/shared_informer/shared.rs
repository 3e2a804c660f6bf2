//! Shared: what the handlers and listers of one informer share.

use std::sync::{Arc, Once};
use std::time::Duration;

use kubefan_core::api::{Object, ObjectKey, Resource, Selection};
use kubefan_core::cache::{Reader, Snapshot};
use kubefan_core::concurrency::{CoopBudget, drop_elsewhere};
use kubefan_core::shutdown::Shutdown;
use parking_lot::{Mutex, RwLockReadGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::decode::Decoder;
use super::shared_view::SharedView;
use super::source::Source;
use super::view::{STEP, View};
use super::{Config, Storage};

/// Number of view steps after which a read of one object decodes it instead of further changes.
const STEPS_OF_GET: usize = 4;
/// Budget units of an object that is decoded.
const UNITS_PER_DECODED: usize = CoopBudget::UNITS / 128;
/// Budget units of a step of a view, which decodes up to [`STEP`] objects.
const UNITS_PER_STEP: usize = STEP * UNITS_PER_DECODED;
/// How long the background task first waits after it has applied everything.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause. A lister has to apply at most the changes of this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// What the handlers and listers of an informer share.
pub(super) struct Shared<K> {
    pub(super) source: Source,
    pub(super) selection: Arc<Selection>,
    pub(super) storage: Storage,
    pub(super) decoder: Arc<Decoder<K>>,
    pub(super) view: Arc<SharedView<K>>,
    pub(super) shutdown: Shutdown,
    /// The last cache that was ready. It is read until the next cache is ready.
    last_ready: Mutex<Option<Reader>>,
    /// Dropped with the last user, which ends the task that follows the cache.
    users: watch::Sender<()>,
    /// Starts the task that follows the cache, once the view is needed. An informer that stores
    /// bytes and has no indexes needs no view.
    follower: Once,
}

// === impl Shared ===

impl<K: DeserializeOwned + Send + Sync + 'static> Shared<K> {
    /// Creates what the users of an informer of `source` share. Its tasks belong to `shutdown`.
    pub(super) fn new(
        source: Source,
        resource: Arc<Resource>,
        config: Config,
        shutdown: Shutdown,
    ) -> Self {
        let decoder = Arc::new(Decoder::new(resource, config.on_decode_error));
        let selection = Arc::new(config.selection);
        let keeps_objects = config.storage == Storage::Decoded;
        let view = View::new(Arc::clone(&selection), Arc::clone(&decoder), keeps_objects);
        let shared = Self {
            source,
            selection,
            storage: config.storage,
            decoder,
            view: Arc::new(SharedView::new(view, drop_elsewhere)),
            shutdown,
            last_ready: Mutex::default(),
            users: watch::Sender::new(()),
            follower: Once::new(),
        };
        if keeps_objects {
            shared.keep_view();
        }
        shared
    }

    /// Makes the view follow the cache from now on, in the background.
    pub(super) fn keep_view(&self) {
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

impl<K: DeserializeOwned> Shared<K> {
    /// Waits until the decoded objects are loaded, if the informer stores them. Cancel safe.
    pub(super) async fn loaded(&self) {
        if self.storage == Storage::Decoded {
            self.view.loaded().await;
        }
    }

    /// Waits for the first complete list, and until decoded objects are loaded. Returns false if
    /// the informer ended before that. Cancel safe.
    pub(super) async fn wait_for_sync(&self) -> bool {
        self.loaded().await;
        let is_synced = self.source.clone().next_ready().await.is_some();
        self.reader();
        is_synced
    }

    /// Returns the reader of the present cache if that cache is or was ready. Otherwise returns the
    /// reader of the last cache that was ready.
    pub(super) fn reader(&self) -> Option<Reader> {
        let current = self.source.current()?;
        let mut last = self.last_ready.lock();
        let is_last = |last: &Reader| last.is_of_same_cache(&current);
        let mut replaced = None;
        if !last.as_ref().is_some_and(is_last)
            && (current.is_ready() || current.last_snapshot().is_some())
        {
            current.keep_lost();
            replaced = last.replace(current);
        }
        let reader = last.clone();
        // The last reader of a cache frees what it has kept, which must not happen under the lock.
        drop(last);
        if let Some(replaced) = replaced {
            drop_elsewhere(replaced);
        }
        reader
    }

    /// Returns the newest state of the last cache that was ready.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        self.reader()?.last_snapshot()
    }

    /// Returns the view, with everything that the cache has applied.
    pub(super) fn view(&self) -> RwLockReadGuard<'_, View<K>> {
        self.view.current(|| self.reader())
    }

    /// Makes the view apply what the cache has applied, and yields between the steps. Afterwards a
    /// handler, and the listers that it reads, find little to apply. Cancel safe.
    pub(super) async fn catch_up(&self) {
        let mut budget = CoopBudget::new();
        while self.storage == Storage::Decoded && !self.view.step(self.reader()) {
            budget.charge(UNITS_PER_STEP);
            budget.proceed().await;
        }
    }

    /// Returns the decoded form of the object at `key`, if the view is up to date after a few
    /// steps. If the view lacks more changes, the caller decodes the object of a snapshot.
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

    /// Returns the decoded form of `object`. Returns `None` if it cannot be decoded, and reports
    /// this unless the view has reported it. Charges `budget` if it decodes: many old states may
    /// follow each other that the view no longer has.
    pub(super) fn decode(&self, object: &Arc<Object>, budget: &mut CoopBudget) -> Option<Arc<K>> {
        let kept = match self.storage {
            Storage::Bytes => None,
            Storage::Decoded => self.view.decoded(object),
        };
        kept.unwrap_or_else(|| {
            budget.charge(UNITS_PER_DECODED);
            self.decoder.decode_or_report(object)
        })
    }
}

/// Ends every wait for a view when its follower ends, even if the follower was
/// dropped or has panicked.
struct EndLoading<K: DeserializeOwned>(Arc<SharedView<K>>);

impl<K: DeserializeOwned> Drop for EndLoading<K> {
    fn drop(&mut self) {
        self.0.end_loading();
    }
}

/// Makes `view` apply the changes of the cache of `source`, so that readers of the view find little
/// to apply. Ends with the source.
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

/// Returns the pause after `pause`. If the view was current after `pause`, there are few changes,
/// or handlers apply each change before they report it. Then the task would only cost them time, so
/// the pause is doubled.
fn next_pause(pause: Duration, is_current: bool) -> Duration {
    if is_current {
        LONGEST_PAUSE.min(pause * 2)
    } else {
        PAUSE
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
