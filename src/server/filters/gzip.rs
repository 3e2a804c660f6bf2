//! Compresses large answers for those who accept it, by the API server's rule.

use std::convert::Infallible;
use std::task::Context;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::Either;
use futures_util::future::Map;
use http::Request;
use http::Response;
use http::header;
use http_body::Body as _;
use tower::Layer;
use tower::Service;

use crate::body;
use crate::body::Body;
use crate::server::deliver::Gzip;
use crate::server::deliver::THRESHOLD;
use crate::server::deliver::announced;
use crate::server::deliver::is_accepted;
use crate::server::outcome::Answered;
use crate::server::outcome::Outcome;

/// Adds [`Compress`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GzipLayer;

/// Compresses answers known to be long: so never a watch, nor what was forwarded, which comes in the
/// encoding that the API server chose.
#[derive(Clone, Debug)]
pub(crate) struct Compress<S> {
    inner: S,
}

type Answer = Result<Response<Body>, Infallible>;

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
    type Future = Either<S::Future, Map<S::Future, fn(Answer) -> Answer>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let accepts = is_accepted(&request);
        let answer = self.inner.call(request);
        match accepts {
            false => Either::Left(answer),
            true => Either::Right(answer.map(|answer| answer.map(compressed))),
        }
    }
}

fn compressed(response: Response<Body>) -> Response<Body> {
    let answered = response.extensions().get::<Answered>();
    let is_forwarded = answered.is_some_and(|answered| {
        // Its length is its own, and so is its encoding.
        matches!(answered.outcome, Outcome::Forwarded(_))
    });
    // A list's may be made for several at once.
    let is_encoded = response.headers().contains_key(header::CONTENT_ENCODING);
    // Of indented JSON only the least length is known, of a watch none.
    let length = response.body().size_hint().lower();
    if is_forwarded || is_encoded || length <= THRESHOLD {
        return response;
    }
    announced(response.map(|body| body::boxed(Gzip::new(body))))
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
            (THRESHOLD, ours, false),
            (THRESHOLD + 1, ours, true),
            (THRESHOLD + 1, cached, true),
            (THRESHOLD + 1, forwarded, false),
        ] {
            let mut response = Response::new(body::full(vec![b'a'; length as usize]));
            if let Some(outcome) = outcome {
                let answered = Answered {
                    outcome,
                    ..Answered::default()
                };
                response.extensions_mut().insert(answered);
            }
            let response = compressed(response);
            let encoding = response.headers().get(header::CONTENT_ENCODING);
            assert_eq!(encoding.is_some(), expected, "{length} {outcome:?}");
            let vary = response.headers().get(header::VARY);
            assert_eq!(vary.is_some(), expected, "{length} {outcome:?}");
        }
    }
}
