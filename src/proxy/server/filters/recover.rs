//! Turns a panic into a 500 answer, so that it ends neither the connection nor the process.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use http::{Request, Response};
use kubefan_core::api::Status;
use kubefan_core::body::Body;
use tower::{Layer, Service};

use super::AnswerFuture;
use crate::server::answers::rescue::Refusal;

/// The layer that adds [`Recover`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoverLayer;

/// Answers 500 when the inner service panics.
#[derive(Clone, Debug)]
pub(crate) struct Recover<S> {
    inner: S,
}

impl<S> Layer<S> for RecoverLayer {
    type Service = Recover<S>;

    fn layer(&self, inner: S) -> Recover<S> {
        Recover { inner }
    }
}

impl<S> Service<Request<Body>> for Recover<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AnswerFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let refusal = Refusal::of(&request);
        let answer: AnswerFuture = Box::pin(self.inner.call(request));
        let answer = AssertUnwindSafe(answer).catch_unwind();
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| {
                let message = "kubefan failed to handle this request; see its log";
                let status = Status::failure(500, "InternalError", message);
                Ok(refusal.respond(&status))
            })
        })
    }
}
