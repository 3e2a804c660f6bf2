//! The one place where an error becomes a Status response and a log line.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use kubefan_core::api::{Query, Status, pretty_parameter, should_indent};
use kubefan_core::body::Body;
use kubefan_core::codec::StatusFormat;
use kubefan_core::{body, upstream};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ledger::Short;
use crate::limit::Limit;
use crate::net::NoFileSlot;

/// The shortest time between two log lines about errors of one class.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// When the API server has been unreachable for this long, a 503 has no `Retry-After`, so that
/// clients fail at once. Before that they repeat their requests, client-go up to ten times, and so
/// survive a restart of the API server.
const LASTING_OUTAGE: Duration = Duration::from_secs(10);

/// The parts of a request that determine how an error is encoded. They are copied from every
/// request, because the request is consumed before it fails, and parsed only for an error.
#[derive(Clone, Debug)]
pub(in crate::server) struct ErrorFormat {
    accept: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    uri: Uri,
}

impl ErrorFormat {
    /// Copies the parts from `request`.
    pub(in crate::server) fn of(request: &Request<Body>) -> Self {
        // The API server reads only the first line of a repeated header.
        let header = |name: HeaderName| request.headers().get(name).cloned();
        Self {
            accept: header(header::ACCEPT),
            user_agent: header(header::USER_AGENT),
            uri: request.uri().clone(),
        }
    }

    /// Returns the response with `status`, in a format that the request accepts.
    pub(in crate::server) fn respond(&self, status: &Status) -> Response<Body> {
        respond(status, self.format())
    }

    /// Returns the response to a request that kubefan refuses.
    pub(in crate::server) fn refuse(&self, refused: &Refused) -> Response<Body> {
        match refused {
            Refused::Limit(limit) if limit.is_plain_text() => plain_refusal(&limit.status()),
            Refused::Limit(limit) => self.respond(&limit.status()),
            Refused::Status(status) => self.respond(status),
        }
    }

    /// Returns the first `User-Agent` of the request.
    pub(in crate::server) fn user_agent(&self) -> Option<&HeaderValue> {
        self.user_agent.as_ref()
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

/// Why kubefan refuses a request itself.
#[derive(Clone, Debug)]
pub enum Refused {
    /// The request would exceed this limit.
    Limit(Limit),
    /// Any other reason, as the client gets it.
    Status(Box<Status>),
}

impl Refused {
    /// Returns the limit that the request would exceed, if that is why it is refused.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::Limit(limit) => Some(*limit),
            Self::Status(_) => None,
        }
    }

    /// Returns the Status for the client.
    pub fn status(self) -> Status {
        match self {
            Self::Limit(limit) => limit.status(),
            Self::Status(status) => *status,
        }
    }
}

impl From<Limit> for Refused {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

impl From<Short> for Refused {
    fn from(_: Short) -> Self {
        Self::Limit(Limit::Memory)
    }
}

impl From<NoFileSlot> for Refused {
    fn from(_: NoFileSlot) -> Self {
        Self::Limit(Limit::Files)
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// Returns the response with `status`, encoded in `format`.
pub fn respond(status: &Status, format: impl Into<StatusFormat>) -> Response<Body> {
    let format = format.into();
    let response = answer(format.media_type(), body::full(format.body(status)));
    with_headers(response, status, status.code == 403)
}

/// Adds the status code and the headers of an answer with `status` to `response`.
fn with_headers(mut response: Response<Body>, status: &Status, nosniff: bool) -> Response<Body> {
    *response.status_mut() =
        StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(seconds) = status.retry_after() {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if nosniff {
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// Returns a 200 response with the headers that every answer of the API server has.
pub fn answer(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let caching = HeaderValue::from_static("no-cache, private");
    headers.insert(header::CACHE_CONTROL, caching);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Logs why requests could not be forwarded, for each class of errors at most once in 10 s.
#[derive(Debug, Default)]
pub(in crate::server) struct FailureLog {
    limits: Mutex<[LogLimit; FailureClass::COUNT]>,
}

/// When a class of errors was last logged.
#[derive(Clone, Copy, Debug, Default)]
struct LogLimit {
    last: Option<Instant>,
    suppressed: u64,
}

/// Why a forwarded request has no answer.
#[derive(Debug)]
pub(in crate::server) struct FailedForward {
    /// What the client gets.
    pub(in crate::server) refused: Refused,
    /// True if the API server can't be reached, or does not answer.
    pub(in crate::server) is_outage: bool,
}

/// The kind of a failure, as far as the client may learn about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureClass {
    Request,
    Timeout,
    InDoubt,
    Unreachable,
    Broken,
    Credentials,
    CredentialsRefused,
}

impl FailureLog {
    /// Returns what a client gets if its request could not be forwarded. No request has reached the
    /// API server for the time `unreachable_for`. The Status contains a fixed sentence. The error
    /// describes kubefan's side of the connection, so only the log gets it.
    pub(in crate::server) fn forwarding_failed(
        &self,
        error: &upstream::Error,
        unreachable_for: Option<Duration>,
    ) -> FailedForward {
        let class = FailureClass::of(error);
        let admitted = self.limits.lock()[class as usize].admit(Instant::now());
        if let Some(suppressed) = admitted {
            let error = with_causes(error);
            tracing::warn!(error, suppressed, "request could not be forwarded");
        }
        let is_lasting = unreachable_for.is_some_and(|outage| outage >= LASTING_OUTAGE);
        let status = match class {
            FailureClass::Unreachable if !is_lasting => Status::unreachable(class.message()),
            _ => class.status(),
        };
        FailedForward {
            refused: status.into(),
            is_outage: class.is_outage(),
        }
    }
}

impl FailedForward {
    /// Returns the failure of a request that kubefan refused.
    pub(in crate::server) fn refused(refused: impl Into<Refused>) -> Self {
        Self {
            refused: refused.into(),
            is_outage: false,
        }
    }
}

impl LogLimit {
    /// Returns the number of errors since the last logged one, if an error may be logged now.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_early = |last| now < last + LOG_INTERVAL;
        if self.last.is_some_and(is_early) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl FailureClass {
    const COUNT: usize = 7;

    fn of(error: &upstream::Error) -> Self {
        match error {
            upstream::Error::Request(_) => Self::Request,
            upstream::Error::Timeout(_) => Self::Timeout,
            upstream::Error::InDoubt(_) => Self::InDoubt,
            upstream::Error::Unreachable(_) => Self::Unreachable,
            upstream::Error::Credentials(_) => Self::Credentials,
            upstream::Error::CredentialsRefused => Self::CredentialsRefused,
            _ => Self::Broken,
        }
    }

    /// Returns a Status without `Retry-After`: clients must not repeat a write that may have been
    /// executed.
    fn status(self) -> Status {
        let (code, reason) = match self {
            Self::Request => (400, "BadRequest"),
            Self::Timeout | Self::InDoubt => (504, "Timeout"),
            Self::Unreachable | Self::Broken | Self::Credentials | Self::CredentialsRefused => {
                (503, "ServiceUnavailable")
            }
        };
        Status::failure(code, reason, self.message())
    }

    fn is_outage(self) -> bool {
        match self {
            Self::Timeout | Self::InDoubt | Self::Unreachable | Self::Broken => true,
            Self::Request | Self::Credentials | Self::CredentialsRefused => false,
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Request => "kubefan: the request can't be forwarded",
            Self::Timeout => "kubefan: the API server did not answer in time",
            Self::InDoubt => {
                "kubefan: the API server may have executed the request, but the connection broke"
            }
            Self::Unreachable => "kubefan: cannot reach the API server",
            Self::Broken => "kubefan: the connection to the API server broke",
            Self::Credentials => "kubefan: cannot get credentials for the API server",
            Self::CredentialsRefused => {
                "kubefan: the API server does not accept kubefan's credentials"
            }
        }
    }
}

/// Returns the messages of `error` and its causes.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let errors = successors(Some(error), |&error| error.source());
    let texts: Vec<_> = errors.map(ToString::to_string).collect();
    texts.join(": ")
}

/// Returns the Status for a client if its forwarded answer broke off before any of it was sent on.
pub(in crate::server) fn broken_off() -> Status {
    FailureClass::Broken.status()
}

/// Returns `status`, a 429, as plain text in every case, as kube-apiserver's own limit does.
fn plain_refusal(status: &Status) -> Response<Body> {
    let text = format!("{}\n", status.message);
    let response = plain_text(StatusCode::TOO_MANY_REQUESTS, text);
    with_headers(response, status, true)
}

/// Returns a plain-text response.
pub fn plain_text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = answer("text/plain; charset=utf-8", body::full(text));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_a_fixed_sentence_for_each_class_of_errors() {
        let secret = || "from kubefan's side".into();
        let log = FailureLog::default();
        for (error, code, message) in [
            (
                upstream::Error::Request(secret()),
                400,
                "kubefan: the request can't be forwarded",
            ),
            (
                upstream::Error::Timeout(Duration::from_secs(1)),
                504,
                "kubefan: the API server did not answer in time",
            ),
            (
                upstream::Error::InDoubt(secret()),
                504,
                "kubefan: the API server may have executed the request, but the connection broke",
            ),
            (
                upstream::Error::Unreachable(secret()),
                503,
                "kubefan: cannot reach the API server",
            ),
            (
                upstream::Error::Transport(secret()),
                503,
                "kubefan: the connection to the API server broke",
            ),
            (
                upstream::Error::Credentials("from kubefan's side".to_owned()),
                503,
                "kubefan: cannot get credentials for the API server",
            ),
            (
                upstream::Error::CredentialsRefused,
                503,
                "kubefan: the API server does not accept kubefan's credentials",
            ),
        ] {
            let is_unreachable = matches!(error, upstream::Error::Unreachable(_));
            let second = Duration::from_secs(1);
            for (outage, is_lasting) in [
                (None, false),
                (Some(LASTING_OUTAGE - second), false),
                (Some(LASTING_OUTAGE), true),
            ] {
                let FailedForward { refused, is_outage } = log.forwarding_failed(&error, outage);
                let status = refused.status();
                assert_eq!((status.code, status.message.as_str()), (code, message));
                let may_retry = is_unreachable && !is_lasting;
                assert_eq!(status.retry_after().is_some(), may_retry, "{message}");
                let is_answered =
                    message.contains("credentials") || message.contains("request can't");
                assert_eq!(is_outage, !is_answered, "{message}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_class_of_errors_is_logged_at_most_once_in_an_interval() {
        let mut limit = LogLimit::default();
        let mut admitted = Vec::new();
        for _ in 0..8 {
            admitted.push(limit.admit(Instant::now()));
            tokio::time::advance(LOG_INTERVAL / 4).await;
        }
        let expected = [Some(0), None, None, None, Some(3), None, None, None];
        assert_eq!(admitted, expected);
    }
}
