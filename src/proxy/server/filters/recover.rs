//! Turns a panic into a 500 answer, so that it ends neither the connection nor the process.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use kubefan_core::api::Status;

use crate::server::answers::answer::Answer;
use crate::server::request::Exchange;

/// Answers 500 if `next` panics.
pub(super) async fn recover<F: Future<Output = Answer>>(
    exchange: Box<Exchange>,
    next: impl FnOnce(Box<Exchange>) -> F,
) -> Answer {
    let errors = exchange.errors.clone();
    let answer = AssertUnwindSafe(next(exchange)).catch_unwind();
    answer.await.unwrap_or_else(|_| {
        let message = "kubefan failed to handle this request; see its log";
        let status = Status::failure(500, "InternalError", message);
        errors.respond(&status).into()
    })
}
