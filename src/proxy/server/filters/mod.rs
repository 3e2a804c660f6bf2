//! The layers that every request passes first, with one file for each.

mod charge;
mod gzip;
mod recover;
mod trace;
mod web_pages;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;

pub(super) use charge::ChargeLayer;
pub(super) use gzip::GzipLayer;
use http::Response;
use kubefan_core::body::Body;
pub(super) use recover::RecoverLayer;
pub use trace::RequestMetrics;
pub(super) use trace::TraceLayer;
pub use web_pages::WebPageRules;
pub(super) use web_pages::{WebPagesLayer, refusal_reason};

/// The future of a layer that changes or inspects the answer.
type AnswerFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
