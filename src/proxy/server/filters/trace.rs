//! Counts, times and logs every request, and gives it an audit ID.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::Entry;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use kubefan_core::body::Body;
use kubefan_core::telemetry::{Registry, SECONDS_BUCKETS};
use prometheus::core::Collector;
use prometheus::proto::Metric;
use prometheus::{HistogramVec, IntCounterVec};
use tokio::time::Instant;
use uuid::Builder;

use crate::ledger::WatchMeter;
use crate::server::answers::answer::Answer;
use crate::server::answers::cache_status;
use crate::server::answers::consumers::Consumers;
use crate::server::answers::ending::{Ending, sending};
use crate::server::answers::record::{Arrival, LoggedHeaders, Record};
use crate::server::request::{Exchange, Verb};
use crate::traces::Parent;

const AUDIT_ID: &str = "audit-id";

/// What the record of each request is for. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    pub(crate) metrics: RequestMetrics,
    pub(crate) consumers: Consumers,
    /// Whether answers have the header `Cache-Status`.
    pub(crate) has_cache_status: bool,
}

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

/// A request without an answer. It is dropped if the client leaves.
struct Unanswered<'a> {
    consumers: &'a Consumers,
    /// `None` when the head of the answer is known.
    arrival: Option<Arrival>,
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

    fn observe(&self, record: &Record) {
        let (verb, outcome) = (record.arrival.info.verb.label(), record.outcome.name());
        let (group, resource) = match &record.resource {
            Some(gvr) => (gvr.group.as_str(), gvr.resource.as_str()),
            None => ("", ""),
        };
        let reason = record.outcome.reason();
        let code = record.status.as_str();
        self.requests
            .with_label_values(&[verb, group, resource, outcome, reason, code])
            .inc();
        self.seconds
            .with_label_values(&[verb, outcome])
            .observe(record.time_to_head.as_secs_f64());
    }
}

impl Records {
    /// Creates the records for `metrics`, and for the header `Cache-Status` unless the answers have
    /// none.
    pub(in crate::server) fn new(metrics: RequestMetrics, has_cache_status: bool) -> Self {
        Self {
            metrics,
            consumers: Consumers::default(),
            has_cache_status,
        }
    }
}

/// Returns the value of the label `name`.
fn label<'a>(metric: &'a Metric, name: &str) -> &'a str {
    let label = metric.get_label().iter().find(|label| label.name() == name);
    label.map_or("", |label| label.value())
}

impl<'a> Unanswered<'a> {
    fn new(consumers: &'a Consumers, arrival: Arrival) -> Self {
        Self {
            consumers,
            arrival: Some(arrival),
        }
    }

    /// Returns the arrival. The request is not unanswered any more.
    fn answered(mut self) -> Arrival {
        self.arrival.take().expect("nothing else takes it")
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrival.take() {
            self.consumers.unanswered(arrival);
        }
    }
}

/// Counts, times and logs the request, and gives it an audit ID. Cancel safe: the logs have the
/// request then, too.
pub(super) async fn trace<F: Future<Output = Answer>>(
    mut exchange: Box<Exchange>,
    records: &Records,
    next: impl FnOnce(Box<Exchange>) -> F,
) -> Response<Body> {
    let consumers = &records.consumers;
    let arrival = arrival(&mut exchange, consumers);
    let is_held = !consumers.are_none() || arrival.trace.is_some();
    let ending = is_held.then(|| Arc::new(Ending::new(consumers.clone())));
    exchange.ending = ending.clone();
    let unanswered = Unanswered::new(consumers, arrival);
    let answer = next(exchange).await;
    let arrival = unanswered.answered();
    let mut response = answer.response;
    let record = Record {
        time_to_head: arrival.began.elapsed(),
        status: response.status(),
        arrival,
        outcome: answer.outcome,
        resource: answer.resource,
        caller: answer.caller,
        waits: answer.waits,
        read: answer.read,
    };
    records.metrics.observe(&record);
    log(&record);
    let audit_id = record.arrival.audit_id.clone();
    response.headers_mut().entry(AUDIT_ID).or_insert(audit_id);
    if records.has_cache_status {
        cache_status::append(response.headers_mut(), record.outcome);
    }
    let mut ending = ending.filter(|_| consumers.want(&record));
    let meter = meter_of(&record.arrival.info.verb, record.status, answer.meter);
    if let Some(ending) = &ending {
        ending.begin(record, meter.as_ref());
    }
    // The task of an upgraded connection owns the ending, too. It outlives the empty body.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        ending = None;
    }
    sending(response, answer.charge, ending, meter)
}

/// Returns the meter of the answer if it is a watch that has begun: that of the cache that answers
/// it, or a new one that counts only bytes. A forwarded upgrade has none: the task that copies its
/// bytes notes their number in the ending.
fn meter_of(
    verb: &Verb,
    status: StatusCode,
    of_cache: Option<Arc<WatchMeter>>,
) -> Option<Arc<WatchMeter>> {
    if *verb != Verb::Watch {
        return None;
    }
    match status {
        StatusCode::SWITCHING_PROTOCOLS => of_cache,
        status if status.is_success() => Some(of_cache.unwrap_or_default()),
        _ => None,
    }
}

/// Notes what is known of the request of `exchange`, and gives it an audit ID. Decides whether the
/// request is recorded. What only some consumers need is noted only for them.
fn arrival(exchange: &mut Exchange, consumers: &Consumers) -> Arrival {
    let began = Instant::now();
    let audit_id = audit_id(&mut exchange.request);
    let request = &exchange.request;
    let (traces, is_tls) = (consumers.traces.as_ref(), exchange.client.peer.tls);
    let trace = traces.and_then(|traces| traces.begin(request.headers(), is_tls));
    exchange.trace = trace.clone();
    let header = |name: &str| request.headers().get(name).cloned();
    let headers = consumers.have_logs().then(|| {
        Box::new(LoggedHeaders {
            forwarded_for: header("x-forwarded-for"),
            real_ip: header("x-real-ip"),
            trace_parent: Parent::of(request.headers()),
        })
    });
    Arrival {
        info: Arc::clone(&exchange.info),
        method: request.method().clone(),
        uri: request.uri().clone(),
        protocol: request.version(),
        user_agent: exchange.errors.user_agent().cloned(),
        audit_id,
        peer: exchange.client.peer.address.ip(),
        began,
        time: Timestamp::now(),
        headers,
        trace,
        cpu: exchange
            .client
            .cpu
            .clone()
            .filter(|_| consumers.bill.is_some()),
    }
}

fn log(record: &Record) {
    let Record {
        arrival, outcome, ..
    } = record;
    tracing::debug!(
        method = %arrival.method,
        path = arrival.uri.path(),
        query = arrival.printable_query(),
        code = record.status.as_u16(),
        outcome = outcome.name(),
        reason = outcome.reason(),
        milliseconds = record.time_to_head.as_millis() as u64,
        audit_id = arrival.audit_id.to_str().unwrap_or_default(),
        "request"
    );
}

/// Returns the audit ID that the client sent, or a new one. It is set in the request, so that the
/// API server gets it too if the request is forwarded.
fn audit_id(request: &mut Request<Body>) -> HeaderValue {
    let new_id = || {
        // Unlike `Uuid::new_v4`, this needs no system call for each ID.
        let id = Builder::from_random_bytes(rand::random()).into_uuid();
        HeaderValue::try_from(id.to_string()).expect("a UUID is a header value")
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
    use std::fs;
    use std::future::pending;

    use futures_util::FutureExt;
    use kubefan_core::body;
    use serde_json::Value;

    use super::*;
    use crate::line_log::{LineLog, LogKind};
    use crate::net::ClientHandle;

    #[tokio::test]
    async fn a_request_whose_client_leaves_before_the_answer_is_logged() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let log = LineLog::open(LogKind::Access, &path, &Registry::new());
        let log = Arc::new(log.expect("opened"));
        let mut records = Records::new(RequestMetrics::new(&Registry::new()), false);
        records.consumers.access_log = Some(Arc::clone(&log));
        let mut request = Request::new(body::empty());
        *request.uri_mut() = "/api/v1/pods?limit=1".parse().expect("a URI");
        let client = ClientHandle::for_tests(None);
        request.extensions_mut().insert(client);
        let never = |_| pending::<Answer>();
        let answer = trace(Exchange::of(request), &records, never).now_or_never();
        assert!(answer.is_none());
        log.finish().await;
        let line = fs::read_to_string(&path).expect("text");
        let line: Value = serde_json::from_str(&line).expect("one line");
        assert_eq!(line["path"], "/api/v1/pods");
        assert_eq!(line["status"], 499);
        assert_eq!(line["outcome"], "unanswered");
        assert_eq!(line["end"], "client_gone");
        assert!(records.metrics.by_resource().is_empty());
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
    fn watches_have_meters_except_upgrades_that_are_forwarded() {
        let upgraded = StatusCode::SWITCHING_PROTOCOLS;
        for (verb, status, of_cache, expected) in [
            (Verb::Watch, StatusCode::OK, true, true),
            (Verb::Watch, StatusCode::OK, false, true),
            (Verb::Watch, upgraded, true, true),
            (Verb::Watch, upgraded, false, false),
            (Verb::Watch, StatusCode::GONE, false, false),
            (Verb::List, StatusCode::OK, false, false),
        ] {
            let of_cache = of_cache.then(Arc::default);
            let meter = meter_of(&verb, status, of_cache.clone());
            assert_eq!(meter.is_some(), expected, "{verb:?}, {status}");
            let is_kept =
                of_cache.is_none_or(|own| meter.is_some_and(|meter| Arc::ptr_eq(&own, &meter)));
            assert!(is_kept, "{verb:?}, {status}");
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
            let made = uuid::Uuid::try_parse_ascii(id.as_bytes());
            assert_eq!(made.is_ok_and(|id| id.get_version_num() == 4), !is_kept);
        }
    }
}
