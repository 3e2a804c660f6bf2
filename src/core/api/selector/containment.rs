//! Containment: whether every object of one selection is in another one.
//!
//! The answer is proven from the conditions alone. If it is "yes", it holds for all objects
//! (`what_is_contained_is_selected`); "no" may also mean that the proof was not found.

use super::{
    Field, FieldSelector, FieldTerm, LabelOperator, LabelRequirement, LabelSelector, Selection,
};

impl Selection {
    /// Returns true if every object that `narrower` selects is provably selected by this selection
    /// too. Both must be of one resource, with equal selectable fields.
    ///
    /// It is true, for example, if `narrower` has all conditions of this selection and others.
    pub fn contains(&self, narrower: &Self) -> bool {
        let is_of_namespace = self.namespace.as_deref().is_none_or(|namespace| {
            let required = FieldTerm {
                field: Field::Namespace,
                equal: true,
                value: namespace.to_owned(),
            };
            narrower.namespace.as_deref() == Some(namespace) || narrower.fields.implies(&required)
        });
        let is_of_shard = match (&self.shard, &narrower.shard) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(shard), Some(narrower)) => shard.contains(narrower),
        };
        let namespace = narrower.namespace.as_deref();
        let mut labels = self.labels.requirements.iter();
        is_of_namespace
            && is_of_shard
            && labels.all(|term| narrower.labels.implies(term))
            && self.fields.terms.iter().all(|term| {
                narrower.fields.implies(term) || is_implied_by_namespace(term, namespace)
            })
    }
}

impl LabelSelector {
    /// Returns true if the labels of each object that this selector matches provably meet `term`.
    fn implies(&self, term: &LabelRequirement) -> bool {
        let known = self
            .requirements
            .iter()
            .filter(|known| known.key == term.key);
        let known: Vec<_> = known.collect();
        let is_possible = |value| known.iter().all(|known| known.matches(value));
        if is_possible(None) && !term.matches(None) {
            return false;
        }
        // The label is absent, or has one of these values.
        let listed = known.iter().find_map(|known| match &known.operator {
            LabelOperator::In(values) => Some(values.as_slice()),
            LabelOperator::DoesNotExist => Some(&[]),
            _ => None,
        });
        if let Some(values) = listed {
            let mut values = values.iter().map(|value| Some(value.as_str()));
            return values.all(|value| !is_possible(value) || term.matches(value));
        }
        // Any number of values is possible.
        let mut operators = known.iter().map(|known| &known.operator);
        match &term.operator {
            LabelOperator::In(_) | LabelOperator::DoesNotExist => false,
            LabelOperator::NotIn(values) => values
                .iter()
                .all(|value| !is_possible(Some(value.as_str()))),
            LabelOperator::Exists => true,
            LabelOperator::GreaterThan(bound) => operators
                .any(|known| matches!(known, LabelOperator::GreaterThan(least) if least >= bound)),
            LabelOperator::LessThan(bound) => operators
                .any(|known| matches!(known, LabelOperator::LessThan(most) if most <= bound)),
        }
    }
}

impl FieldSelector {
    /// Returns true if the fields of each object that this selector matches provably meet `term`.
    fn implies(&self, term: &FieldTerm) -> bool {
        let known = self.terms.iter().filter(|known| known.field == term.field);
        let known: Vec<_> = known.collect();
        let required = known.iter().find(|known| known.equal);
        let value = match term.field {
            Field::Empty => Some(""),
            _ => required.map(|required| required.value.as_str()),
        };
        match value {
            Some(value) => term.accepts(value) || !known.iter().all(|known| known.accepts(value)),
            None => known.contains(&term),
        }
    }
}

/// Returns true if `term` holds for all objects of `namespace`.
fn is_implied_by_namespace(term: &FieldTerm, namespace: Option<&str>) -> bool {
    term.field == Field::Namespace && namespace.is_some_and(|namespace| term.accepts(namespace))
}

#[cfg(test)]
mod tests;
