//! Expired: the error of a watch that needs events that the log does not have.

use crate::api::ResourceVersion;

/// A watch cannot start, or an open watch cannot continue. The client has to list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct Expired {
    /// The version that the watch should start from, or the last version that
    /// an open watch reached.
    pub requested: ResourceVersion,
    /// The oldest resource version that a watch could start from instead. Zero if the cache is not
    /// ready; the server then forwards the watch instead of sending a 410.
    pub oldest: ResourceVersion,
}
