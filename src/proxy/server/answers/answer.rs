//! Answer: a response, and what the filters need to know about it.

use http::Response;
use kubefan_core::api::GroupVersionResource;
use kubefan_core::body::Body;

use super::outcome::Outcome;
use crate::ledger::SnapshotAge;

/// A response on its way through the filters.
pub(in crate::server) struct Answer {
    pub(in crate::server) response: Response<Body>,
    /// Whether a cache or the API server answered, or kubefan refused the request.
    pub(in crate::server) outcome: Outcome,
    /// The resource of the request. `None` if discovery does not have it, so that clients can't
    /// create label values.
    pub(in crate::server) resource: Option<GroupVersionResource>,
    /// The age of the snapshot that the body holds, if it holds one.
    pub(in crate::server) snapshot: Option<SnapshotAge>,
    /// True if the body has a compressor that it does not share with other answers.
    pub(in crate::server) has_compressor: bool,
    /// The units of the cache's limit for selections without an index that the watch takes.
    pub(in crate::server) limited_units: usize,
}

impl Answer {
    /// Changes the response.
    pub(in crate::server) fn map(
        mut self,
        change: impl FnOnce(Response<Body>) -> Response<Body>,
    ) -> Self {
        self.response = change(self.response);
        self
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
            outcome: Outcome::Rejected,
            resource: None,
            snapshot: None,
            has_compressor: false,
            limited_units: 0,
        }
    }
}
