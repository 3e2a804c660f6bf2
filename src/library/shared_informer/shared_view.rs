//! SharedView: a view that many tasks read, and bring up to date in short steps.

use std::sync::Arc;

use kubefan_core::api::Object;
use kubefan_core::cache::Reader;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::index::{IndexError, IndexFunction};
use super::view::{Phase, STEP, Unused, View};

/// A view that many tasks read. Each of them may bring it up to date.
pub(super) struct SharedView<K> {
    view: RwLock<View<K>>,
    /// Frees what the view no longer needs, on another thread if possible.
    free: fn(Unused<K>),
    /// True once the view has loaded all objects, or will never have any.
    loaded: watch::Sender<bool>,
}

/// Removes the index on drop, because the index function has panicked.
struct AddingIndex<'a, K: DeserializeOwned> {
    view: &'a SharedView<K>,
    name: &'a str,
}

// === impl SharedView, AddingIndex ===

impl<K: DeserializeOwned> Drop for AddingIndex<'_, K> {
    fn drop(&mut self) {
        self.view.view.write().remove_index(self.name);
    }
}

impl<K: DeserializeOwned> SharedView<K> {
    pub(super) fn new(view: View<K>, free: fn(Unused<K>)) -> Self {
        Self {
            view: RwLock::new(view),
            free,
            loaded: watch::Sender::new(false),
        }
    }

    /// Returns the view of the cache of `reader`, with everything that the cache has applied.
    /// First applies what the view lacks, in steps between which other readers may read. Calls
    /// `reader` for each step: if two callers had got their caches at different times, they would
    /// undo each other's steps.
    pub(super) fn current(
        &self,
        reader: impl Fn() -> Option<Reader>,
    ) -> RwLockReadGuard<'_, View<K>> {
        loop {
            let present = reader();
            if let Some(view) = self.if_current(present.as_ref()) {
                return view;
            }
            let mut view = self.view.write();
            view.follow(present);
            if view.advance(STEP) && view.unused.is_empty() {
                return RwLockWriteGuard::downgrade(view);
            }
            self.unlock(view);
        }
    }

    /// Unlocks the view after a step, so that waiting readers are next.
    fn unlock(&self, mut view: RwLockWriteGuard<'_, View<K>>) {
        let unused = std::mem::take(&mut view.unused);
        RwLockWriteGuard::unlock_fair(view);
        let large = unused.into_iter().filter(Unused::is_large);
        large.for_each(self.free);
    }

    /// Returns the view of the cache of `reader`, if it has everything that the cache has applied.
    pub(super) fn if_current(
        &self,
        reader: Option<&Reader>,
    ) -> Option<RwLockReadGuard<'_, View<K>>> {
        let view = self.view.read();
        (view.follows(reader) && view.is_current()).then_some(view)
    }

    /// Returns the decoded form of exactly this state of an object, like [`View::decoded`]. The
    /// view may lack later changes.
    pub(super) fn decoded(&self, object: &Arc<Object>) -> Option<Option<Arc<K>>> {
        self.view.read().decoded(object)
    }

    /// Applies a step of what the view of the cache of `reader` lacks. Returns true if nothing is
    /// left.
    pub(super) fn step(&self, reader: Option<Reader>) -> bool {
        if self.if_current(reader.as_ref()).is_some() {
            return true;
        }
        let mut view = self.view.write();
        view.follow(reader);
        let is_current = view.advance(STEP);
        self.unlock(view);
        is_current
    }

    /// Applies a step. Returns true if the view is up to date afterwards.
    pub(super) fn advance(&self) -> bool {
        let mut view = self.view.write();
        let is_current = view.advance(STEP);
        if is_current && view.is_following() {
            self.end_loading();
        }
        self.unlock(view);
        is_current
    }

    /// Returns true if the view has everything that the cache has applied.
    pub(super) fn is_current(&self) -> bool {
        self.view.read().is_current()
    }

    /// Waits until the view has loaded all objects once, or will never have any. Cancel safe.
    pub(super) async fn loaded(&self) {
        // The sender is a field of `self`, so there is no error.
        let _ = self.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// Ends all waits of [`SharedView::loaded`], also later ones.
    pub(super) fn end_loading(&self) {
        self.loaded
            .send_if_modified(|loaded| !std::mem::replace(loaded, true));
    }

    /// Waits until there is something to apply. Returns false if the cache was closed.
    pub(super) async fn changed(&self) -> bool {
        let (changed, reader) = {
            let view = self.view.read();
            match &view.phase {
                Phase::Loading(_) => return true,
                Phase::Following(cursor) => (Some(cursor.changed()), None),
                Phase::Waiting => (None, view.reader.clone()),
            }
        };
        match (changed, reader) {
            (Some(changed), _) => changed.await,
            (None, Some(reader)) => reader.ready().await,
            (None, None) => false,
        }
    }

    /// Follows the cache of `reader` from now on.
    pub(super) fn follow(&self, reader: Reader) {
        let mut view = self.view.write();
        view.follow(Some(reader));
        self.unlock(view);
    }

    /// Adds an index. It has all present objects when the view is [current](SharedView::current).
    /// Other readers may read between the steps of this.
    pub(super) fn add_index(
        &self,
        name: &str,
        function: IndexFunction<K>,
    ) -> Result<(), IndexError> {
        let added = self.begin_index(name, function);
        let adding = added.is_ok().then(|| AddingIndex { view: self, name });
        // If another caller is adding the index, it is complete for both afterwards.
        while !self.step_index(name) {}
        std::mem::forget(adding);
        added
    }

    /// Adds an index that [`SharedView::step_index`] completes. It is missing until then.
    pub(super) fn begin_index(
        &self,
        name: &str,
        function: IndexFunction<K>,
    ) -> Result<(), IndexError> {
        let mut view = self.view.write();
        let added = view.add_index(name, function);
        self.unlock(view);
        added
    }

    /// Adds a step of the view's objects to the new index `name`. Returns true if it has all.
    pub(super) fn step_index(&self, name: &str) -> bool {
        let mut view = self.view.write();
        let is_complete = view.fill_index(name, STEP);
        self.unlock(view);
        is_complete
    }
}

impl<K> Drop for SharedView<K> {
    /// Frees the view on another thread if possible: its last user may be a task.
    fn drop(&mut self) {
        let ended = Unused::View(Box::new(self.view.get_mut().take()));
        if ended.is_large() {
            (self.free)(ended);
        }
    }
}
