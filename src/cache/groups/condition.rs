//! Condition: a property that the objects of a selection have, by which the index finds its group.

use crate::api::Field;
use crate::api::LabelOperator;
use crate::api::LabelRequirement;
use crate::api::ObjectKey;
use crate::api::Selection;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Key(Box<str>),
    Name(Box<str>),
    Field(usize, Box<str>),
    Label(Box<str>, Box<str>),
    Namespace(Box<str>),
}

/// True if an index finds the watches of `selection` whose objects a change may concern. Without
/// one, every change is tested against the selection; see
/// [`GroupLimits::unindexed`](crate::cache::GroupLimits::unindexed).
pub fn is_indexed(selection: &Selection) -> bool {
    !condition_sets(selection).is_empty()
}

/// Sets of conditions, the probably most selective first. Each object of `selection` meets at least
/// one condition of every set, so any one set is enough to find the group.
pub(super) fn condition_sets(selection: &Selection) -> Vec<Vec<Condition>> {
    let terms = selection.fields.terms.iter().filter(|term| term.equal);
    let required = |field: Field| {
        let mut terms = terms.clone().filter(move |term| term.field == field);
        terms.next().map(|term| term.value.as_str())
    };
    let namespace = selection.namespace.as_deref();
    let namespace = namespace.or_else(|| required(Field::Namespace));
    if let (Some(namespace), Some(name)) = (namespace, selection.name()) {
        let key = ObjectKey::new(Some(namespace), name);
        return vec![vec![Condition::Key(key.as_str().into())]];
    }
    let name = selection.name().map(|name| Condition::Name(name.into()));
    let fields = terms.clone().filter_map(|term| match term.field {
        Field::Value(position) => {
            Some(vec![Condition::Field(position, term.value.as_str().into())])
        }
        Field::Empty if !term.value.is_empty() => Some(Vec::new()),
        Field::Empty | Field::Name | Field::Namespace => None,
    });
    let labels = selection.labels.requirements.iter().filter_map(any_of);
    let namespace = namespace.map(|namespace| Condition::Namespace(namespace.into()));
    let (name, namespace) = (name.map(|name| vec![name]), namespace.map(|own| vec![own]));
    name.into_iter()
        .chain(fields)
        .chain(labels)
        .chain(namespace)
        .collect()
}

fn any_of(requirement: &LabelRequirement) -> Option<Vec<Condition>> {
    let condition =
        |value: &String| Condition::Label(requirement.key.as_str().into(), value.as_str().into());
    match &requirement.operator {
        LabelOperator::In(values) => Some(values.iter().map(condition).collect()),
        _ => None,
    }
}
