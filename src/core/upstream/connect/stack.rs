//! What sends the requests of one identity, and what its errors say.

use http::{Request, Response};
use tower::util::BoxCloneSyncService;

use crate::body::{Body, BoxError};

/// A transport that also adds an identity's credentials to requests.
pub(in crate::upstream) type Stack = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// The error of a request that the API server may have received in part. All other errors of a
/// [`Stack`] belong to requests that the API server provably never received.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::upstream) struct MaybeSent(pub(in crate::upstream) BoxError);
