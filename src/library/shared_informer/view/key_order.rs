//! KeyOrder: the places of objects in the order of the objects' keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use kubefan_core::api::ObjectKey;

/// A chunk with more keys is split into two. Lower in tests, which have few objects.
const MAX_CHUNK: usize = if cfg!(test) { 8 } else { 512 };

/// Places by key, in chunks of neighbours. A change moves at most the entries of one chunk, so none
/// takes long. Keys that are added in order fill chunks that are mostly full, which makes lists
/// faster: a map has half empty nodes then.
pub(super) struct KeyOrder {
    /// The chunks by the lower end of their range of keys. The first begins at the empty key. Keys
    /// are in order within a chunk.
    chunks: BTreeMap<ObjectKey, Chunk>,
}

type Chunk = Vec<(ObjectKey, usize)>;

// === impl KeyOrder ===

impl KeyOrder {
    pub(super) fn new() -> Self {
        Self {
            chunks: BTreeMap::from([(ObjectKey::new(None, ""), Chunk::new())]),
        }
    }

    /// Adds the place of `key`, which has none yet.
    pub(super) fn insert(&mut self, key: ObjectKey, place: usize) {
        let Some((_, chunk)) = self.chunks.range_mut::<str, _>(up_to(&key)).next_back() else {
            return;
        };
        let at = chunk.partition_point(|(other, _)| *other < key);
        chunk.insert(at, (key, place));
        if chunk.len() <= MAX_CHUNK {
            return;
        }
        // If keys are added in order, the lower chunk gets no more, so it stays nearly full.
        let is_last = at + 1 == chunk.len();
        let kept = if is_last {
            MAX_CHUNK * 7 / 8
        } else {
            MAX_CHUNK / 2
        };
        let upper = chunk.split_off(kept);
        if let Some((start, _)) = upper.first() {
            self.chunks.insert(start.clone(), upper);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let Some((start, chunk)) = self.chunks.range_mut::<str, _>(up_to(key)).next_back() else {
            return;
        };
        if let Ok(at) = chunk.binary_search_by(|(other, _)| other.cmp(key)) {
            chunk.remove(at);
        }
        // The chunk before then has the range of the empty one.
        if chunk.is_empty() && !start.as_str().is_empty() {
            let start = start.clone();
            self.chunks.remove(&start);
        }
    }

    /// Returns the places of the keys above `after`, or of all keys, in the order of the keys.
    pub(super) fn after(&self, after: Option<&ObjectKey>) -> impl Iterator<Item = usize> {
        let first = after.and_then(|after| {
            let (start, _) = self.chunks.range::<str, _>(up_to(after)).next_back()?;
            Some(start.as_str())
        });
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        let chunks = self.chunks.range::<str, _>((from, Bound::Unbounded));
        let entries = chunks.flat_map(move |(_, chunk)| {
            let skipped = after.map_or(0, |after| chunk.partition_point(|(key, _)| key <= after));
            &chunk[skipped..]
        });
        entries.map(|(_, place)| *place)
    }
}

/// Returns the range of the keys up to `key`.
fn up_to(key: &ObjectKey) -> (Bound<&str>, Bound<&str>) {
    (Bound::Unbounded, Bound::Included(key.as_str()))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::new(Some("n"), &format!("thing-{number:04}"))
    }

    #[test]
    fn places_are_in_key_order_after_any_changes() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut order, mut model) = (KeyOrder::new(), BTreeMap::<ObjectKey, usize>::new());
        for place in 0..4_000 {
            // First there are more and more keys, and then fewer and fewer.
            let key = key(rng.random_range(0..400));
            if model.contains_key(&key) {
                order.remove(&key);
                model.remove(&key);
            } else if place < 2_000 || rng.random_bool(0.2) {
                order.insert(key.clone(), place);
                model.insert(key, place);
            }
            assert!(order.chunks.values().all(|chunk| chunk.len() <= MAX_CHUNK));
            if place % 16 == 0 {
                assert!(order.after(None).eq(model.values().copied()));
                let after = self::key(rng.random_range(0..400));
                let above = (Bound::Excluded(&after), Bound::Unbounded);
                let above = model.range::<ObjectKey, _>(above).map(|(_, place)| *place);
                assert!(order.after(Some(&after)).eq(above));
            }
        }
        for key in model.keys() {
            order.remove(key);
        }
        assert_eq!(order.after(None).count(), 0);
        assert_eq!(order.chunks.len(), 1);
    }

    #[test]
    fn keys_that_are_added_in_order_fill_the_chunks() {
        let mut order = KeyOrder::new();
        (0..700).for_each(|number| order.insert(key(number), number));
        assert!(order.after(None).eq(0..700));
        assert_eq!(order.chunks.len(), 100);
    }
}
