//! Passes a request on to the server behind, and its answer back.

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use crate::support::clients::client::Client;
use crate::support::clients::client::chain;

/// Of the connection, not of the request.
const HOP_BY_HOP: [&str; 4] = ["host", "connection", "content-length", "transfer-encoding"];

/// What came of a request's body.
pub(super) async fn collect_body(body: Incoming) -> Bytes {
    let body = body.collect().await.map(|body| body.to_bytes());
    body.unwrap_or_default()
}

/// Sends the request with what `upstream` puts on every one; the error is in words.
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

/// The answer's body, as it comes.
pub(super) fn forwarded_body(body: Incoming) -> UnsyncBoxBody<Bytes, String> {
    body.map_err(|error| error.to_string()).boxed_unsync()
}
