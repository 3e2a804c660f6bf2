//! The one place where an error becomes a Status response and a log line.

use std::error::Error as _;

use bytes::Bytes;
use http::HeaderValue;
use http::Response;
use http::StatusCode;
use http::header;

use crate::api::Status;
use crate::api::WireFormat;
use crate::codec::Encoder;
use crate::upstream;
use crate::upstream::Body;

/// The answer that tells `status` in `format`.
pub fn respond(status: &Status, format: WireFormat) -> Response<Body> {
    let body = Encoder::status_body(format, status);
    let mut response = answer(format.media_type(), upstream::full(body));
    *response.status_mut() =
        StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = status.retry_after() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    if status.code == 403 {
        let nosniff = HeaderValue::from_static("nosniff");
        response
            .headers_mut()
            .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// A 200 with the headers that every answer of the API server has.
pub fn answer(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let caching = HeaderValue::from_static("no-cache, private");
    headers.insert(header::CACHE_CONTROL, caching);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The Status for a request that could not be forwarded, which is logged.
pub(super) fn forwarding_failed(error: &upstream::Error) -> Status {
    let mut causes = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    let causes = causes.join(": ");
    tracing::warn!(error = causes, "request could not be forwarded");
    match error {
        upstream::Error::Request(_) => Status::failure(400, "BadRequest", causes),
        upstream::Error::Timeout(_) => Status::failure(504, "Timeout", causes),
        _ => Status::failure(503, "ServiceUnavailable", format!("kubefan: {causes}")),
    }
}

/// An answer of plain text, for the admin listener.
pub fn plain_text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = answer("text/plain; charset=utf-8", upstream::full(text));
    *response.status_mut() = code;
    response
}
