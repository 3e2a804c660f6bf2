//! Request: the name of an object that is to be reconciled.

use std::fmt;

use kube::core::ObjectMeta;

/// The object that is to be reconciled. It may no longer exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    /// The namespace; `None` for a cluster-scoped resource.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl Request {
    /// Returns the request for the object `name` in `namespace`.
    pub fn new(namespace: Option<&str>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            name: name.into(),
        }
    }

    /// Returns the request for the object with this metadata; `None` if it has no name.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone()?,
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
