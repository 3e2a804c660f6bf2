//! Counts, times and logs every request, and gives it an audit ID.

use std::collections::BTreeMap;

use http::header::Entry;
use http::{HeaderValue, Request, Response, Uri};
use kubefan_core::body::Body;
use kubefan_core::telemetry::{Registry, SECONDS_BUCKETS};
use percent_encoding::percent_decode_str;
use prometheus::core::Collector;
use prometheus::proto::Metric;
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

/// The number of requests for one resource, by outcome. Requests for no known resource have empty
/// names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct RequestCounts {
    pub(in crate::server) group: String,
    pub(in crate::server) resource: String,
    pub(in crate::server) cache: u64,
    pub(in crate::server) forwarded: u64,
    pub(in crate::server) rejected: u64,
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

    /// Returns the number of requests by resource, in the order of groups and resources.
    pub(in crate::server) fn by_resource(&self) -> Vec<RequestCounts> {
        let mut counts: BTreeMap<(String, String), RequestCounts> = BTreeMap::new();
        for family in self.requests.collect() {
            for metric in family.get_metric() {
                let [group, resource] = ["group", "resource"].map(|name| label(metric, name));
                let key = (group.to_owned(), resource.to_owned());
                let counts = counts.entry(key).or_insert_with(|| RequestCounts {
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    ..RequestCounts::default()
                });
                let count = metric.get_counter().get_value() as u64;
                match label(metric, "outcome") {
                    "cache" => counts.cache += count,
                    "forwarded" => counts.forwarded += count,
                    _ => counts.rejected += count,
                }
            }
        }
        counts.into_values().collect()
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

/// Returns the value of the label `name`.
fn label<'a>(metric: &'a Metric, name: &str) -> &'a str {
    let label = metric.get_label().iter().find(|label| label.name() == name);
    label.map_or("", |label| label.value())
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
    fn requests_are_summed_by_resource() {
        let metrics = RequestMetrics::new(&Registry::new());
        for (verb, group, resource, outcome, reason, count) in [
            ("list", "", "pods", "cache", "", 2),
            ("watch", "", "pods", "cache", "media_type", 3),
            ("get", "", "pods", "forwarded", "unproven", 4),
            ("list", "apps", "deployments", "rejected", "", 5),
            ("get", "", "", "forwarded", "unknown", 6),
        ] {
            let labels = [verb, group, resource, outcome, reason, "200"];
            let counter = metrics.requests.with_label_values(&labels);
            counter.inc_by(count);
        }
        let counts = |group: &str, resource: &str, [cache, forwarded, rejected]: [u64; 3]| {
            let (group, resource) = (group.to_owned(), resource.to_owned());
            RequestCounts {
                group,
                resource,
                cache,
                forwarded,
                rejected,
            }
        };
        let expected = [
            counts("", "", [0, 6, 0]),
            counts("", "pods", [5, 4, 0]),
            counts("apps", "deployments", [0, 0, 5]),
        ];
        assert_eq!(metrics.by_resource(), expected);
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
