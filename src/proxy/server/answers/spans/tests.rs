use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};
use kubefan_core::informer::ProofMethod;
use tokio::time::advance;

use super::*;
use crate::limit::Limit;
use crate::server::Reason;
use crate::server::answers::answer::Waits;
use crate::server::answers::outcome::{Call, Forwarded, Hit, UsedProof};
use crate::traces::tests::{World, waiting};
use crate::traces::{Rate, TRACEPARENT};

const SECRETS: [&str; 4] = ["secret", "10.0.0.9", "agent", "mine"];
const POD: &str = "/api/v1/namespaces/secret/pods/secret?pretty=secret";
const PODS: &str = "/api/v1/namespaces/secret/pods?labelSelector=secret";

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns a trace that continues the client's.
fn begin(world: &World) -> Arc<RequestTrace> {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traceparent = HeaderValue::from_static(traceparent);
    let headers = HeaderMap::from_iter([(TRACEPARENT, traceparent)]);
    world.traces.begin(&headers, true).expect("a recorded one")
}

/// Returns the record of a request that has arrived now, with [`SECRETS`].
fn record(trace: &Arc<RequestTrace>, target: &str, outcome: Outcome) -> Record {
    let mut record = Record::for_tests(target, outcome);
    record.arrival.peer = IpAddr::from([10, 0, 0, 9]);
    record.arrival.user_agent = Some(HeaderValue::from_static("agent"));
    record.arrival.audit_id = HeaderValue::from_static("mine");
    record.arrival.trace = Some(Arc::clone(trace));
    record.time_to_head = millis(10);
    record
}

fn ended_after(lasted: Duration, end: End) -> Ended {
    Ended {
        bytes: 7,
        lasted,
        end,
    }
}

/// Returns each span as its name, its start and its length in milliseconds.
fn times(spans: &[Span]) -> Vec<(&str, u64, u64)> {
    let began = spans[0].began;
    let ms = |nanos: u64| nanos / 1_000_000;
    let times = spans.iter().map(|span| {
        (
            &*span.name,
            ms(span.began - began),
            ms(span.ended - span.began),
        )
    });
    times.collect()
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|(name, _)| *name == key);
    found.map(|(_, value)| value)
}

/// Panics unless the first of `spans` is a child of the client's span, and the others are children
/// of the first. Nothing in them may be secret.
fn check(spans: &[Span], trace: &RequestTrace) {
    let root = &spans[0];
    assert_eq!((root.context, root.kind), (trace.root, SpanKind::Server));
    assert_eq!(root.parent, trace.parent);
    for child in &spans[1..] {
        assert_eq!(child.context.trace, root.context.trace);
        assert_eq!(child.parent, Some(root.context.span));
        assert_ne!(child.context.span, root.context.span);
    }
    let text = format!("{spans:?}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cached_read_has_a_span_for_each_stage() {
    let world = World::new(Rate::REQUESTS);
    let trace = begin(&world);
    let outcome = Outcome::Cache(Hit {
        is_json_instead: false,
        proof: Some(UsedProof {
            method: ProofMethod::Barrier,
            as_of: None,
        }),
    });
    let mut record = record(&trace, POD, outcome);
    record.waits = Waits {
        began: Some(record.arrival.began + millis(1)),
        authorize: millis(2),
        // Nothing was waited for.
        acquire: Duration::from_nanos(800),
        prove: millis(4),
    };
    let proof = SpanContext::new_trace();
    trace.proven(proof);
    ended(&trace, &record, &ended_after(millis(50), End::ClientGone));
    let spans = waiting(&world.traces);
    check(&spans, &trace);
    let route = "GET /api/v1/namespaces/{namespace}/pods/{name}";
    let expected = [
        (route, 0, 50),
        ("decide", 0, 1),
        ("authorize", 1, 2),
        ("prove", 3, 4),
        ("deliver", 7, 42),
    ];
    assert_eq!(times(&spans), expected);
    let links: Vec<_> = spans.iter().flat_map(|span| &span.links).collect();
    assert_eq!(links, [&proof]);
    assert_eq!(spans[3].links, [proof]);
    for (key, value) in [
        ("http.request.method", "GET".into()),
        ("http.response.status_code", Value::Number(200)),
        ("http.route", route["GET ".len()..].to_owned().into()),
        ("url.scheme", "https".into()),
        ("network.protocol.version", "2".into()),
        ("kubefan.verb", "get".into()),
        ("kubefan.outcome", "cache".into()),
        ("kubefan.proof", "barrier".into()),
        ("kubefan.end", "client_gone".into()),
    ] {
        assert_eq!(attribute(&spans[0], key), Some(&value), "{key}");
    }
    assert_eq!(spans[0].attributes.len(), 9);
    assert!(spans.iter().all(|span| !span.is_error));
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_request_has_the_span_of_its_call() {
    for (status, shared, is_error) in [
        (Some(404), false, false),
        (Some(503), true, true),
        (None, false, true),
    ] {
        let world = World::new(Rate::REQUESTS);
        let trace = begin(&world);
        let status = status.map(|status| StatusCode::from_u16(status).expect("a status"));
        let call = Call {
            status,
            is_shared: shared,
            is_remembered: false,
        };
        let reason = Reason::Consistent;
        let outcome = Outcome::Forwarded(Forwarded { reason, call });
        let mut record = record(&trace, PODS, outcome);
        record.status = status.unwrap_or(StatusCode::GATEWAY_TIMEOUT);
        advance(millis(3)).await;
        trace.forwarded();
        advance(millis(5)).await;
        if status.is_some() {
            trace.answered();
        }
        let shared_call = SpanContext::new_trace();
        if shared {
            trace.shared(shared_call);
        }
        ended(&trace, &record, &ended_after(millis(20), End::Complete));
        let spans = waiting(&world.traces);
        check(&spans, &trace);
        // Without an answer, the call ends with kubefan's own answer.
        let answered = if status.is_some() { 8 } else { 10 };
        let expected = [
            ("GET /api/v1/namespaces/{namespace}/pods", 0, 20),
            ("decide", 0, 3),
            ("forward", 3, answered - 3),
            ("deliver", answered, 20 - answered),
        ];
        assert_eq!(times(&spans), expected);
        let forward = &spans[2];
        assert_eq!(forward.context, trace.forward);
        let (kind, links) = match shared {
            true => (SpanKind::Internal, vec![shared_call]),
            false => (SpanKind::Client, Vec::new()),
        };
        assert_eq!((forward.kind, &forward.links), (kind, &links));
        assert_eq!(forward.is_error, is_error);
        let code = status.map(|status| Value::from(status.as_u16()));
        let found = attribute(forward, "http.response.status_code");
        assert_eq!(found, code.as_ref());
        let error_type = is_error.then(|| Value::from(record.status.as_str().to_owned()));
        assert_eq!(attribute(&spans[0], "error.type"), error_type.as_ref());
        assert_eq!(
            attribute(&spans[0], "kubefan.reason"),
            Some(&Value::from("consistent"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_has_no_further_stage() {
    for (outcome, reason) in [
        (Outcome::Rejected(Some(Limit::Streams)), Some("streams")),
        (Outcome::Rejected(None), None),
    ] {
        let world = World::new(Rate::REQUESTS);
        let trace = begin(&world);
        let mut record = record(&trace, "/apis/secret/v1/secrets/secret", outcome);
        record.resource = None;
        record.status = StatusCode::TOO_MANY_REQUESTS;
        ended(&trace, &record, &ended_after(millis(11), End::Complete));
        let spans = waiting(&world.traces);
        check(&spans, &trace);
        // A client can make up resources, so there is no route.
        assert_eq!(times(&spans), [("GET", 0, 11), ("decide", 0, 10)]);
        let reason = reason.map(Value::from);
        let found = attribute(&spans[0], "kubefan.reason");
        assert_eq!(found, reason.as_ref());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_traced_up_to_its_head() {
    let world = World::new(Rate::REQUESTS);
    for (target, is_long_running) in [(PODS, false), ("/api/v1/pods?watch=1", true)] {
        let trace = begin(&world);
        let record = record(&trace, target, Outcome::Cache(Hit::default()));
        let before = waiting(&world.traces).len();
        began(&trace, &record);
        let at_head = waiting(&world.traces).len() - before;
        assert_eq!(at_head > 0, is_long_running, "{target}");
        let hours = Duration::from_secs(7_200);
        ended(&trace, &record, &ended_after(hours, End::Complete));
        let spans = waiting(&world.traces).split_off(before);
        assert_eq!(at_head == spans.len(), is_long_running, "{target}");
        let took = times(&spans)[0].2;
        assert_eq!(took, if is_long_running { 10 } else { 7_200_000 });
    }
}
