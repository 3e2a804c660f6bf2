//! SpaceSaving: keeps the keys with the largest weights, in bounded memory.
//!
//! The algorithm is Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of
//! Frequent and Top-k Elements in Data Streams", 2005), with weights that can be scaled down, so
//! that old ones lose their importance.

/// At most `capacity` keys, each with a weight and a value.
///
/// With the sum `w` of all weights that were added, and scaled since, each weight is at least the
/// key's true weight, and exceeds it by at most `w / capacity`. So each key with a true weight of
/// more than `w / capacity` is present.
///
/// Keys are hashes. They must come from a hash function that clients can't predict.
#[derive(Debug)]
pub(super) struct SpaceSaving<V> {
    capacity: usize,
    keys: Vec<u64>,
    weights: Vec<f64>,
    values: Vec<V>,
}

// === impl SpaceSaving ===

impl<V> SpaceSaving<V> {
    /// Creates an empty sketch. `capacity` is at least 1.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            keys: Vec::new(),
            weights: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Adds `weight` to `key`, and returns its value. A key that is not present is inserted with
    /// the value that `create` returns. If there is no room, it replaces the key with the smallest
    /// weight, and takes over its weight. The value of the replaced key is returned, too.
    pub(super) fn add(
        &mut self,
        key: u64,
        weight: f64,
        create: impl FnOnce() -> V,
    ) -> (&mut V, Option<V>) {
        if let Some(index) = self.index_of(key) {
            self.weights[index] += weight;
            return (&mut self.values[index], None);
        }
        if self.keys.len() < self.capacity {
            self.reserve();
            let index = self.keys.len();
            self.keys.push(key);
            self.weights.push(weight);
            self.values.push(create());
            return (&mut self.values[index], None);
        }
        let index = self.lightest();
        self.keys[index] = key;
        self.weights[index] += weight;
        let value = &mut self.values[index];
        let replaced = std::mem::replace(value, create());
        (value, Some(replaced))
    }

    /// Returns the value of `key`, if it is present.
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        let index = self.index_of(key)?;
        Some(&mut self.values[index])
    }

    /// Returns all values.
    pub(super) fn values(&self) -> &[V] {
        &self.values
    }

    /// Returns all values, to change them.
    pub(super) fn values_mut(&mut self) -> &mut [V] {
        &mut self.values
    }

    /// Multiplies all weights by `factor`.
    pub(super) fn scale(&mut self, factor: f64) {
        for weight in &mut self.weights {
            *weight *= factor;
        }
    }

    /// Returns the bytes that are allocated, without what the values own.
    pub(super) fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<u64>()
            + self.weights.capacity() * size_of::<f64>()
            + self.values.capacity() * size_of::<V>()
    }

    /// Makes room for one more key. A vector that grows by itself may take twice as much memory as
    /// the capacity needs.
    fn reserve(&mut self) {
        let length = self.keys.len();
        if length == self.keys.capacity() {
            let more = length.max(2).min(self.capacity - length);
            self.keys.reserve_exact(more);
            self.weights.reserve_exact(more);
            self.values.reserve_exact(more);
        }
    }

    fn index_of(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|present| *present == key)
    }

    /// Returns the index of the smallest weight.
    fn lightest(&self) -> usize {
        let weights = self.weights.iter().enumerate();
        let lightest = weights.min_by(|(_, one), (_, other)| one.total_cmp(other));
        lightest.map_or(0, |(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What happens to the sketch.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add(u64, u32),
        Halve,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            // Few keys have most of the weight, as in practice.
            20 => (0..4_u64, 1..50_u32).prop_map(|(key, weight)| Step::Add(key, weight)),
            20 => (4..200_u64, 1..3_u32).prop_map(|(key, weight)| Step::Add(key, weight)),
            1 => Just(Step::Halve),
        ]
    }

    proptest! {
        #[test]
        fn weights_are_within_the_bound_and_heavy_keys_are_present(
            steps in vec(step(), 0..600),
            capacity in 1..20_usize,
        ) {
            let mut sketch = SpaceSaving::new(capacity);
            let mut exact: HashMap<u64, f64> = HashMap::new();
            for step in steps {
                match step {
                    Step::Add(key, weight) => {
                        let weight = f64::from(weight);
                        *exact.entry(key).or_default() += weight;
                        sketch.add(key, weight, || key);
                    }
                    Step::Halve => {
                        exact.values_mut().for_each(|weight| *weight *= 0.5);
                        sketch.scale(0.5);
                    }
                }
            }
            let sum: f64 = exact.values().sum();
            let kept: f64 = sketch.weights.iter().sum();
            let bound = sum / capacity as f64;
            // Halves are exact in binary, but sums of many may not be.
            let close = 1e-9 * (1.0 + sum);
            prop_assert!((kept - sum).abs() <= close, "{kept}, {sum}");
            prop_assert!(sketch.keys.len() <= capacity);
            prop_assert_eq!(&sketch.keys, &sketch.values);
            for (key, weight) in sketch.keys.iter().zip(&sketch.weights) {
                let exact = exact[key];
                prop_assert!(*weight >= exact - close, "{key}: {weight} < {exact}");
                prop_assert!(*weight <= exact + bound + close, "{key}: {weight}, {exact}");
            }
            for (key, weight) in exact {
                let is_kept = sketch.keys.contains(&key);
                prop_assert!(weight <= bound + close || is_kept, "{key} has {weight} of {sum}");
            }
        }
    }

    #[test]
    fn a_replaced_value_is_returned() {
        let mut sketch = SpaceSaving::new(2);
        assert_eq!(sketch.add(1, 5.0, || "a").1, None);
        assert_eq!(sketch.add(2, 1.0, || "b").1, None);
        assert_eq!(sketch.add(1, 1.0, || "x").1, None);
        assert_eq!(sketch.add(3, 1.0, || "c").1, Some("b"));
        assert_eq!(sketch.values(), ["a", "c"]);
        assert_eq!(sketch.get_mut(2), None);
        // Its weight is 2, and that of the first key 6.
        sketch.scale(0.5);
        assert_eq!(sketch.add(4, 1.0, || "d").1, Some("c"));
        assert_eq!(sketch.add(4, 2.0, || "d").1, None);
        assert_eq!(sketch.add(5, 1.0, || "e").1, Some("a"));
    }

    #[test]
    fn a_new_heavy_key_stays_after_old_weights_were_scaled() {
        let mut sketch = SpaceSaving::new(4);
        for key in 0..4 {
            sketch.add(key, 1_000_000.0, || key);
        }
        for _ in 0..20 {
            sketch.scale(0.5);
        }
        for round in 0..1_000 {
            sketch.add(100, 3.0, || 100);
            sketch.add(1_000 + round, 1.0, || 1_000 + round);
        }
        assert!(sketch.values().contains(&100), "{:?}", sketch.values());
    }
}
