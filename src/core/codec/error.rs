//! The error for bytes from the upstream that cannot be decoded.

use crate::api::ParseResourceVersionError;

/// The reason why bytes from the upstream cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not JSON, or its JSON does not have the expected structure.
    #[error("malformed JSON: expected {expected} at byte {offset}")]
    Json {
        /// The token or structure that is expected at `offset`, such as `a colon`.
        expected: &'static str,
        /// The position of the error in bytes, counted from the start of the scanned text.
        offset: usize,
    },
    /// The bytes are not a protobuf message, or the message does not have the expected fields.
    #[error("malformed protobuf: {0}")]
    Protobuf(&'static str),
    /// A string in JSON or protobuf is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// A required value of an object, list or watch event is absent; the text names the value.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A resource version is not a number.
    #[error("unusable resource version")]
    ResourceVersion(#[from] ParseResourceVersionError),
    /// A watch event has a type that the API does not define.
    #[error("unknown watch event type {0:?}")]
    UnknownEventType(String),
    /// A watch frame is longer than the configured limit.
    #[error("watch frame is longer than {limit} bytes")]
    FrameTooLarge {
        /// The largest permitted frame length in bytes.
        limit: usize,
    },
    /// The watch stream ended inside a frame; holds the number of bytes received of that frame.
    #[error("watch ended within a frame, {0} bytes after its start")]
    TruncatedFrame(usize),
}
