//! Counts, times and logs every request, and gives it an audit ID.

use http::header::Entry;
use http::{HeaderValue, Request, Response, Uri};
use kubefan_core::body::Body;
use kubefan_core::telemetry::{Registry, SECONDS_BUCKETS};
use percent_encoding::percent_decode_str;
use prometheus::{HistogramVec, IntCounterVec};
use tokio::time::Instant;

use crate::server::answers::answer::Answer;
use crate::server::request::Exchange;

const AUDIT_ID: &str = "audit-id";

/// Number and duration of all requests.
#[derive(Clone)]
pub struct RequestMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl RequestMetrics {
    /// Registers the metrics in `registry`.
    pub fn new(registry: &Registry) -> Self {
        Self {
            requests: registry.counter_vec(
                "kubefan_requests_total",
                "Requests answered, by verb, resource, outcome (cache, forwarded, rejected), the \
                 reason for forwarding or for another media type, and HTTP status code.",
                &["verb", "group", "resource", "outcome", "reason", "code"],
            ),
            seconds: registry.histogram_vec(
                "kubefan_request_duration_seconds",
                "Seconds from a request's headers to its answer's headers.",
                &["verb", "outcome"],
                SECONDS_BUCKETS,
            ),
        }
    }

    fn observe(&self, verb: &str, answer: &Answer, started: Instant) {
        let outcome = answer.outcome.name();
        let (group, resource) = match &answer.resource {
            Some(gvr) => (gvr.group.as_str(), gvr.resource.as_str()),
            None => ("", ""),
        };
        let code = answer.response.status();
        let labels = [
            verb,
            group,
            resource,
            outcome,
            answer.outcome.reason(),
            code.as_str(),
        ];
        self.requests.with_label_values(&labels).inc();
        self.seconds
            .with_label_values(&[verb, outcome])
            .observe(started.elapsed().as_secs_f64());
    }
}

/// Counts, times and logs the request, and gives it an audit ID.
pub(super) async fn trace<F: Future<Output = Answer>>(
    mut exchange: Box<Exchange>,
    metrics: &RequestMetrics,
    next: impl FnOnce(Box<Exchange>) -> F,
) -> Response<Body> {
    let started = Instant::now();
    let audit_id = audit_id(&mut exchange.request);
    let method = exchange.request.method().clone();
    let uri = exchange.request.uri().clone();
    let verb = exchange.info.verb.label();
    let answer = next(exchange).await;
    metrics.observe(verb, &answer, started);
    let mut response = answer.response;
    tracing::debug!(
        %method,
        path = uri.path(),
        query = printable_query(&uri),
        code = response.status().as_u16(),
        outcome = answer.outcome.name(),
        reason = answer.outcome.reason(),
        milliseconds = started.elapsed().as_millis() as u64,
        audit_id = audit_id.to_str().unwrap_or_default(),
        "request"
    );
    response.headers_mut().entry(AUDIT_ID).or_insert(audit_id);
    response
}

/// Returns the query for the log. For programs behind the API server's proxy it is empty, because
/// their queries may contain secrets.
fn printable_query(uri: &Uri) -> &str {
    // The API server decodes the path before it reads it.
    let path = percent_decode_str(uri.path()).decode_utf8_lossy();
    if path.split('/').any(|segment| segment == "proxy") {
        ""
    } else {
        uri.query().unwrap_or_default()
    }
}

/// Returns the audit ID that the client sent, or a new one. It is set in the request, so that the
/// API server gets it too if the request is forwarded.
fn audit_id(request: &mut Request<Body>) -> HeaderValue {
    let new_id = || {
        HeaderValue::try_from(uuid::Uuid::new_v4().to_string()).expect("a UUID is a header value")
    };
    match request.headers_mut().entry(AUDIT_ID) {
        Entry::Occupied(sent) if !sent.get().is_empty() => sent.get().clone(),
        // An empty ID counts as none, as at the API server.
        Entry::Occupied(mut empty) => {
            let new_id = new_id();
            empty.insert(new_id.clone());
            new_id
        }
        Entry::Vacant(none) => none.insert(new_id()).clone(),
    }
}

#[cfg(test)]
mod tests {
    use kubefan_core::body;

    use super::*;

    #[test]
    fn the_query_of_a_proxied_request_is_not_printed_however_its_path_is_written() {
        for (uri, expected) in [
            ("/api/v1/pods?limit=1", "limit=1"),
            ("/api/v1/namespaces/a/pods/b/proxy/?pw=x", ""),
            ("/api/v1/namespaces/a/pods/b/%70roxy/?pw=x", ""),
            ("/%70%72oxy/?pw=x", ""),
        ] {
            let uri = uri.parse().expect("a URI");
            assert_eq!(printable_query(&uri), expected, "{uri}");
        }
    }

    #[test]
    fn an_empty_audit_id_is_replaced() {
        for (sent, is_kept) in [(None, false), (Some(""), false), (Some("mine"), true)] {
            let mut request = Request::new(body::empty());
            if let Some(sent) = sent {
                let sent = HeaderValue::from_static(sent);
                request.headers_mut().insert(AUDIT_ID, sent);
            }
            let id = audit_id(&mut request);
            assert_eq!(request.headers().get(AUDIT_ID), Some(&id), "{sent:?}");
            assert_eq!(id == "mine", is_kept, "{sent:?}");
            assert!(!id.is_empty(), "{sent:?}");
        }
    }
}
