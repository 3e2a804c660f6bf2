//! DeltaFifo: the queue, and the changes that were popped from it.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use kubefan_core::api::{Object, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

use super::delta::{Delta, Deltas};
use super::state::{State, Taken};
use crate::work_queue::until_some;

/// A queue of the changes of objects, grouped by object; see the [module's documentation](super).
pub struct DeltaFifo<K: Clone + Eq + Hash, T: Clone> {
    state: Mutex<State<K, T>>,
    key_of: Box<dyn Fn(&T) -> K + Send + Sync>,
    /// Wakes one consumer when an object is queued, and all consumers when the queue is closed.
    queued: Notify,
    /// Wakes the calls of [`DeltaFifo::synced`].
    synced: Notify,
}

/// The changes of one object, for a consumer that processes them.
///
/// Until this value is dropped, no other consumer gets changes of the object. If it is dropped
/// without [`Popped::done`], for example because the consumer is cancelled or panics, the changes
/// are queued again, behind those of other objects.
#[must_use = "dropping it queues the changes again"]
pub struct Popped<'a, K: Clone + Eq + Hash, T: Clone> {
    fifo: &'a DeltaFifo<K, T>,
    taken: Taken<K, T>,
    is_processed: bool,
}

// === impl DeltaFifo ===

impl DeltaFifo<ObjectKey, Arc<Object>> {
    /// Creates an empty queue for the objects of one resource, for a
    /// [`Controller`](super::Controller).
    pub fn of_objects() -> Self {
        Self::new(|object: &Arc<Object>| object.key.clone())
    }
}

impl<K: Clone + Eq + Hash, T: Clone> DeltaFifo<K, T> {
    /// Creates an empty queue of objects that `key_of` identifies.
    pub fn new(key_of: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::default(),
            key_of: Box::new(key_of),
            queued: Notify::new(),
            synced: Notify::new(),
        }
    }

    /// Queues that `object` was added.
    pub fn add(&self, object: T) {
        self.change(Delta::Added(object));
    }

    /// Queues that `object` changed.
    pub fn update(&self, object: T) {
        self.change(Delta::Updated(object));
    }

    /// Queues that `object` was deleted; `object` is its last state. Does nothing if a list already
    /// showed the deletion, so that the object does not exist.
    pub fn delete(&self, object: T) {
        self.change(Delta::Deleted(object));
    }

    /// Like [`DeltaFifo::delete`], if `object` may not be the last state.
    pub fn delete_final_state_unknown(&self, object: T) {
        self.change(Delta::DeletedFinalStateUnknown(object));
    }

    /// Queues a list of all objects. Objects that exist but are not in the list are queued as
    /// [`Delta::DeletedFinalStateUnknown`], in any order. An object exists if it was processed, is
    /// in process or is in the queue, and is not deleted.
    pub fn replace(&self, objects: impl IntoIterator<Item = T>) {
        let objects = objects.into_iter();
        // The program's functions are called without the lock.
        let objects: Vec<_> = objects
            .map(|object| ((self.key_of)(&object), object))
            .collect();
        self.with_state(|state| state.replace(objects));
    }

    /// Queues each processed object as [`Delta::Sync`], in any order, unless changes of it are in
    /// the queue or in process.
    pub fn resync(&self) {
        self.with_state(State::resync);
    }

    /// Waits for changes, and returns all queued changes of one object. This is the object that has
    /// waited longest among those that are not in process. Returns `None` when the queue is closed
    /// and no such object is left.
    ///
    /// Cancel safe: a dropped call has taken nothing.
    pub async fn pop(&self) -> Option<Popped<'_, K, T>> {
        // A consumer that finds changes at each call must let other tasks run, too.
        consume_budget().await;
        let taken = until_some(&self.queued, || {
            let mut state = self.state.lock();
            let taken = state.take();
            if taken.is_some() && state.len() > 0 {
                self.queued.notify_one();
            }
            (taken.is_some() || state.is_closed).then_some(taken)
        });
        Some(Popped {
            fifo: self,
            taken: taken.await?,
            is_processed: false,
        })
    }

    /// Returns true when each object of the first [`DeltaFifo::replace`] was processed once,
    /// successfully or not. Also returns true if another change was queued before the first
    /// [`DeltaFifo::replace`].
    pub fn has_synced(&self) -> bool {
        self.state.lock().has_synced()
    }

    /// Waits until [`DeltaFifo::has_synced`] is true. Cancel safe.
    pub async fn synced(&self) {
        until_some(&self.synced, || self.has_synced().then_some(())).await;
    }

    /// Makes [`DeltaFifo::pop`] return `None` when the queue is empty.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.queued.notify_waiters();
    }

    /// Counts the objects that wait for a consumer, without those in process.
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Returns true if no object waits for a consumer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the object `key` in the state that was processed last. Returns `None` if no state
    /// was processed, or if the object was deleted.
    pub fn known(&self, key: &K) -> Option<T> {
        self.state.lock().known.get(key).cloned()
    }

    /// Returns all objects in the states that were processed last, in any order,
    /// without deleted ones.
    pub fn all_known(&self) -> Vec<T> {
        self.state.lock().known.values().cloned().collect()
    }

    fn change(&self, delta: Delta<T>) {
        let key = (self.key_of)(delta.object());
        self.with_state(|state| state.change(key, delta));
    }

    /// Changes the state, and wakes a consumer if objects were queued. One wake is enough: each
    /// consumer wakes the next one.
    fn with_state<R>(&self, change: impl FnOnce(&mut State<K, T>) -> R) -> R {
        let (has_more, has_synced, result) = {
            let mut state = self.state.lock();
            let (length, was_synced) = (state.len(), state.has_synced());
            let result = change(&mut state);
            let has_synced = !was_synced && state.has_synced();
            (state.len() > length, has_synced, result)
        };
        if has_more {
            self.queued.notify_one();
        }
        if has_synced {
            self.synced.notify_waiters();
        }
        result
    }
}

debug_fields!([K: Clone + Eq + Hash, T: Clone] DeltaFifo<K, T>, |it| len: it.len());

// === impl Popped ===

impl<K: Clone + Eq + Hash, T: Clone> Popped<'_, K, T> {
    /// Returns the key of the object.
    pub fn key(&self) -> &K {
        &self.taken.key
    }

    /// Returns what happened to the object.
    pub fn deltas(&self) -> &Deltas<T> {
        &self.taken.deltas
    }

    /// Returns true if this is the first processing of an object of the first list.
    pub fn is_in_initial_list(&self) -> bool {
        self.taken.is_initial
    }

    /// Ends the processing. From now on [`DeltaFifo::known`] returns the newest of these states, or
    /// `None` if the object was deleted.
    pub fn done(mut self) {
        self.is_processed = true;
    }

    /// Queues the changes again, before later ones of the object. Dropping this value does that,
    /// too.
    pub fn requeue(self) {}
}

impl<K: Clone + Eq + Hash, T: Clone> Drop for Popped<'_, K, T> {
    fn drop(&mut self) {
        let (taken, is_processed) = (&self.taken, self.is_processed);
        let finish = |state: &mut State<K, T>| state.finish(taken, is_processed);
        let replaced = self.fifo.with_state(finish);
        // The lock is not held, because dropping an object may run any code of the program.
        drop(replaced);
    }
}

debug_fields!(
    [K: Clone + Eq + Hash + Debug, T: Clone + Debug] Popped<'_, K, T>,
    |it| key: it.key(), deltas: it.deltas()
);
