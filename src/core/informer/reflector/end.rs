//! The reasons why a reflector ends.

use crate::api::Status;

/// Why [`Reflector::run`](super::Reflector::run) ended.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReflectorEnd {
    /// [`Signals::stop`](super::Signals::stop) completed.
    #[error("stopped")]
    Stopped,
    /// Upstream does not allow kubefan to list or watch the resource (403), or has not accepted its
    /// credentials (401) for longer than `ReflectorConfig::unauthorized_patience`.
    #[error("forbidden: {}", .0.message)]
    Forbidden(Box<Status>),
    /// Upstream does not have the resource (404). If it was removed, all its objects were deleted
    /// before.
    #[error("gone: {}", .0.message)]
    Gone(Box<Status>),
    /// Upstream does not serve the resource in this wire format (406).
    #[error("wire format not served: {}", .0.message)]
    NotAcceptable(Box<Status>),
}
