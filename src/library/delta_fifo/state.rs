//! The objects of a DeltaFIFO: processed, queued and in process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::delta::{Delta, Deltas};

pub(super) struct State<K, T> {
    /// The changes that were not popped.
    queued: HashMap<K, Deltas<T>>,
    /// The keys of `queued` that are not in process, in the order that they are popped.
    order: VecDeque<K>,
    /// The changes that were popped and are not finished.
    in_process: HashMap<K, Arc<Deltas<T>>>,
    /// The newest processed state of each object, without deleted objects.
    pub(super) known: HashMap<K, T>,
    /// True after the first change or list.
    is_populated: bool,
    /// The keys of the first list that were not popped.
    initial_queued: usize,
    /// The keys of the first list that were not processed once, successfully or not.
    initial_unfinished: usize,
    pub(super) is_closed: bool,
}

/// Changes that were popped.
pub(super) struct Taken<K, T> {
    pub(super) key: K,
    pub(super) deltas: Arc<Deltas<T>>,
    pub(super) is_initial: bool,
}

impl<K, T> Default for State<K, T> {
    fn default() -> Self {
        Self {
            queued: HashMap::new(),
            order: VecDeque::new(),
            in_process: HashMap::new(),
            known: HashMap::new(),
            is_populated: false,
            initial_queued: 0,
            initial_unfinished: 0,
            is_closed: false,
        }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> State<K, T> {
    /// Queues a change. A deletion of an object that does not exist is ignored.
    pub(super) fn change(&mut self, key: K, delta: Delta<T>) {
        self.is_populated = true;
        if !delta.is_deletion() || self.exists(&key) {
            self.push(key, delta);
        }
    }

    /// Queues a list of all objects, and the deletions that it implies.
    pub(super) fn replace(&mut self, objects: impl IntoIterator<Item = (K, T)>) {
        let mut listed = HashSet::new();
        for (key, object) in objects {
            listed.insert(key.clone());
            self.push(key, Delta::Replaced(object));
        }
        let mut count = listed.len();
        for (key, object) in self.vanished(&listed) {
            self.push(key, Delta::DeletedFinalStateUnknown(object));
            count += 1;
        }
        if !self.is_populated {
            self.is_populated = true;
            self.initial_queued = count;
            self.initial_unfinished = count;
        }
    }

    /// Queues the processed objects that have no changes in the queue or in process.
    pub(super) fn resync(&mut self) {
        let is_idle =
            |key: &K| !self.queued.contains_key(key) && !self.in_process.contains_key(key);
        let known = self.known.iter().filter(|(key, _)| is_idle(key));
        let known: Vec<_> = known
            .map(|(k, object)| (k.clone(), object.clone()))
            .collect();
        for (key, object) in known {
            self.push(key, Delta::Sync(object));
        }
    }

    pub(super) fn take(&mut self) -> Option<Taken<K, T>> {
        let key = self.order.pop_front()?;
        let deltas = Arc::new(self.queued.remove(&key)?);
        self.in_process.insert(key.clone(), Arc::clone(&deltas));
        let is_initial = self.initial_queued > 0;
        self.initial_queued -= usize::from(is_initial);
        Some(Taken {
            key,
            deltas,
            is_initial,
        })
    }

    /// Ends the processing of changes. If `is_processed` is false, queues them again. Otherwise
    /// returns the state of the object that was processed before them.
    pub(super) fn finish(&mut self, taken: &Taken<K, T>, is_processed: bool) -> Option<T> {
        let Taken {
            key,
            deltas,
            is_initial,
        } = taken;
        self.in_process.remove(key);
        self.initial_unfinished -= usize::from(*is_initial);
        let replaced = match deltas.newest() {
            _ if !is_processed => {
                self.queue_again(key, deltas);
                None
            }
            newest if newest.is_deletion() => self.known.remove(key),
            newest => self.known.insert(key.clone(), newest.object().clone()),
        };
        if self.queued.contains_key(key) {
            self.order.push_back(key.clone());
        }
        replaced
    }

    /// Puts popped changes before the changes that were queued after they were popped.
    fn queue_again(&mut self, key: &K, deltas: &Deltas<T>) {
        let later = self.queued.remove(key);
        let mut deltas = deltas.clone();
        for delta in later.into_iter().flatten() {
            deltas.push(delta);
        }
        self.queued.insert(key.clone(), deltas);
    }

    fn push(&mut self, key: K, delta: Delta<T>) {
        if let Some(deltas) = self.queued.get_mut(&key) {
            deltas.push(delta);
            return;
        }
        if !self.in_process.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.queued.insert(key, Deltas::new(delta));
    }

    /// Returns true if an object exists after all its changes. Also returns true if its deletion is
    /// in the queue: another deletion is then merged with the queued one.
    fn exists(&self, key: &K) -> bool {
        match self.in_process.get(key) {
            _ if self.queued.contains_key(key) => true,
            Some(deltas) => !deltas.newest().is_deletion(),
            None => self.known.contains_key(key),
        }
    }

    /// Returns the objects that exist but are not listed, in their newest state.
    fn vanished(&self, listed: &HashSet<K>) -> Vec<(K, T)> {
        let queued = self.queued.iter();
        let queued = queued.map(|(key, deltas)| (key, deltas.newest().object()));
        let in_process = self.in_process.iter();
        let in_process = in_process
            .filter(|(key, deltas)| {
                !self.queued.contains_key(key) && !deltas.newest().is_deletion()
            })
            .map(|(key, deltas)| (key, deltas.newest().object()));
        let known = self.known.iter();
        let known = known.filter(|(key, _)| {
            !self.queued.contains_key(key) && !self.in_process.contains_key(key)
        });
        queued
            .chain(in_process)
            .chain(known)
            .filter(|(key, _)| !listed.contains(key))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    }

    pub(super) fn has_synced(&self) -> bool {
        self.is_populated && self.initial_unfinished == 0
    }

    /// Counts the objects that [`State::take`] returns, one after another.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
