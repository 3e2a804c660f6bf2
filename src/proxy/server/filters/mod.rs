//! What every request passes first, with one file for each filter. A filter calls the next one.

mod charge;
mod gzip;
mod recover;
mod trace;
mod web_pages;

use std::future::Future;

use http::Response;
use kubefan_core::body::Body;
pub use trace::{Records, RequestMetrics};
pub use web_pages::WebPageRules;
pub(super) use web_pages::refusal_reason;

use super::answers::answer::Answer;
use super::request::Exchange;

/// Passes `exchange` through all filters to `handler`, and returns the response for the client.
pub(super) async fn answer_through_filters<F: Future<Output = Answer>>(
    exchange: Box<Exchange>,
    records: &Records,
    web_pages: WebPageRules,
    handler: impl FnOnce(Box<Exchange>) -> F,
) -> Response<Body> {
    let own_pages = |exchange| web_pages::refuse_foreign(exchange, web_pages, handler);
    let recovering = |exchange| recover::recover(exchange, own_pages);
    let compressing = |exchange| gzip::compress(exchange, recovering);
    let charging = |exchange| charge::charge(exchange, compressing);
    trace::trace(exchange, records, charging).await
}
