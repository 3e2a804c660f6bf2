//! Records how a request was answered, for metrics and the log.

use crate::server::decide::Reason;

/// Whether a cache or the API server answered a request, or kubefan refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A cache answered, possibly that the object does not exist.
    Cache,
    /// A cache answered in JSON, which the client accepts. It prefers a media type that no cache
    /// has.
    CacheInJson,
    /// The request was forwarded to the API server for this reason, whether or not it answered.
    Forwarded(Reason),
    /// kubefan refused the request itself, or repeated an earlier 403 of the API server.
    Rejected,
}

impl Outcome {
    /// Returns the value of the metric label `outcome`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache | Self::CacheInJson => "cache",
            Self::Forwarded(_) => "forwarded",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the value of the metric label `reason`: why the request was forwarded, or why the
    /// answer from the cache has another media type than the client prefers. Otherwise it is empty.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Forwarded(reason) => reason.name(),
            Self::CacheInJson => Reason::MediaType.name(),
            Self::Cache | Self::Rejected => "",
        }
    }
}
