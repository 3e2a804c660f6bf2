//! How a reflector ends.

use crate::api::Status;

/// Why [`Reflector::run`](super::Reflector::run) ended.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReflectorEnd {
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
    /// Upstream does not allow to list or watch (403).
    #[error("forbidden: {}", .0.message)]
    Forbidden(Box<Status>),
    /// Upstream no longer has the resource (404): all its objects were deleted before that.
    #[error("gone: {}", .0.message)]
    Gone(Box<Status>),
    /// Upstream does not have the resource in this wire format (406).
    #[error("no such format: {}", .0.message)]
    NotAcceptable(Box<Status>),
}
