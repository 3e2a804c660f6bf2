//! How a read goes on that the cache did not answer.

use std::sync::Arc;

use http::Response;
use tokio::sync::Semaphore;

use crate::api::Status;
use crate::body::Body;
use crate::informer::Informer;

use super::decide::Reason;

/// An answer from a cache.
pub(crate) type CacheAnswer = Result<Response<Body>, Miss>;

/// Why a cache gave no answer.
#[derive(Debug)]
pub enum Miss {
    /// The API server is to be asked.
    Forward(Reason),
    /// As well, for want of a proof, as many at a time as there are permits.
    ForwardUnproven(Arc<Semaphore>),
    /// The object is not there, which the cache knows.
    Absent(Box<Status>),
    /// The request can't be answered now.
    Reject(Box<Status>),
}

impl Miss {
    /// A LIST of `informer` that could not be proven goes to the API server, if not too many do.
    pub(super) fn without_proof(informer: &Informer) -> Self {
        Self::ForwardUnproven(Arc::clone(informer.unproven_permits()))
    }
}

impl From<Status> for Miss {
    fn from(status: Status) -> Self {
        Self::Reject(Box::new(status))
    }
}

impl From<Reason> for Miss {
    fn from(reason: Reason) -> Self {
        Self::Forward(reason)
    }
}
