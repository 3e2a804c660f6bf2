//! The result of a proof of freshness: a proven snapshot and the method, or an error.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::plan::ProofRequest;
use crate::cache::Snapshot;
use crate::upstream;

/// A snapshot that is at least as fresh as the request, or as fresh as the policy requires.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The proven pair of objects and resource version. If [`Snapshot::is_whole`] is false, only
    /// the requested objects are proven.
    pub snapshot: Snapshot,
    /// How the snapshot was proven.
    pub method: ProofMethod,
    /// The snapshot has all writes that were acknowledged before this moment. `None` with
    /// [`ProofMethod::Any`], which proves nothing.
    pub as_of: Option<Instant>,
    /// The calls to the API server that made the proof. All reads that waited for them have the
    /// same value. `None` if the proof needed no call.
    pub call: Option<Arc<ProofCall>>,
}

/// The calls to the API server that made a proof.
#[derive(Debug)]
pub struct ProofCall {
    /// When the proof began.
    pub began: Instant,
    /// When the proof was there.
    pub ended: Instant,
    note: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The method of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofMethod {
    /// The watch reached a version that the API server returned after the request.
    Barrier,
    /// The objects and their versions are equal to those that the API server listed.
    VerificationList,
    /// No call: the list that the cache continues was sent after the request was made.
    InformerList,
    /// No call: an earlier proof, or the cache's own list, is recent enough for
    /// [`Bounded`](super::FreshnessPolicy::Bounded) or
    /// [`Session`](super::FreshnessPolicy::Session).
    Recent,
    /// No call and no proof: [`Any`](super::FreshnessPolicy::Any) allows the cache's newest
    /// snapshot.
    Any,
}

/// Why there is no proof.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProofError {
    /// Neither the watch nor a verification list proved the cache in time.
    #[error("the cache could not be proven fresh in time")]
    TimedOut,
    /// The call to the API server failed.
    #[error("the call to the API server that proves the cache fresh failed")]
    Upstream(#[source] Arc<upstream::Error>),
    /// The API server has another history than the cache had before the call: etcd was restored, or
    /// a new epoch began.
    #[error("the API server has another history than the cache")]
    OtherHistory,
    /// The upstream is a kubefan, and has answered with a state that may be older than the request.
    #[error("the upstream is a kubefan that may answer with older states")]
    UpstreamUnproven,
    /// No barrier was tried, or the watch did not reach it soon. Any other proof would probably cost
    /// the API server more than the read itself.
    #[error("the API server answers the read for less than a proof")]
    TooCostly,
    /// The cache and the verification list have equal versions, but different objects.
    #[error("the cache differs from the API server")]
    CacheDiffers,
    /// The cache's objects of this selection differ lastingly from the API server's.
    #[error("the cache differs lastingly from the API server in this selection")]
    Isolated,
    /// The cache is not ready, or is closed.
    #[error("the cache is not ready")]
    NotReady,
}

/// The result of the calls for several requests.
#[derive(Clone)]
pub(super) enum Proofs {
    /// One proof for all requests.
    Shared(Proof),
    /// A proof for each request.
    Scoped(Arc<HashMap<ProofRequest, Result<Proof, ProofError>>>),
}

// === impl ProofCall, ProofMethod, Proofs ===

impl ProofCall {
    /// Creates the calls of a proof that began at `began`, and is there now.
    pub(super) fn since(began: Instant) -> Arc<Self> {
        Arc::new(Self {
            began,
            ended: Instant::now(),
            note: OnceLock::new(),
        })
    }

    /// Returns what the first reader that called this method has made of these calls, such as a
    /// name for them. `None` if it is of another type.
    pub fn note_once<T: Any + Copy + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<T> {
        let note = self.note.get_or_init(|| Box::new(make()));
        note.downcast_ref().copied()
    }
}

impl ProofMethod {
    /// Returns the name of the method in the header
    /// [`PROOF_HEADER`](crate::upstream::PROOF_HEADER).
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::VerificationList => "verification-list",
            Self::InformerList => "informer-list",
            Self::Recent => "recent",
            Self::Any => "any",
        }
    }
}

impl Proofs {
    /// Returns these proofs, which `call` has made.
    pub(super) fn made_by(self, call: &Arc<ProofCall>) -> Self {
        let of_call = |mut proof: Proof| {
            proof.call = Some(Arc::clone(call));
            proof
        };
        match self {
            Self::Shared(proof) => Self::Shared(of_call(proof)),
            Self::Scoped(proofs) => {
                let proofs = Arc::unwrap_or_clone(proofs).into_iter();
                let proofs = proofs.map(|(request, proof)| (request, proof.map(of_call)));
                Self::Scoped(Arc::new(proofs.collect()))
            }
        }
    }

    /// Returns the proof for `request`, which was one of the requests.
    pub(super) fn of(&self, request: &ProofRequest) -> Result<Proof, ProofError> {
        match self {
            Self::Shared(proof) => Ok(proof.clone()),
            Self::Scoped(proofs) => {
                let whole = || proofs.get(&ProofRequest::default());
                let proof = proofs.get(request).or_else(whole).cloned();
                proof.unwrap_or(Err(ProofError::NotReady))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::upstream::{PROOF_HEADER, unproven_method};

    #[test]
    fn the_first_reader_notes_something_for_all() {
        let call = ProofCall::since(Instant::now());
        for number in 1..3_u32 {
            assert_eq!(call.note_once(|| number), Some(1));
        }
        assert_eq!(call.note_once(|| "another type"), None);
    }

    #[test]
    fn a_kubefan_in_front_believes_only_proofs_for_its_requests() {
        for (method, is_proven) in [
            (Some(ProofMethod::Barrier), true),
            (Some(ProofMethod::VerificationList), true),
            (Some(ProofMethod::InformerList), true),
            (Some(ProofMethod::Recent), false),
            (Some(ProofMethod::Any), false),
            // The API server.
            (None, true),
        ] {
            let name = method.map(|method| HeaderValue::from_static(method.name()));
            let headers = name.map(|name| (PROOF_HEADER, name)).into_iter();
            let headers: HeaderMap = headers.collect();
            assert_eq!(unproven_method(&headers).is_none(), is_proven, "{method:?}");
        }
        // A method of a later version.
        let later = HeaderMap::from_iter([(PROOF_HEADER, HeaderValue::from_static("guess"))]);
        assert_eq!(unproven_method(&later), Some("guess"));
    }
}
