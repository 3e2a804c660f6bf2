//! The errors of a test that changes a fake source.

use kubefan_core::api::ObjectKey;

/// Why a [`FakeSource`](super::FakeSource) did not make a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An object to add exists already.
    #[error("the object {0} exists already")]
    AlreadyExists(ObjectKey),
    /// An object to modify or delete does not exist.
    #[error("the object {0} does not exist")]
    NotFound(ObjectKey),
    /// The object is not a JSON object with `metadata.name`.
    #[error("the object is not an object with metadata.name")]
    NoName,
    /// The object can't be converted to JSON.
    #[error("the object can't be converted to JSON")]
    Serialize(#[from] serde_json::Error),
    /// The object's JSON is not that of a Kubernetes object.
    #[error("the object can't be decoded")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
}
