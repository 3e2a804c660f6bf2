//! What can be wrong with bytes from upstream.

use crate::api::ParseResourceVersionError;

/// Bytes from upstream that are not what the API promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no JSON, or not of the shape needed.
    #[error("malformed JSON: expected {expected} at byte {offset}")]
    Json {
        /// What should have stood there.
        expected: &'static str,
        /// Where, counted from the start of the scanned text.
        offset: usize,
    },
    /// The bytes are no protobuf message, or not of the shape needed.
    #[error("malformed protobuf: {0}")]
    Protobuf(&'static str),
    /// A text is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// A value without which an object, list or event cannot be used is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A resource version is no number.
    #[error("unusable resource version")]
    ResourceVersion(#[from] ParseResourceVersionError),
    /// A watch event has a type that the API does not define.
    #[error("unknown watch event type {0:?}")]
    UnknownEventType(String),
    /// A watch frame is longer than allowed.
    #[error("watch frame is longer than {limit} bytes")]
    FrameTooLarge {
        /// The longest frame allowed.
        limit: usize,
    },
    /// The stream ended within a frame.
    #[error("watch ended within a frame, {0} bytes after its start")]
    HalfFrame(usize),
}
