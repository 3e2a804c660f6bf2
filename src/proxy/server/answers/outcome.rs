//! Says how a request was answered.

use std::time::Duration;

use http::StatusCode;
use kubefan_core::informer::ProofMethod;
use tokio::time::Instant;

use crate::limit::Limit;
use crate::server::decide::Reason;

/// Whether a cache or the API server answered a request, or kubefan refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A cache answered, possibly that the object does not exist.
    Cache(Hit),
    /// The request was forwarded to the API server, whether or not it answered.
    Forwarded(Forwarded),
    /// kubefan repeated an earlier 403 of the API server.
    KeptRefusal,
    /// kubefan refused the request itself: because of this limit, or for the reason in the Status.
    Rejected(Option<Limit>),
    /// The client left before there was an answer. No metric counts it.
    Unanswered,
}

/// What a cache has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// True if the answer is JSON, which the client accepts, although it prefers a media type that
    /// no cache has.
    pub is_json_instead: bool,
    /// The proof that the cache is fresh enough; `None` if the read needed none.
    pub proof: Option<UsedProof>,
}

/// The proof of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedProof {
    /// How the cache was proven.
    pub method: ProofMethod,
    /// The answer shows all writes that were acknowledged before this moment. `None` if nothing was
    /// proven, with [`ProofMethod::Any`].
    pub as_of: Option<Instant>,
}

/// Why a request was forwarded, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Why no cache answered.
    pub reason: Reason,
    /// What came of it.
    pub call: Call,
}

/// What came of forwarding a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The status of the API server's answer; `None` if there was none.
    pub status: Option<StatusCode>,
    /// True if other requests got the answer of the same call.
    pub is_shared: bool,
    /// True if the client got a document that kubefan remembered: the API server confirmed it, or
    /// did not answer.
    pub is_remembered: bool,
}

impl Outcome {
    /// Returns the outcome of a request that was forwarded for `reason`, of which nothing else is
    /// known.
    #[cfg(test)]
    pub(in crate::server) fn forwarded(reason: Reason) -> Self {
        let call = Call::default();
        Self::Forwarded(Forwarded { reason, call })
    }

    /// Returns the value of the metric label `outcome`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache(_) => "cache",
            Self::Forwarded(_) => "forwarded",
            Self::KeptRefusal | Self::Rejected(_) => "rejected",
            Self::Unanswered => "unanswered",
        }
    }

    /// Returns the value of the metric label `reason`: why the request was forwarded, or why the
    /// answer from the cache has another media type than the client prefers. Otherwise it is empty.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Forwarded(forwarded) => forwarded.reason.name(),
            Self::Cache(hit) if hit.is_json_instead => Reason::MediaType.name(),
            Self::Cache(_) | Self::KeptRefusal | Self::Rejected(_) | Self::Unanswered => "",
        }
    }

    /// Returns the proof that the answer of a cache relies on, if it needed one.
    pub(in crate::server) fn proof(self) -> Option<UsedProof> {
        match self {
            Self::Cache(hit) => hit.proof,
            _ => None,
        }
    }

    /// Returns what came of forwarding the request; the default if it was not forwarded.
    pub(in crate::server) fn call(self) -> Call {
        match self {
            Self::Forwarded(forwarded) => forwarded.call,
            _ => Call::default(),
        }
    }

    /// Returns the reason for the access log and for spans: that of the metric, or what kubefan has
    /// refused the request for. It is empty if there is none.
    pub(in crate::server) fn reason_or_limit(self) -> &'static str {
        match self {
            Self::KeptRefusal => "kept_refusal",
            Self::Rejected(Some(limit)) => limit.name(),
            Self::Cache(_) | Self::Forwarded(_) | Self::Rejected(None) | Self::Unanswered => {
                self.reason()
            }
        }
    }
}

impl UsedProof {
    /// Returns the time before `head` for which an answer that began then may lack writes; `None` if
    /// it is not known.
    pub fn age(self, head: Instant) -> Option<Duration> {
        self.as_of
            .map(|as_of| head.saturating_duration_since(as_of))
    }
}
