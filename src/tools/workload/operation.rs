//! The operations that a workload produces, to be applied to a store.

use serde_json::Value;

/// The parts of an object's URL path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPath {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The API version without the group.
    pub version: &'static str,
    /// The plural name of the resource.
    pub resource: &'static str,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
}

/// One write to the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Creates an object that does not exist yet.
    Create {
        /// The path of the object.
        target: ObjectPath,
        /// The object, including its status.
        object: Value,
    },
    /// Changes an existing object.
    Update {
        /// The path of the object.
        target: ObjectPath,
        /// The new object, including its status.
        object: Value,
        /// `status` if only the status changed; `None` if the status did not change.
        /// `metadata.managedFields` may change in both cases.
        subresource: Option<&'static str>,
    },
    /// Deletes an existing object.
    Delete {
        /// The path of the object.
        target: ObjectPath,
    },
}

impl Operation {
    /// Returns the path of the object that the operation changes.
    pub fn target(&self) -> &ObjectPath {
        match self {
            Self::Create { target, .. } | Self::Update { target, .. } | Self::Delete { target } => {
                target
            }
        }
    }
}
