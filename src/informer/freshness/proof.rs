//! Proof: a snapshot, and how it is known to be fresh.

use std::sync::Arc;

use crate::cache::Snapshot;
use crate::upstream;

/// A snapshot, and that it is at least as fresh as the question.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The pair: the state at its resource version. Of what was asked for at least.
    pub snapshot: Snapshot,
    /// How it was proven.
    pub method: ProofMethod,
    /// True when it is proven of all objects, not only of those asked for.
    pub is_whole: bool,
}

/// How a [`Proof`] came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofMethod {
    /// The watch reached a version that the API server said was current.
    Barrier,
    /// Objects and versions are the ones that the API server listed.
    VerificationList,
    /// It was proven not long ago, which is enough by [`Bounded`](super::FreshnessPolicy::Bounded).
    Recent,
    /// Not at all, by [`Any`](super::FreshnessPolicy::Any).
    Any,
}

/// Why there is no proof.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProofError {
    /// Neither the watch nor a list was there in time.
    #[error("the cache could not be proven fresh in time")]
    TimedOut,
    /// The API server could not be asked.
    #[error("the API server could not be asked whether the cache is fresh")]
    Upstream(#[source] Arc<upstream::Error>),
    /// The API server's history is no longer the cache's.
    #[error("the API server has another history than the cache")]
    OtherHistory,
    /// The cache has other objects than the API server had at the same version.
    #[error("the cache differs from the API server")]
    CacheDiffers,
    /// There is no cache.
    #[error("the cache is closed")]
    NotReady,
}
