//! Condition: a property of all objects of a selection. The index finds the group of
//! the selection by it.

use crate::api::{Field, LabelOperator, LabelRequirement, ObjectKey, Selection};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Key(Box<str>),
    Field(Field, Box<str>),
    Label(Box<str>, Box<str>),
}

/// Maximum number of sets that are considered for one selection, besides its namespace.
const MAX_SETS: usize = 16;
/// Maximum number of conditions of a set. A group has an entry of the index for each of them.
pub(super) const MAX_CONDITIONS: usize = 64;

/// Sets of conditions, the probably most selective first. Each object of `selection` meets at least
/// one condition of every set, so any one set is enough to find the group. Long sets, and the last
/// ones of many, are left out.
pub(super) fn condition_sets(selection: &Selection) -> Vec<Vec<Condition>> {
    let (namespace, name) = (selection.single_namespace(), selection.name());
    if let (Some(namespace), Some(name)) = (namespace, name) {
        let key = ObjectKey::new(Some(namespace), name);
        return vec![vec![Condition::Key(key.as_str().into())]];
    }
    let by = |field: Field, value: &str| vec![Condition::Field(field, value.into())];
    let terms = selection.fields.terms.iter().filter(|term| term.equal);
    let fields = terms.filter_map(|term| match term.field {
        Field::Value(_) => Some(by(term.field, &term.value)),
        Field::Empty if !term.value.is_empty() => Some(Vec::new()),
        Field::Empty | Field::Name | Field::Namespace => None,
    });
    let labels = selection.labels.requirements.iter().filter_map(any_of);
    let name = name.map(|name| by(Field::Name, name));
    let namespace = namespace.map(|namespace| by(Field::Namespace, namespace));
    let sets = name.into_iter().chain(fields).chain(labels);
    sets.take(MAX_SETS).chain(namespace).collect()
}

fn any_of(requirement: &LabelRequirement) -> Option<Vec<Condition>> {
    let condition =
        |value: &String| Condition::Label(requirement.key.as_str().into(), value.as_str().into());
    match &requirement.operator {
        LabelOperator::In(values) if values.len() <= MAX_CONDITIONS => {
            Some(values.iter().map(condition).collect())
        }
        _ => None,
    }
}
