//! Answer: a response, and what the filters need to know about it.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use kubefan_core::api::GroupVersionResource;
use kubefan_core::body;
use kubefan_core::body::Body;
use tokio::time::Instant;

use super::cached_read::CachedRead;
use super::outcome::Outcome;
use super::rescue::{ErrorFormat, Refused};
use crate::identity::KnownCaller;
use crate::ledger::{Charge, SnapshotAge, WatchMeter};

/// A response on its way through the filters.
pub(in crate::server) struct Answer {
    pub(in crate::server) response: Response<Body>,
    /// Whether a cache or the API server answered, or kubefan refused the request.
    pub(in crate::server) outcome: Outcome,
    /// The resource of the request. `None` if discovery does not have it, so that clients can't
    /// create label values.
    pub(in crate::server) resource: Option<GroupVersionResource>,
    /// The caller, if kubefan has determined its user.
    pub(in crate::server) caller: Option<Arc<KnownCaller>>,
    /// How long the stages for a read from a cache took.
    pub(in crate::server) waits: Waits,
    /// The age of the snapshot that the body holds, if it holds one.
    pub(in crate::server) snapshot: Option<SnapshotAge>,
    /// True if the body has a compressor that it does not share with other answers.
    pub(in crate::server) has_compressor: bool,
    /// The units of the cache's limit for selections without an index that the watch takes.
    pub(in crate::server) limited_units: usize,
    /// The charge that the body must own until it is dropped.
    pub(in crate::server) charge: Option<Charge>,
    /// What a cache has put into the body.
    pub(in crate::server) shown: Shown,
    /// What the read of a cache means for the bill; `None` if no cache has answered, or if nothing
    /// wants the record of the request.
    pub(in crate::server) read: Option<CachedRead>,
    /// What the answer delivers, if it is a watch of a cache.
    pub(in crate::server) meter: Option<Arc<WatchMeter>>,
}

/// What a cache has put into the body of an answer to a GET or LIST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The objects of a list; 0 for a GET.
    pub(crate) objects: u64,
    /// The bytes of the body, before it is indented or compressed.
    pub(crate) bytes: u64,
}

/// How long the stages for a read from a cache took, as far as they were completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Waits {
    /// When the first of them began. `None` if the request was no read from a cache.
    pub(in crate::server) began: Option<Instant>,
    /// Until the API server's decision about the caller's right was known.
    pub(in crate::server) authorize: Duration,
    /// Until there was an informer that could answer.
    pub(in crate::server) acquire: Duration,
    /// Until the cache was proven fresh enough. It includes the wait for what a session has seen.
    pub(in crate::server) prove: Duration,
}

impl Answer {
    /// Returns the answer to a request that kubefan refuses, in `format`.
    pub(in crate::server) fn refused(format: &ErrorFormat, refused: &Refused) -> Self {
        Self::from(format.refuse(refused)).with_outcome(Outcome::Rejected(refused.limit()))
    }

    /// Changes the response.
    pub(in crate::server) fn map(
        mut self,
        change: impl FnOnce(Response<Body>) -> Response<Body>,
    ) -> Self {
        self.replace(change);
        self
    }

    /// Changes the response in place.
    pub(in crate::server) fn replace(
        &mut self,
        change: impl FnOnce(Response<Body>) -> Response<Body>,
    ) {
        let response = mem::replace(&mut self.response, Response::new(body::empty()));
        self.response = change(response);
    }

    /// Sets how the request was answered.
    pub(in crate::server) fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }
}

/// An answer of kubefan itself.
impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self {
            response,
            outcome: Outcome::Rejected(None),
            resource: None,
            caller: None,
            waits: Waits::default(),
            snapshot: None,
            has_compressor: false,
            limited_units: 0,
            charge: None,
            shown: Shown::default(),
            read: None,
            meter: None,
        }
    }
}
