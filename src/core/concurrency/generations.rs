//! A map of bounded size.

use std::collections::HashMap;
use std::hash::Hash;

/// A map that forgets the keys that were not inserted for the longest time. It remembers at least
/// as many keys as one generation has, and at most twice as many.
///
/// When the young generation is full, it becomes the old one, and the previous old generation is
/// forgotten.
#[derive(Debug)]
pub struct Generations<K, V> {
    size: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// Creates an empty map with generations of `size` keys.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Inserts or replaces the value of `key`, in the young generation. Returns a generation that was
    /// forgotten, so that the caller can free it outside of its lock.
    pub fn insert(&mut self, key: K, value: V) -> Option<HashMap<K, V>> {
        let is_full = self.young.len() >= self.size && !self.young.contains_key(&key);
        let forgotten = is_full.then(|| {
            let young = std::mem::take(&mut self.young);
            std::mem::replace(&mut self.old, young)
        });
        self.young.insert(key, value);
        forgotten
    }

    /// Returns the number of stored values. A key that is in both generations counts twice.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Returns true if no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all keys, and returns them.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.size))
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_keys_are_remembered_and_the_number_of_keys_is_bounded() {
        const SIZE: u32 = 10;
        let mut map = Generations::new(SIZE as usize);
        for number in 0..100 * SIZE {
            map.insert(number, number);
            // It is inserted again and again.
            map.insert(u32::MAX, number);
            assert_eq!(map.get(&u32::MAX), Some(&number));
            let last = number.saturating_sub(SIZE - 2)..=number;
            assert!(
                last.clone().all(|last| map.get(&last) == Some(&last)),
                "{last:?}"
            );
            assert!(map.young.len() + map.old.len() <= 2 * SIZE as usize);
        }
        assert_eq!(map.get(&0), None);
        map.remove(&u32::MAX);
        assert_eq!(map.get(&u32::MAX), None);
    }
}
