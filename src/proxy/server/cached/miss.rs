//! Why a cache could not answer a read, and what the server does instead.

use std::sync::Arc;

use kubefan_core::api::Status;
use kubefan_core::informer::Informer;
use tokio::sync::Semaphore;

use crate::server::answers::answer::Answer;
use crate::server::answers::rescue::Refused;
use crate::server::decide::{Plan, Reason};

/// The answer of a cache, or why there is none.
pub(in crate::server) type CacheAnswer = Result<Answer, Miss>;

/// Why a cache gave no answer.
#[derive(Debug)]
pub enum Miss {
    /// The request is forwarded to the API server for this reason.
    Forward(Reason),
    /// The request is forwarded for this reason. The semaphore limits how many of these requests
    /// are forwarded concurrently.
    ForwardLimited(Reason, Arc<Semaphore>),
    /// The cache shows that the object does not exist; the client gets this Status, a 404.
    Absent(Box<Status>),
    /// The request can't be answered now; kubefan refuses it.
    Reject(Refused),
}

impl Miss {
    /// Returns the miss of a LIST if the cache of `informer` could not be proven fresh. The LIST is
    /// forwarded if the informer has a free permit.
    pub(in crate::server) fn without_proof(informer: &Informer) -> Self {
        Self::ForwardLimited(Reason::Unproven, Arc::clone(informer.unproven_permits()))
    }

    /// Returns the miss of a LIST or WATCH if the cache of `informer` will not be proven for it
    /// soon: the cache is wrong in its selection, or a kubefan upstream proves nothing. Its permits
    /// are separate from those of other reads.
    pub(in crate::server) fn lasting(reason: Reason, plan: &Plan, informer: &Informer) -> Self {
        let permits = match plan {
            Plan::Watch { .. } => informer.lasting_watch_permits(),
            Plan::Get { .. } | Plan::List { .. } => informer.lasting_list_permits(),
        };
        Self::ForwardLimited(reason, Arc::clone(permits))
    }
}

impl<R: Into<Refused>> From<R> for Miss {
    fn from(refused: R) -> Self {
        Self::Reject(refused.into())
    }
}

impl From<Reason> for Miss {
    fn from(reason: Reason) -> Self {
        Self::Forward(reason)
    }
}
