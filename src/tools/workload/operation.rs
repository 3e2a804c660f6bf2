//! What is to be done to a store: the workload's only product.

use serde_json::Value;

/// Where an object lives; the parts of its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectPath {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version in the group.
    pub version: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Namespace; none for an object of the cluster.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// The object isn't there yet.
    Create {
        /// Where it lives.
        target: ObjectPath,
        /// The whole object, its status too.
        object: Value,
    },
    /// The object is there, and differs.
    Update {
        /// Where it lives.
        target: ObjectPath,
        /// The whole new object.
        object: Value,
        /// `status` if only that part changed; none if it didn't. `metadata.managedFields` may
        /// change with both.
        subresource: Option<&'static str>,
    },
    /// The object is there.
    Delete {
        /// Where it lives.
        target: ObjectPath,
    },
}

impl Operation {
    /// Where the object lives.
    pub fn target(&self) -> &ObjectPath {
        match self {
            Self::Create { target, .. } | Self::Update { target, .. } | Self::Delete { target } => {
                target
            }
        }
    }

    pub(super) fn create((target, object): (ObjectPath, Value)) -> Self {
        Self::Create { target, object }
    }
}
