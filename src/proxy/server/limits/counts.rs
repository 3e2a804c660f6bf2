//! Counts by key, and the values that are counted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// A number for each key, and their sum. Clones share the numbers.
pub(super) struct Counts<K>(Arc<Mutex<Numbers<K>>>);

/// Keys with number 0 have no entry.
struct Numbers<K> {
    of_keys: HashMap<K, usize>,
    total: usize,
}

/// Counts as one in the number of a key, until it is dropped.
pub(in crate::server) struct Counted<K: Hash + Eq> {
    counts: Counts<K>,
    key: K,
}

/// Sets of values, one for each owner. A value may be in a set several times. Owners without a
/// value have no entry. Clones share the sets.
pub(super) struct Distinct<O, V>(Arc<Mutex<HashMap<O, Set<V>>>>);

/// The values of one owner, and how often each is in the set.
struct Set<V> {
    counts: HashMap<V, usize>,
    /// The units of all different values.
    units: usize,
}

/// A value in the set of its owner, until it is dropped.
pub(in crate::server) struct DistinctShare<O: Hash + Eq, V: Hash + Eq> {
    sets: Distinct<O, V>,
    owner: O,
    value: V,
    units: usize,
}

// === impl Counts ===

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Numbers {
            of_keys: HashMap::new(),
            total: 0,
        })))
    }
}

impl<K> Clone for Counts<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Hash + Eq + Clone> Counts<K> {
    /// Adds one to the number of `key` if `may_add` returns true for that number and the sum of all
    /// numbers. Returns `None` otherwise.
    pub(super) fn add(
        &self,
        key: K,
        may_add: impl FnOnce(usize, usize) -> bool,
    ) -> Option<Counted<K>> {
        let mut numbers = self.0.lock();
        let held = numbers.of_keys.get(&key).copied().unwrap_or_default();
        if !may_add(held, numbers.total) {
            return None;
        }
        numbers.of_keys.insert(key.clone(), held + 1);
        numbers.total += 1;
        let counts = self.clone();
        Some(Counted { counts, key })
    }

    /// Returns the number of `key`, and the sum of all numbers.
    pub(super) fn of(&self, key: &K) -> (usize, usize) {
        let numbers = self.0.lock();
        let held = numbers.of_keys.get(key).copied().unwrap_or_default();
        (held, numbers.total)
    }

    /// Returns the numbers that are not 0, and their sum.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> (HashMap<K, usize>, usize) {
        let numbers = self.0.lock();
        (numbers.of_keys.clone(), numbers.total)
    }
}

impl<K: Hash + Eq> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut numbers = self.counts.0.lock();
        subtract(&mut numbers.of_keys, &self.key);
        numbers.total -= 1;
    }
}

/// Subtracts one from the number of `key`.
fn subtract<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    let Some(count) = counts.get_mut(key) else {
        return;
    };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

// === impl Distinct ===

impl<O, V> Default for Distinct<O, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<O, V> Clone for Distinct<O, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Hash + Eq + Clone, V: Hash + Eq + Clone> Distinct<O, V> {
    /// Adds `value` to the set of `owner`. Returns `None` if it is not in it and the set would have
    /// more than `limit` units. Equal values must have equal `units`.
    pub(super) fn add(
        &self,
        owner: O,
        (value, units): (V, usize),
        limit: usize,
    ) -> Option<DistinctShare<O, V>> {
        let mut sets = self.0.lock();
        let known = sets.get(&owner);
        let held = known.map_or(0, |set| set.units);
        let is_held = known.is_some_and(|set| set.counts.contains_key(&value));
        if !is_held && held.saturating_add(units) > limit {
            return None;
        }
        let set = sets.entry(owner.clone()).or_insert_with(|| Set {
            counts: HashMap::new(),
            units: 0,
        });
        set.units += if is_held { 0 } else { units };
        *set.counts.entry(value.clone()).or_default() += 1;
        let sets = self.clone();
        Some(DistinctShare {
            sets,
            owner,
            value,
            units,
        })
    }

    /// Returns the units of all different values in the set of `owner`.
    pub(super) fn units(&self, owner: &O) -> usize {
        self.0.lock().get(owner).map_or(0, |set| set.units)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl<O: Hash + Eq, V: Hash + Eq> Drop for DistinctShare<O, V> {
    fn drop(&mut self) {
        let mut sets = self.sets.0.lock();
        let Some(set) = sets.get_mut(&self.owner) else {
            return;
        };
        subtract(&mut set.counts, &self.value);
        if !set.counts.contains_key(&self.value) {
            set.units -= self.units;
        }
        if set.counts.is_empty() {
            sets.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_limited_by_its_different_values() {
        let sets = Distinct::default();
        let add = |owner: u8, value: &'static str| sets.add(owner, (value, 1), 2);
        let held = [add(1, "a"), add(1, "b"), add(1, "a"), add(2, "c")];
        assert!(held.iter().all(Option::is_some));
        assert_eq!([1, 2, 3].map(|owner| sets.units(&owner)), [2, 1, 0]);
        assert!(add(1, "c").is_none());
        let [first, second, again, other] = held;
        drop(first);
        assert!(add(1, "c").is_none(), "the value is held once more");
        drop(again);
        assert!(add(1, "c").is_some());
        assert!(sets.add(1, ("c", 2), 2).is_none());
        drop((second, other));
        assert!(sets.is_empty());
    }
}
