//! Helpers for the tests: a simulator, and requests to it.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use kubefan_core::shutdown;
use kubefan_core::shutdown::Shutdown;
use kubefan_proxy::server::full;
use serde_json::Value;

use crate::sim::Simulator;

pub(super) fn simulator() -> Simulator {
    Simulator::new(Shutdown::new(shutdown::Config::default()))
}

/// A response with its body parsed as JSON; null if it is not JSON.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

pub(super) async fn send(
    simulator: &Simulator,
    method: Method,
    path: &str,
    content_type: &str,
    body: impl Into<Bytes>,
) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(full(body.into()))
        .expect("a request");
    let (parts, body) = simulator.clone().answer(request).await.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Answer {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }
}

pub(super) async fn get(simulator: &Simulator, path: &str) -> Answer {
    send(simulator, Method::GET, path, "", "").await
}
