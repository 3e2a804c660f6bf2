//! Ranks: how many keys are below a given one, without a walk over all of them.

use std::ops::Bound;

use imbl::OrdMap;

use crate::api::ObjectKey;
use crate::cache::objects::key_range::{KeyRange, Objects};

/// A chunk with more keys is split into two.
const MAX_CHUNK: usize = 512;
/// A chunk with fewer keys is joined to the one before it, if the two have room in one.
const MIN_CHUNK: usize = MAX_CHUNK / 4;

/// The keys of a store in chunks of neighbours. A clone shares all data with the original.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    /// The number of keys in each chunk, by the lower end of the chunk's range of keys. The first
    /// chunk begins at the empty key.
    chunks: OrdMap<ObjectKey, usize>,
}

/// A number of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) keys: usize,
    /// How many objects and chunks were examined to find it.
    pub(super) examined: usize,
}

// === impl Ranks ===

impl Ranks {
    pub(super) fn new() -> Self {
        Self {
            chunks: OrdMap::unit(ObjectKey::new(None, ""), 0),
        }
    }

    /// Adds `key`, which was just inserted in `objects`.
    pub(super) fn insert(&mut self, key: &ObjectKey, objects: &Objects) {
        let Some((start, count)) = self.chunks.get_prev_mut(key) else {
            return;
        };
        *count += 1;
        if *count <= MAX_CHUNK {
            return;
        }
        let (lower, upper) = (*count / 2, *count - *count / 2);
        *count = lower;
        let from = (Bound::Included(start.as_str()), Bound::Unbounded);
        if let Some((middle, _)) = objects.range::<_, str>(from).nth(lower) {
            self.chunks.insert(middle.clone(), upper);
        }
    }

    /// Removes `key`, which was just removed from the store.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let Some((start, count)) = self.chunks.get_prev_mut(key) else {
            return;
        };
        *count -= 1;
        if *count >= MIN_CHUNK {
            return;
        }
        let (start, count) = (start.clone(), *count);
        let below = (Bound::Unbounded, Bound::Excluded(start.as_str()));
        let before = self.chunks.range::<_, str>(below).next_back();
        if let Some((before, before_count)) = before
            && count + before_count <= MAX_CHUNK
        {
            let (before, joined) = (before.clone(), count + before_count);
            self.chunks.insert(before, joined);
            self.chunks.remove(&start);
        }
    }

    /// Returns the number of keys of `objects` in `range`.
    pub(super) fn count(&self, range: &KeyRange, objects: &Objects) -> Count {
        let none = Count::default();
        if range.is_empty() {
            return none;
        }
        let whole = Count {
            keys: objects.len(),
            ..none
        };
        let upper = range.to.as_deref();
        let upper = upper.map_or(whole, |to| self.below(Bound::Excluded(to), objects));
        let lower = match &range.from {
            Bound::Unbounded => none,
            Bound::Included(from) => self.below(Bound::Excluded(from), objects),
            Bound::Excluded(from) => self.below(Bound::Included(from), objects),
        };
        Count {
            keys: upper.keys - lower.keys,
            examined: upper.examined + lower.examined,
        }
    }

    /// Returns the number of keys of `objects` up to the bound `to`.
    fn below(&self, to: Bound<&str>, objects: &Objects) -> Count {
        let chunks = self.chunks.range::<_, str>((Bound::Unbounded, to));
        let (mut keys, mut examined, mut last) = (0, 0, None);
        for (start, count) in chunks {
            examined += 1;
            keys += last.map_or(0, |(_, count)| count);
            last = Some((start, *count));
        }
        let Some((start, _)) = last else {
            return Count { keys, examined };
        };
        let rest = objects.range::<_, str>((Bound::Included(start.as_str()), to));
        let rest = rest.count();
        Count {
            keys: keys + rest,
            examined: examined + rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::ProptestConfig;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::cache::objects::Store;
    use crate::cache::tests::support::{config, key, object};

    fn name(number: usize) -> String {
        format!("{}/p{number:05}", ["a", "a-b", "b"][number % 3])
    }

    fn insert(store: &mut Store, number: usize) {
        store.insert(Arc::new(object(&name(number), "u", 1, "web")));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn counts_are_those_of_a_walk(
            // The first number, how many follow it, and whether they are added or removed.
            changes in vec((0..3000_usize, 1..1500_usize, 0..3_u8), 1..8),
            after in 0..4500_usize,
        ) {
            let mut store = Store::new(&config());
            for (first, numbers, kind) in changes {
                for number in first..first + numbers {
                    match kind {
                        0 => drop(store.remove(&key(&name(number)))),
                        _ => insert(&mut store, number),
                    }
                }
            }
            let after = name(after);
            for namespace in [None, Some("a"), Some("a-b"), Some("b"), Some("c")] {
                for after in [None, Some(after.as_str()), Some("a-b/"), Some("z")] {
                    let in_namespace = |key: &&ObjectKey| {
                        namespace.is_none_or(|namespace| key.namespace() == namespace)
                            && after.is_none_or(|after| key.as_str() > after)
                    };
                    let keys = store.objects().map(|object| &object.key);
                    let expected = keys.filter(in_namespace).count();
                    let counted = store.count(namespace, after);
                    prop_assert_eq!(counted.keys, expected, "{:?} {:?}", namespace, after);
                    prop_assert!(counted.examined <= 2 * (MAX_CHUNK + store.len() / 16 + 2));
                }
            }
        }
    }

    #[test]
    fn the_rest_of_a_list_is_counted_without_a_walk() {
        const OBJECTS: usize = 60_000;
        let mut store = Store::new(&config());
        (0..OBJECTS).for_each(|number| insert(&mut store, number));
        for number in (0..OBJECTS).step_by(997) {
            let in_namespace = store.count(Some("a"), Some(&name(number)));
            let whole = store.count(None, Some(&name(number)));
            let examined = in_namespace.examined.max(whole.examined);
            assert!(examined <= 1_500, "{examined} of {OBJECTS}");
        }
        // The chunks of what was removed do not stay.
        for number in 100..OBJECTS {
            store.remove(&key(&name(number)));
        }
        let rest = store.count(None, Some(""));
        assert_eq!(rest.keys, 100);
        assert!(store.count(None, Some("b")).examined <= 100 + 10);
    }
}
