//! Forwards a request to the server behind a proxy, and returns the answer.

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use crate::support::clients::client::{Client, chain};

/// Headers that belong to the connection and are not forwarded.
const HOP_BY_HOP: [&str; 4] = ["host", "connection", "content-length", "transfer-encoding"];

/// Reads the body of a request to its end. Returns an empty body if the client broke off.
pub(super) async fn collect_body(body: Incoming) -> Bytes {
    let body = body.collect().await.map(|body| body.to_bytes());
    body.unwrap_or_default()
}

/// Sends a request with the headers that `upstream` adds to every request. The error is a text.
pub(super) async fn forward_request(
    upstream: &Client,
    mut parts: Parts,
    body: Bytes,
) -> Result<Response<Incoming>, String> {
    for name in HOP_BY_HOP {
        parts.headers.remove(name);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let sent = upstream.open(parts.method, path, &parts.headers, body);
    sent.await.map_err(|error| chain(&error))
}

/// Returns an answer's body as a stream, unchanged.
pub(super) fn forwarded_body(body: Incoming) -> UnsyncBoxBody<Bytes, String> {
    body.map_err(|error| error.to_string()).boxed_unsync()
}
