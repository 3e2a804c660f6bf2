//! The errors of a scheme.

use kubefan_core::api::GroupVersionKind;

/// Why a type is not registered, or an object is not decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another type is registered for the kind.
    #[error("{gvk} is {registered} already, and cannot be {refused} too")]
    Registered {
        /// The kind.
        gvk: GroupVersionKind,
        /// The registered type.
        registered: &'static str,
        /// The type that was refused.
        refused: &'static str,
    },
    /// No type is registered for the kind.
    #[error("no type is registered for {0}")]
    UnknownKind(GroupVersionKind),
    /// The type is not registered.
    #[error("no kind is registered for {0}")]
    UnknownType(&'static str),
    /// The type is registered for several kinds.
    #[error("{type_name} is of several kinds: {}", joined(.kinds))]
    SeveralKinds {
        /// The type.
        type_name: &'static str,
        /// Its kinds, in the order of their registration.
        kinds: Vec<GroupVersionKind>,
    },
    /// The bytes are not a JSON object with the strings `apiVersion` and `kind`.
    #[error("the object has no apiVersion and kind")]
    NoKind(#[source] serde_json::Error),
    /// The object is not of its kind's registered type.
    #[error("a {gvk} cannot be decoded as {type_name}")]
    Decode {
        /// The object's kind.
        gvk: GroupVersionKind,
        /// The kind's registered type.
        type_name: &'static str,
        /// Why the object cannot be decoded.
        source: serde_json::Error,
    },
}

fn joined(kinds: &[GroupVersionKind]) -> String {
    let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    kinds.join(", ")
}
