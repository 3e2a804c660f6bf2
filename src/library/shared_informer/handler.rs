//! Event handlers: callbacks for the changes of a shared informer.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Change, Changes, Deleted};

/// Receives each change of a shared informer's objects, one call at a time and in order.
///
/// The next call begins when the previous call has completed. A slow handler delays only itself;
/// see the [module](super).
pub trait EventHandler<K: Send + Sync + 'static>: Send + 'static {
    /// Called for an object that is new to the handler. `is_initial_list` is true if the object was
    /// present when the handler was added. Default does nothing.
    fn on_add(&mut self, object: Arc<K>, is_initial_list: bool) -> impl Future<Output = ()> + Send {
        let _ = (object, is_initial_list);
        std::future::ready(())
    }

    /// Called for an object that the handler received last as `old`. At a resync, `old` and `new`
    /// are equal. Default does nothing.
    fn on_update(&mut self, old: Arc<K>, new: Arc<K>) -> impl Future<Output = ()> + Send {
        let _ = (old, new);
        std::future::ready(())
    }

    /// Called for an object that is gone. Default does nothing.
    fn on_delete(&mut self, deleted: Deleted<K>) -> impl Future<Output = ()> + Send {
        let _ = deleted;
        std::future::ready(())
    }
}

/// A handler of plain functions. Functions that are not set do nothing.
///
/// ```
/// # use kubefan::shared_informer::HandlerFunctions;
/// # struct Pod { name: String }
/// let handler = HandlerFunctions::<Pod>::new()
///     .on_add(|pod, _is_initial_list| println!("added {}", pod.name))
///     .on_delete(|deleted| println!("deleted {}", deleted.object.name));
/// ```
pub struct HandlerFunctions<K> {
    on_add: Box<dyn FnMut(Arc<K>, bool) + Send>,
    on_update: Box<dyn FnMut(Arc<K>, Arc<K>) + Send>,
    on_delete: Box<dyn FnMut(Deleted<K>) + Send>,
}

/// A handler that sees only the objects that a function accepts.
///
/// If the function accepts only the state after an update, the handler sees an addition. If the
/// function accepts only the state before the update, the handler sees a deletion.
pub struct Filtering<F, H> {
    accepts: F,
    handler: H,
}

/// A handler that was added to a shared informer. Dropping this does not remove the handler.
#[derive(Debug)]
pub struct HandlerRegistration {
    synced: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

// === impl HandlerFunctions ===

impl<K> HandlerFunctions<K> {
    /// Creates a handler that does nothing yet.
    pub fn new() -> Self {
        Self {
            on_add: Box::new(|_, _| {}),
            on_update: Box::new(|_, _| {}),
            on_delete: Box::new(|_| {}),
        }
    }

    /// Sets the function for [`EventHandler::on_add`].
    #[must_use]
    pub fn on_add(mut self, function: impl FnMut(Arc<K>, bool) + Send + 'static) -> Self {
        self.on_add = Box::new(function);
        self
    }

    /// Sets the function for [`EventHandler::on_update`].
    #[must_use]
    pub fn on_update(mut self, function: impl FnMut(Arc<K>, Arc<K>) + Send + 'static) -> Self {
        self.on_update = Box::new(function);
        self
    }

    /// Sets the function for [`EventHandler::on_delete`].
    #[must_use]
    pub fn on_delete(mut self, function: impl FnMut(Deleted<K>) + Send + 'static) -> Self {
        self.on_delete = Box::new(function);
        self
    }
}

impl<K> Default for HandlerFunctions<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Send + Sync + 'static> EventHandler<K> for HandlerFunctions<K> {
    async fn on_add(&mut self, object: Arc<K>, is_initial_list: bool) {
        (self.on_add)(object, is_initial_list);
    }

    async fn on_update(&mut self, old: Arc<K>, new: Arc<K>) {
        (self.on_update)(old, new);
    }

    async fn on_delete(&mut self, deleted: Deleted<K>) {
        (self.on_delete)(deleted);
    }
}

// === impl Filtering ===

impl<F, H> Filtering<F, H> {
    /// Passes the changes of the objects that `accepts` returns true for on to `handler`.
    pub fn new(accepts: F, handler: H) -> Self {
        Self { accepts, handler }
    }
}

impl<K, F, H> EventHandler<K> for Filtering<F, H>
where
    K: Send + Sync + 'static,
    F: Fn(&K) -> bool + Send + Sync + 'static,
    H: EventHandler<K>,
{
    async fn on_add(&mut self, object: Arc<K>, is_initial_list: bool) {
        if (self.accepts)(&object) {
            self.handler.on_add(object, is_initial_list).await;
        }
    }

    async fn on_update(&mut self, old: Arc<K>, new: Arc<K>) {
        match ((self.accepts)(&old), (self.accepts)(&new)) {
            (true, true) => self.handler.on_update(old, new).await,
            (false, true) => self.handler.on_add(new, false).await,
            (true, false) => {
                let deleted = Deleted {
                    object: old,
                    is_final_state_known: true,
                };
                self.handler.on_delete(deleted).await;
            }
            (false, false) => {}
        }
    }

    async fn on_delete(&mut self, deleted: Deleted<K>) {
        if (self.accepts)(&deleted.object) {
            self.handler.on_delete(deleted).await;
        }
    }
}

// === impl HandlerRegistration ===

impl HandlerRegistration {
    /// Returns true if the handler was called for all objects that were present when it was added.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until [`HandlerRegistration::has_synced`] is true, and returns true. Returns false if
    /// the handler ended before that. Cancel safe.
    pub async fn synced(&mut self) -> bool {
        self.synced.wait_for(|synced| *synced).await.is_ok()
    }

    /// Removes the handler. The returned future completes when a call that is in progress has
    /// ended, and need not be awaited. A handler must not await its own removal.
    ///
    /// # Panics
    ///
    /// The future panics if the handler has panicked.
    pub fn remove(self) -> impl Future<Output = ()> + Send {
        self.stop.send_replace(true);
        async move {
            if let Err(error) = self.task.await
                && let Ok(panic) = error.try_into_panic()
            {
                resume_unwind(panic);
            }
        }
    }

    pub(super) fn spawn<K, H>(
        mut changes: Changes<K>,
        mut handler: H,
        spawn: impl FnOnce(Calls) -> JoinHandle<()>,
    ) -> Self
    where
        K: DeserializeOwned + Send + Sync + 'static,
        H: EventHandler<K>,
    {
        let synced = changes.synced();
        let (stop, mut stopped) = watch::channel(false);
        let calls = async move {
            loop {
                let change = tokio::select! {
                    biased;
                    Ok(_) = stopped.wait_for(|stopped| *stopped) => return,
                    change = changes.next() => change,
                };
                match change {
                    Some(Change::Added {
                        object,
                        is_initial_list,
                    }) => handler.on_add(object, is_initial_list).await,
                    Some(Change::Updated { old, new }) => handler.on_update(old, new).await,
                    Some(Change::Deleted(deleted)) => handler.on_delete(deleted).await,
                    None => return,
                }
            }
        };
        let calls = async move {
            if let Err(panic) = AssertUnwindSafe(calls).catch_unwind().await {
                tracing::error!("an event handler has panicked, and is not called again");
                resume_unwind(panic);
            }
        };
        let task = spawn(Box::pin(calls));
        Self { synced, stop, task }
    }
}

/// The calls of one handler.
type Calls = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
