//! Operation: what a request does with which objects.

use schemars::JsonSchema;
use serde::Serialize;

/// How a request selects objects. With several conditions, the class is the first one in this list
/// that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SelectorClass {
    /// A shard (`shardSelector`).
    Shard,
    /// Labels or fields that no index finds: each object, or each change, is compared with them.
    Unindexed,
    /// The name of one object, in the path or in a field selector.
    Name,
    /// A field.
    Field,
    /// Labels.
    Label,
    /// A namespace.
    Namespace,
    /// All objects of the resource.
    None,
}

/// The conditions of a selection, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions {
    /// The request has a `shardSelector`.
    pub is_of_shard: bool,
    /// No index finds the objects, or the changes, that meet the conditions.
    pub is_unindexed: bool,
    /// The request names one object, in its path or in a field selector.
    pub has_name: bool,
    /// The request has a field selector.
    pub has_fields: bool,
    /// The request has a label selector.
    pub has_labels: bool,
    /// The request names a namespace.
    pub has_namespace: bool,
}

/// What a request does with which objects of which resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation<'a> {
    /// The verb, as in metrics: `get`, `list`, `watch`.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural of the resource; empty for a path that is no resource, and for a resource that
    /// discovery does not have.
    pub resource: &'a str,
    /// How the objects are selected.
    pub selector: SelectorClass,
}

/// An [`Operation`] that owns its texts.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bill) struct OperationName {
    pub(super) key: u64,
    /// The verb.
    pub(in crate::bill) verb: &'static str,
    /// The API group; empty for the core group.
    pub(in crate::bill) group: String,
    /// The plural of the resource; empty for none.
    pub(in crate::bill) resource: String,
    /// How the objects are selected.
    pub(in crate::bill) selector: SelectorClass,
}

// === impl SelectorClass, OperationName ===

impl SelectorClass {
    /// Returns the class of a selection with these conditions.
    pub fn of(conditions: Conditions) -> Self {
        let classes = [
            (conditions.is_of_shard, Self::Shard),
            (conditions.is_unindexed, Self::Unindexed),
            (conditions.has_name, Self::Name),
            (conditions.has_fields, Self::Field),
            (conditions.has_labels, Self::Label),
            (conditions.has_namespace, Self::Namespace),
        ];
        let first = classes.into_iter().find(|(is_given, _)| *is_given);
        first.map_or(Self::None, |(_, class)| class)
    }
}

impl OperationName {
    /// Creates the name of `operation`. `key` is its hash.
    pub(super) fn new(key: u64, operation: Operation<'_>) -> Self {
        Self {
            key,
            verb: operation.verb,
            group: operation.group.to_owned(),
            resource: operation.resource.to_owned(),
            selector: operation.selector,
        }
    }

    /// Returns true if both operations are on one resource.
    pub(in crate::bill) fn is_on_resource_of(&self, other: &Self) -> bool {
        self.group == other.group && self.resource == other.resource
    }

    /// Returns the name of the resource with its group, as in `deployments.apps`.
    pub(in crate::bill) fn group_resource(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_condition_gives_the_class() {
        let none = Conditions::default();
        let namespace = Conditions {
            has_namespace: true,
            ..none
        };
        let labels = Conditions {
            has_labels: true,
            ..namespace
        };
        let fields = Conditions {
            has_fields: true,
            ..labels
        };
        let name = Conditions {
            has_name: true,
            ..fields
        };
        let unindexed = Conditions {
            is_unindexed: true,
            ..name
        };
        let shard = Conditions {
            is_of_shard: true,
            ..unindexed
        };
        for (conditions, expected) in [
            (none, SelectorClass::None),
            (namespace, SelectorClass::Namespace),
            (labels, SelectorClass::Label),
            (fields, SelectorClass::Field),
            (name, SelectorClass::Name),
            (unindexed, SelectorClass::Unindexed),
            (shard, SelectorClass::Shard),
        ] {
            assert_eq!(SelectorClass::of(conditions), expected, "{conditions:?}");
        }
    }
}
