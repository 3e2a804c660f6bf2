//! WatchError: the reason why a watch cannot be opened.

use crate::cache::log::Expired;

/// A watch cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The log does not have the events that the watch needs.
    #[error(transparent)]
    Expired(#[from] Expired),
    /// No index finds the changes that the selection selects, and the cache already has the maximum
    /// number of such selections, [`GroupLimits::unindexed`](crate::cache::GroupLimits::unindexed).
    /// A later attempt may succeed.
    #[error("too many selections are watched that no index finds")]
    TooManyUnindexed,
}
