//! Records how a request was answered, for metrics and the log.

use crate::server::decide::Reason;

/// Whether a cache or the API server answered a request, or kubefan refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A cache answered, possibly that the object does not exist.
    Cache,
    /// The request was forwarded to the API server for this reason, whether or not it answered.
    Forwarded(Reason),
    /// kubefan refused the request itself, or repeated an earlier 403 of the API server.
    Rejected,
}

impl Outcome {
    /// Returns the value of the metric label `outcome`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Forwarded(_) => "forwarded",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the value of the metric label `reason`: why the request was forwarded. It is empty
    /// if the request was not forwarded.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Forwarded(reason) => reason.name(),
            Self::Cache | Self::Rejected => "",
        }
    }
}
