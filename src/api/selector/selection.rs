//! Which objects of a resource a request selects: scope, labels and fields.

use crate::api::Object;

/// The objects that a LIST or WATCH concerns; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Only this namespace; `None` is all namespaces or cluster scope.
    pub namespace: Option<String>,
    /// Conditions on labels.
    pub labels: LabelSelector,
    /// Conditions on fields.
    pub fields: FieldSelector,
}

/// Conditions on labels, all of which must hold; none is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// The conditions.
    pub requirements: Vec<LabelRequirement>,
}

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// What must hold for it.
    pub operator: LabelOperator,
}

/// What a [`LabelRequirement`] demands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// Present with one of these values (sorted).
    In(Vec<String>),
    /// Absent, or present with none of these values (sorted).
    NotIn(Vec<String>),
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
    /// Present with an integer above this.
    GreaterThan(i64),
    /// Present with an integer below this.
    LessThan(i64),
}

/// Conditions on fields, all of which must hold; none is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    /// The conditions.
    pub terms: Vec<FieldTerm>,
}

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// The field.
    pub field: Field,
    /// True for `=`, false for `!=`.
    pub equal: bool,
    /// The value compared with.
    pub value: String,
}

/// A field that the kind supports in selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// The value at this position of [`Object::fields`].
    Value(usize),
    /// A field that is accepted but never has a value, such as a Pod's `status.podIPs`.
    Empty,
}

impl Selection {
    /// True when `object` is selected.
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| namespace == object.key.namespace())
            && self.fields.matches(object)
            && self.labels.matches(object)
    }

    /// The one name that `metadata.name=` demands (the first such term), if any does.
    pub fn name(&self) -> Option<&str> {
        let by_name = |term: &&FieldTerm| term.field == Field::Name && term.equal;
        Some(&self.fields.terms.iter().find(by_name)?.value)
    }

    /// True when all objects of the resource are selected.
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.is_unfiltered()
    }

    /// True when neither labels nor fields narrow the scope.
    pub fn is_unfiltered(&self) -> bool {
        self.labels.requirements.is_empty() && self.fields.terms.is_empty()
    }
}

impl LabelSelector {
    /// True when all conditions hold for `object`.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(object.label(&requirement.key)))
    }
}

impl LabelRequirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |values: &[String], value: &str| values.iter().any(|v| v == value);
        let integer = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            LabelOperator::In(values) => value.is_some_and(|value| is_among(values, value)),
            LabelOperator::NotIn(values) => value.is_none_or(|value| !is_among(values, value)),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan(bound) => integer().is_some_and(|value| value > *bound),
            LabelOperator::LessThan(bound) => integer().is_some_and(|value| value < *bound),
        }
    }
}

impl FieldSelector {
    /// True when all conditions hold for `object`.
    pub fn matches(&self, object: &Object) -> bool {
        self.terms
            .iter()
            .all(|term| (term.field.value_of(object) == term.value) == term.equal)
    }
}

impl Field {
    fn value_of(self, object: &Object) -> &str {
        match self {
            Self::Name => object.key.name(),
            Self::Namespace => object.key.namespace(),
            Self::Value(position) => object.field(position),
            Self::Empty => "",
        }
    }
}
