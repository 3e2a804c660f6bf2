//! The one place where an error becomes a Status response and a log line.

use std::error::Error as _;
use std::ops::RangeInclusive;

use bytes::Bytes;
use http::HeaderName;
use http::HeaderValue;
use http::Request;
use http::Response;
use http::StatusCode;
use http::Uri;
use http::header;
use rand::Rng;

use crate::api::Query;
use crate::api::Status;
use crate::api::pretty_parameter;
use crate::api::should_indent;
use crate::body;
use crate::body::Body;
use crate::codec::StatusFormat;
use crate::upstream;

/// After how many seconds a client should retry a request that exceeded the limit of requests in
/// flight.
const RETRY_AFTER_SECONDS: RangeInclusive<u32> = 1..=5;

/// The parts of a request that determine how a refusal is encoded. They are copied from every
/// request, because the request is consumed before it is refused, and parsed only for a refusal.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    accept: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    uri: Uri,
}

impl Refusal {
    /// Copies these parts from `request`.
    pub(super) fn of(request: &Request<Body>) -> Self {
        // The API server reads only the first line of a repeated header.
        let header = |name: HeaderName| request.headers().get(name).cloned();
        Self {
            accept: header(header::ACCEPT),
            user_agent: header(header::USER_AGENT),
            uri: request.uri().clone(),
        }
    }

    /// The response that carries `status`, in a format that the request accepts.
    pub(super) fn respond(&self, status: &Status) -> Response<Body> {
        respond(status, self.format())
    }

    fn format(&self) -> StatusFormat {
        let text = |value: &Option<HeaderValue>| -> Option<String> {
            Some(value.as_ref()?.to_str().ok()?.to_owned())
        };
        let user_agent = text(&self.user_agent).unwrap_or_default();
        StatusFormat::negotiated(text(&self.accept).as_deref(), |accepted| {
            let query = Query::parse(self.uri.query().unwrap_or_default());
            should_indent(pretty_parameter(&query), accepted, &user_agent)
        })
    }
}

/// The response that carries `status`, encoded in `format`.
pub fn respond(status: &Status, format: impl Into<StatusFormat>) -> Response<Body> {
    let format = format.into();
    let mut response = answer(format.media_type(), body::full(format.body(status)));
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

/// A 200 response with the headers that every answer of the API server has.
pub fn answer(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let caching = HeaderValue::from_static("no-cache, private");
    headers.insert(header::CACHE_CONTROL, caching);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The Status for a request that could not be forwarded. Also logs `error` with its causes.
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
        // A write must not be repeated by clients if it may have been executed, so the answer has no
        // `Retry-After`.
        upstream::Error::Timeout(_) | upstream::Error::InDoubt(_) => {
            Status::failure(504, "Timeout", causes)
        }
        upstream::Error::Unreachable(_) => Status::unreachable(format!("kubefan: {causes}")),
        _ => Status::failure(503, "ServiceUnavailable", format!("kubefan: {causes}")),
    }
}

/// The 429 for a request that would exceed the limit of requests in flight, in kube-apiserver's
/// words. It is plain text in every case, as there. `Retry-After` is random, so that clients that
/// were refused together do not return together.
pub(super) fn too_many_requests() -> Response<Body> {
    let text = "Too many requests, please try again later.\n";
    let mut response = plain_text(StatusCode::TOO_MANY_REQUESTS, text);
    let headers = response.headers_mut();
    let seconds: u32 = rand::rng().random_range(RETRY_AFTER_SECONDS);
    headers.insert(header::RETRY_AFTER, seconds.into());
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// A plain-text response.
pub fn plain_text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = answer("text/plain; charset=utf-8", body::full(text));
    *response.status_mut() = code;
    response
}
