//! A shard of the answers, with its own lock and its own limits.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::entry::{Entry, Known, Weight};

/// Functions that return how many bytes are stored for a question, and how many more for its
/// answer.
pub(super) type Weights<Q, V> = (fn(&Q) -> usize, fn(&V) -> usize);

pub(super) type UsefulFor<V> = dyn Fn(&V) -> Duration + Send + Sync;

pub(super) struct Shard<Q, V> {
    pub(super) entries: RwLock<Entries<Q, V>>,
    /// The number of entries above which the least useful ones are dropped.
    pub(super) capacity: usize,
    /// The weight of all entries above which the least useful ones are dropped.
    pub(super) max_weight: usize,
    /// The weight of all entries.
    pub(super) weight: Arc<AtomicUsize>,
}

type Entries<Q, V> = HashMap<Q, Arc<Entry<V>>>;

impl<Q: Eq + Hash, V: Clone> Shard<Q, V> {
    /// Returns the entry of `question`, and adds one if there is none. `useful_for` returns how
    /// long an answer is of use after it has expired.
    pub(super) fn entry(
        &self,
        question: &Q,
        useful_for: &UsefulFor<V>,
        (of_question, of_answer): Weights<Q, V>,
    ) -> Arc<Entry<V>>
    where
        Q: Clone,
    {
        if let Some(entry) = self.entries.read().get(question) {
            return Arc::clone(entry);
        }
        let mut entries = self.entries.write();
        if entries.len() >= self.capacity || self.weight() >= self.max_weight {
            self.make_room(&mut entries, useful_for);
        }
        let entry = entries.entry(question.clone()).or_insert_with(|| {
            let weight = Weight::of_question(&self.weight, of_question(question));
            Arc::new(Entry::new(weight, of_answer))
        });
        Arc::clone(entry)
    }

    pub(super) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// Drops entries until an eighth of the capacity is free: first the entries that are not of use
    /// any more, then those that will be of use for the shortest time. Does not drop entries that a
    /// caller waits for. So it is called again only after as many new questions as an eighth of the
    /// capacity.
    fn make_room(&self, entries: &mut Entries<Q, V>, useful_for: &UsefulFor<V>) {
        let useful_until = |entry: &Entry<V>| {
            let known = entry.known.read();
            let until = |known: &Known<V>| known.until + useful_for(&known.value);
            known.as_ref().map(until)
        };
        let ends = entries.values();
        let mut ends: Vec<_> = ends
            .map(|entry| (useful_until(entry), entry.weight.get()))
            .collect();
        ends.sort_unstable();
        let mut end = Some(Instant::now());
        let (mut count, mut left) = (ends.len(), self.weight());
        for (useful_until, weight) in ends {
            if count <= self.capacity / 8 * 7 && left <= self.max_weight / 8 * 7 {
                break;
            }
            // An entry that a caller waits for may not be in the map any more, or may just become
            // heavier.
            (count, left) = (count - 1, left.saturating_sub(weight));
            end = end.max(useful_until);
        }
        entries.retain(|_, entry| Arc::strong_count(entry) > 1 || useful_until(entry) > end);
    }
}
