//! Expired: what a client is answered whose start is no longer retained.

use crate::api::ResourceVersion;

/// A start that can't be served, or a watch that can't go on: the client has to list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {requested} ({oldest})")]
pub struct Expired {
    /// Where the client wanted to start, or how far an open watch had come.
    pub requested: ResourceVersion,
    /// The oldest resource version at or above which starts are served.
    pub oldest: ResourceVersion,
}
