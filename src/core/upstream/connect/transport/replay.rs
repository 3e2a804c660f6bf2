//! Requests with small bodies, which can be sent again if the API server did not process them.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};

use crate::body;
use crate::body::{Body, BoxError};
use crate::upstream::connect::error::causes;

/// Maximum size in bytes of a body that is copied to memory. Most objects are far smaller.
const BODY_LIMIT: u64 = 256 << 10;

/// The error of a request that was not sent, because its sender broke off the body.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request broke off")]
pub(in crate::upstream) struct BrokenBody(#[source] pub(in crate::upstream) BoxError);

/// A request with its complete body in memory.
pub(super) struct Replay {
    head: Parts,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Replay {
    /// Reads the body of `request` into memory; returns the request if the length of its body is
    /// unknown or more than 256 KiB.
    ///
    /// # Errors
    /// [`BrokenBody`] if the body breaks off.
    pub(super) async fn of(
        request: Request<Body>,
    ) -> Result<Result<Self, Request<Body>>, BrokenBody> {
        let length = request.body().size_hint().exact();
        if length.is_none_or(|length| length > BODY_LIMIT) {
            return Ok(Err(request));
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(BrokenBody)?;
        let trailers = body.trailers().cloned();
        let body = body.to_bytes();
        Ok(Ok(Self {
            head,
            body,
            trailers,
        }))
    }

    /// Returns a copy of the request.
    pub(super) fn request(&self) -> Request<Body> {
        let full = Full::new(self.body.clone());
        let body = match self.trailers.clone() {
            None => body::boxed(full),
            Some(trailers) => {
                body::boxed(full.with_trailers(std::future::ready(Some(Ok(trailers)))))
            }
        };
        Request::from_parts(self.head.clone(), body)
    }
}

/// Returns true if the API server provably did not process the request that failed with `error`: it
/// refused the stream, or closes the connection and has named an earlier request as the last
/// processed one (RFC 9113, sections 8.7 and 6.8). Requests that a server with `--goaway-chance`
/// lets begin while it closes their connection end this way.
pub(super) fn is_unprocessed(error: &BoxError) -> bool {
    let of_http2 = causes(&**error).find_map(|error| error.downcast_ref::<h2::Error>());
    of_http2.is_some_and(|error| {
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        // h2 gives this error only to streams above the last processed one.
        error.is_remote() && (is_refused || error.is_go_away())
    })
}

#[cfg(test)]
mod tests;
