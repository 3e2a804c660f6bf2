//! The part of a resource that a request selects, by namespace, labels, fields and shard.

use super::ShardSelector;
use crate::api::Object;

/// The objects that a LIST or WATCH selects: an object must meet all conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// The namespace of the objects; `None` for all namespaces and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// The conditions on the objects' labels.
    pub labels: LabelSelector,
    /// The conditions on the objects' fields.
    pub fields: FieldSelector,
    /// The shard of the objects; `None` for the objects of all shards.
    pub shard: Option<ShardSelector>,
}

/// Conditions on labels. All of them must hold. An empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    /// The conditions, sorted by label key if they were parsed.
    pub requirements: Vec<LabelRequirement>,
}

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// The label's key, including its prefix if it has one.
    pub key: String,
    /// The condition on the label's presence or value.
    pub operator: LabelOperator,
}

/// The condition of a [`LabelRequirement`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LabelOperator {
    /// The label is present, with one of these sorted values.
    In(Vec<String>),
    /// The label is absent, or its value is not one of these sorted values.
    NotIn(Vec<String>),
    /// The label is present, with any value.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is present, and its value is an integer greater than this.
    GreaterThan(i64),
    /// The label is present, and its value is an integer less than this.
    LessThan(i64),
}

/// Conditions on fields. All of them must hold. An empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    /// The conditions, sorted by their texts if they were parsed.
    pub terms: Vec<FieldTerm>,
}

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldTerm {
    /// The field to compare.
    pub field: Field,
    /// True if the values must be equal (`=`), false if they must differ (`!=`).
    pub equal: bool,
    /// The value to compare the field with.
    pub value: String,
}

/// A field that a kind supports in field selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The object's `metadata.name`.
    Name,
    /// The object's `metadata.namespace`; empty for a cluster-scoped object.
    Namespace,
    /// The field at this index of [`Object::fields`].
    Value(usize),
    /// A field that is always empty in selectors, such as a Pod's `status.podIPs`.
    Empty,
}

impl Selection {
    /// Creates the selection of the object `name` in `namespace`. With `None`, this is the
    /// cluster-scoped object, or the objects with this name in all namespaces.
    pub fn of_object(namespace: Option<&str>, name: &str) -> Self {
        let by_name = FieldTerm {
            field: Field::Name,
            equal: true,
            value: name.to_owned(),
        };
        Self {
            namespace: namespace.map(str::to_owned),
            fields: FieldSelector {
                terms: vec![by_name],
            },
            ..Self::default()
        }
    }

    /// Returns true if `object` meets all conditions.
    pub fn matches(&self, object: &Object) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| namespace == object.key.namespace())
            && self.fields.matches(object)
            && self.labels.matches(object)
            && self.is_of_shard(object)
    }

    /// Returns true if `object` belongs to the shard, whatever the other conditions are.
    pub fn is_of_shard(&self, object: &Object) -> bool {
        let shard = self.shard.as_ref();
        shard.is_none_or(|shard| shard.matches(object))
    }

    /// Returns the value of the first term that requires a `metadata.name`, or
    /// `None` if there is none.
    pub fn name(&self) -> Option<&str> {
        self.fields.required(Field::Name)
    }

    /// Returns the namespace of the objects, or the value of the first term that requires a
    /// `metadata.namespace`, or `None` if objects of several namespaces may be selected.
    pub fn single_namespace(&self) -> Option<&str> {
        let namespace = self.namespace.as_deref();
        namespace.or_else(|| self.fields.required(Field::Namespace))
    }

    /// Returns true if the selection has no condition, so that it contains all
    /// objects of the resource.
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.is_unfiltered()
    }

    /// Returns true if there are no conditions on labels or fields, and no shard;
    /// there may be a namespace.
    pub fn is_unfiltered(&self) -> bool {
        self.labels.requirements.is_empty() && self.fields.terms.is_empty() && self.shard.is_none()
    }
}

impl LabelSelector {
    /// Returns true if the labels of `object` meet all conditions.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(object.label(&requirement.key)))
    }
}

impl LabelRequirement {
    /// Returns true if a label with this `value` meets the condition; `None`
    /// means that it is absent.
    pub(super) fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |values: &[String], value: &str| {
            let found = values.binary_search_by(|known| known.as_str().cmp(value));
            found.is_ok()
        };
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
    /// Returns the value of the first term that requires a value of `field`.
    pub(crate) fn required(&self, field: Field) -> Option<&str> {
        let mut terms = self.terms.iter();
        let term = terms.find(|term| term.equal && term.field == field)?;
        Some(&term.value)
    }

    /// Returns true if the fields of `object` meet all conditions.
    pub fn matches(&self, object: &Object) -> bool {
        self.terms
            .iter()
            .all(|term| term.accepts(term.field.value_of(object)))
    }
}

impl FieldTerm {
    /// Returns true if a field with this `value` meets the condition.
    pub(super) fn accepts(&self, value: &str) -> bool {
        (value == self.value) == self.equal
    }
}

impl Field {
    pub(crate) fn value_of(self, object: &Object) -> &str {
        match self {
            Self::Name => object.key.name(),
            Self::Namespace => object.key.namespace(),
            Self::Value(position) => object.field(position),
            Self::Empty => "",
        }
    }
}
