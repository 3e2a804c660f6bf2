//! Compresses large answers for clients that accept gzip, by the API server's rule.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{Either, Map};
use http::{Request, Response, header};
use http_body::Body as _;
use kubefan_core::body;
use kubefan_core::body::Body;
use tower::{Layer, Service};

use crate::server::answers::outcome::{Outcome, RequestOutcome};
use crate::server::deliver::{
    GZIP_THRESHOLD, GzipBody, OwnCompressor, client_accepts_gzip, with_gzip_headers,
};

/// The layer that adds [`Compress`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GzipLayer;

/// Compresses answers of more than [`GZIP_THRESHOLD`] bytes. A watch is not compressed here,
/// because `Delivery::watch` decides about it. A forwarded answer retains the encoding that the API
/// server chose.
#[derive(Clone, Debug)]
pub(crate) struct Compress<S> {
    inner: S,
}

type AnswerResult = Result<Response<Body>, Infallible>;

impl<S> Layer<S> for GzipLayer {
    type Service = Compress<S>;

    fn layer(&self, inner: S) -> Compress<S> {
        Compress { inner }
    }
}

impl<S> Service<Request<Body>> for Compress<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Map<S::Future, fn(AnswerResult) -> AnswerResult>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client_accepts = client_accepts_gzip(&request);
        let answer = self.inner.call(request);
        match client_accepts {
            false => Either::Left(answer),
            true => Either::Right(answer.map(|answer| answer.map(compressed))),
        }
    }
}

fn compressed(response: Response<Body>) -> Response<Body> {
    let request_outcome = response.extensions().get::<RequestOutcome>();
    let is_forwarded = request_outcome.is_some_and(|request_outcome| {
        // The API server has already chosen whether to compress a forwarded answer.
        matches!(request_outcome.outcome, Outcome::Forwarded(_))
    });
    // A list may already be compressed, once for several clients.
    let is_encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    // Indented JSON and watches have no exact length; the lower bound of a watch is zero.
    let length = response.body().size_hint().lower();
    if is_forwarded || is_encoded || length <= GZIP_THRESHOLD {
        return response;
    }
    let mut response = with_gzip_headers(response.map(|body| body::boxed(GzipBody::new(body))));
    response.extensions_mut().insert(OwnCompressor);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Reason;

    #[test]
    fn only_large_answers_of_ours_are_compressed() {
        let ours = None;
        let cached = Some(Outcome::Cache);
        let forwarded = Some(Outcome::Forwarded(Reason::Consistent));
        for (length, outcome, expected) in [
            (GZIP_THRESHOLD, ours, false),
            (GZIP_THRESHOLD + 1, ours, true),
            (GZIP_THRESHOLD + 1, cached, true),
            (GZIP_THRESHOLD + 1, forwarded, false),
        ] {
            let mut response = Response::new(body::full(vec![b'a'; length as usize]));
            if let Some(outcome) = outcome {
                let request_outcome = RequestOutcome {
                    outcome,
                    ..RequestOutcome::default()
                };
                response.extensions_mut().insert(request_outcome);
            }
            let response = compressed(response);
            let encoding = response.headers().get(header::CONTENT_ENCODING);
            assert_eq!(encoding.is_some(), expected, "{length} {outcome:?}");
            let vary = response.headers().get(header::VARY);
            assert_eq!(vary.is_some(), expected, "{length} {outcome:?}");
        }
    }
}
