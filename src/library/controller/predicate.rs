//! Predicates: which changes of objects cause a reconcile.

use std::ops::Not;
use std::sync::Arc;

use kube::Resource;

/// A condition on a change of an object. It gets the state before (`None` if the object was
/// added) and the state after (`None` if the object was deleted; the state before is then the
/// last one that was received).
///
/// `!predicate` is its opposite.
pub struct Predicate<K>(Arc<Condition<K>>);

type Condition<K> = dyn Fn(Option<&K>, Option<&K>) -> bool + Send + Sync;

impl<K: 'static> Predicate<K> {
    /// Creates a condition from `accepts`, which gets the states before and after a change.
    /// `accepts` must not block.
    pub fn new(accepts: impl Fn(Option<&K>, Option<&K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accepts))
    }

    /// Accepts changes that meet both conditions. Does not evaluate `other` if this one is false.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |old, new| self.accepts(old, new) && other.accepts(old, new))
    }

    /// Accepts changes that meet at least one condition. Does not evaluate `other` if this one is
    /// true.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |old, new| self.accepts(old, new) || other.accepts(old, new))
    }

    /// Returns true if a change from `old` to `new` meets the condition.
    pub fn accepts(&self, old: Option<&K>, new: Option<&K>) -> bool {
        (self.0)(old, new)
    }

    /// Accepts additions, deletions, and updates if `has_changed` returns true for them.
    fn on_update(has_changed: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |old, new| match (old, new) {
            (Some(old), Some(new)) => has_changed(old, new),
            _ => true,
        })
    }
}

impl<K: Resource + 'static> Predicate<K> {
    /// Accepts additions, deletions, and updates that changed `metadata.generation`. The API server
    /// raises the generation when the desired state changes, but not when the status changes.
    /// Objects without a generation, such as ConfigMaps and Namespaces, never have such updates.
    pub fn generation_changed() -> Self {
        Self::on_update(|old, new| old.meta().generation != new.meta().generation)
    }

    /// Accepts additions, deletions, and updates that changed the labels.
    pub fn labels_changed() -> Self {
        Self::on_update(|old, new| old.meta().labels != new.meta().labels)
    }

    /// Accepts additions, deletions, and updates that changed the annotations.
    pub fn annotations_changed() -> Self {
        Self::on_update(|old, new| old.meta().annotations != new.meta().annotations)
    }

    /// Accepts additions, deletions, and updates that changed anything in the object. Only the
    /// updates of a resync changed nothing.
    pub fn resource_version_changed() -> Self {
        Self::on_update(|old, new| old.meta().resource_version != new.meta().resource_version)
    }
}

impl<K: 'static> Not for Predicate<K> {
    type Output = Self;

    fn not(self) -> Self {
        Self::new(move |old, new| !self.accepts(old, new))
    }
}

// Not derived: `K` itself need not be `Clone`.
impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

debug_fields!([K] Predicate<K>);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn object(generation: i64, version: &str, label: &str, annotation: &str) -> ConfigMap {
        let object = json!({ "metadata": {
            "generation": generation, "resourceVersion": version,
            "labels": { "a": label }, "annotations": { "a": annotation },
        }});
        serde_json::from_value(object).expect("a config map")
    }

    #[test]
    fn each_predicate_accepts_the_updates_of_its_field_and_all_else() {
        let old = object(1, "1", "a", "a");
        let cases = [
            (object(1, "1", "a", "a"), vec![]),
            (object(2, "2", "a", "a"), vec!["generation", "version"]),
            (object(1, "2", "b", "a"), vec!["labels", "version"]),
            (object(1, "2", "a", "b"), vec!["annotations", "version"]),
        ];
        let predicates = || {
            [
                ("generation", Predicate::generation_changed()),
                ("labels", Predicate::labels_changed()),
                ("annotations", Predicate::annotations_changed()),
                ("version", Predicate::resource_version_changed()),
            ]
        };
        for (new, expected) in cases {
            let accepting = predicates()
                .into_iter()
                .filter(|(_, predicate)| predicate.accepts(Some(&old), Some(&new)));
            let found: Vec<_> = accepting.map(|(name, _)| name).collect();
            assert_eq!(found, expected, "{new:?}");
        }
        for (_, predicate) in predicates() {
            assert!(predicate.accepts(None, Some(&old)), "an addition");
            assert!(predicate.accepts(Some(&old), None), "a deletion");
        }
    }

    #[test]
    fn predicates_are_combined() {
        let is = |value: bool| Predicate::<ConfigMap>::new(move |_, _| value);
        let accepts = |predicate: Predicate<ConfigMap>| predicate.accepts(None, None);
        for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(accepts(is(a).and(is(b))), a && b);
            assert_eq!(accepts(is(a).or(is(b))), a || b);
        }
        assert!(accepts(!is(false)));
        assert!(!accepts(!is(true)));
    }
}
