//! The lines of the access log: one for each request, when its answer has ended.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Serialize;

use super::line_text::{MAX_AUDIT_ID, MAX_USER_AGENT, header_text, micro_time, truncated};
use super::outcome::UsedProof;
use super::record::{Ended, Record};

/// Longest path and longest query, in bytes, that are written in full.
const MAX_PATH: usize = 4 << 10;
const MAX_QUERY: usize = 4 << 10;

/// A line. Times are in seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: String,
    #[serde(rename = "auditID")]
    audit_id: Cow<'a, str>,
    #[serde(rename = "traceID", skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(rename = "sourceIP")]
    source_ip: IpAddr,
    verb: &'a str,
    method: &'a str,
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    query: Cow<'a, str>,
    protocol: String,
    status: u16,
    outcome: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_status: Option<u16>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    collapsed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proof_age: Option<f64>,
    authorize: f64,
    acquire: f64,
    prove: f64,
    time_to_head: f64,
    duration: f64,
    bytes: u64,
    end: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: Cow<'a, str>,
}

/// Returns the line for a request whose answer has ended.
pub(super) fn line(record: &Record, ended: &Ended) -> String {
    let (arrival, waits) = (&record.arrival, &record.waits);
    let recorded = arrival.trace.as_ref().map(|trace| trace.root);
    let headers = arrival.headers.as_ref();
    let parent = headers.and_then(|headers| headers.trace_parent);
    let span = recorded.or(parent.map(|parent| parent.span));
    let (call, proof) = (record.outcome.call(), record.outcome.proof());
    let head = arrival.began + record.time_to_head;
    let age = |proof: UsedProof| proof.age(head).map(|age| age.as_secs_f64());
    let line = Line {
        time: micro_time(arrival.time),
        audit_id: truncated(header_text(Some(&arrival.audit_id)), MAX_AUDIT_ID),
        trace_id: span.map(|span| format!("{:032x}", span.trace)),
        user: record.user().map(|user| user.name.as_str()),
        source_ip: arrival.peer.to_canonical(),
        verb: arrival.info.verb.as_str(),
        method: arrival.method.as_str(),
        path: truncated(arrival.uri.path(), MAX_PATH),
        query: truncated(arrival.printable_query(), MAX_QUERY),
        protocol: format!("{:?}", arrival.protocol),
        status: record.status.as_u16(),
        outcome: record.outcome.name(),
        reason: record.outcome.reason_or_limit(),
        upstream_status: call.status.map(|status| status.as_u16()),
        collapsed: call.is_shared,
        proof: proof.map(|proof| proof.method.name()),
        proof_age: proof.and_then(age),
        authorize: waits.authorize.as_secs_f64(),
        acquire: waits.acquire.as_secs_f64(),
        prove: waits.prove.as_secs_f64(),
        time_to_head: record.time_to_head.as_secs_f64(),
        duration: ended.lasted.as_secs_f64(),
        bytes: ended.bytes,
        end: ended.end.name(),
        error: ended.end.error(),
        user_agent: truncated(header_text(arrival.user_agent.as_ref()), MAX_USER_AGENT),
    };
    let mut line = serde_json::to_string(&line).expect("a line is plain text");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue, StatusCode};
    use kubefan_core::informer::ProofMethod;
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;
    use crate::limit::Limit;
    use crate::server::Reason;
    use crate::server::answers::outcome::{Call, Forwarded, Hit, Outcome};
    use crate::server::answers::record::{End, LoggedHeaders};
    use crate::traces::{Parent, TRACEPARENT};

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    /// A record of a GET of `target`, one second after its proof.
    fn record(target: &str, outcome: Outcome) -> Record {
        let value = |text: &str| HeaderValue::from_str(text).expect("a header value");
        let trace_parent = value(&format!("00-{TRACE}-b7ad6b7169203331-01"));
        let headers = HeaderMap::from_iter([(TRACEPARENT, trace_parent)]);
        let mut record = Record::for_tests(target, outcome);
        record.arrival.user_agent = Some(value("a \"quoted\" agent"));
        record.arrival.headers = Some(Box::new(LoggedHeaders {
            forwarded_for: None,
            real_ip: None,
            trace_parent: Parent::of(&headers),
        }));
        record.time_to_head = Duration::from_secs(1);
        record
    }

    fn parsed(record: &Record, end: End) -> Value {
        let ended = Ended {
            bytes: 7,
            lasted: Duration::from_secs(2),
            end,
        };
        let line = line(record, &ended);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        serde_json::from_str(&line).expect("JSON")
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_has_each_fact_once() {
        let proof = UsedProof {
            method: ProofMethod::Barrier,
            as_of: Some(Instant::now()),
        };
        let hit = Outcome::Cache(Hit {
            is_json_instead: false,
            proof: Some(proof),
        });
        let found = parsed(&record("/api/v1/pods?limit=1", hit), End::Complete);
        let expected = serde_json::json!({
            "time": "1970-01-01T00:00:00.000000Z",
            "auditID": "mine",
            "traceID": TRACE,
            "sourceIP": "10.0.0.9",
            "verb": "list",
            "method": "GET",
            "path": "/api/v1/pods",
            "query": "limit=1",
            "protocol": "HTTP/2.0",
            "status": 200,
            "outcome": "cache",
            "proof": "barrier",
            "proofAge": 1.0,
            "authorize": 0.0,
            "acquire": 0.0,
            "prove": 0.0,
            "timeToHead": 1.0,
            "duration": 2.0,
            "bytes": 7,
            "end": "complete",
            "userAgent": "a \"quoted\" agent",
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_has_a_bounded_length() {
        let long = "a".repeat(64 << 10);
        let outcome = Outcome::Cache(Hit::default());
        let target = format!("/{}?{}", &long[..32 << 10], &long[..16 << 10]);
        let mut record = record(&target, outcome);
        let value = HeaderValue::from_str(&long).expect("a header value");
        (record.arrival.audit_id, record.arrival.user_agent) = (value.clone(), Some(value));
        let found = parsed(&record, End::Complete);
        for (key, most) in [
            ("auditID", MAX_AUDIT_ID),
            ("path", MAX_PATH),
            ("query", MAX_QUERY),
            ("userAgent", MAX_USER_AGENT),
        ] {
            let text = found[key].as_str().expect("text");
            assert_eq!(text.len(), most + "...TRUNCATED".len(), "{key}");
        }
    }

    #[test]
    fn a_line_says_that_the_client_was_too_slow() {
        let outcome = Outcome::Cache(Hit::default());
        let found = parsed(&record("/api/v1/pods", outcome), End::TooSlow);
        assert_eq!(found["end"], "failed");
        assert_eq!(found["error"], "the client reads too slowly");
    }

    #[test]
    fn a_line_says_why() {
        let call = Call {
            status: Some(StatusCode::NOT_FOUND),
            is_shared: true,
            is_remembered: false,
        };
        let reason = Reason::Consistent;
        let forwarded = Outcome::Forwarded(Forwarded { reason, call });
        let limited = Outcome::Rejected(Some(Limit::Streams));
        for (outcome, expected) in [
            (forwarded, ["forwarded", "consistent"]),
            (Outcome::KeptRefusal, ["rejected", "kept_refusal"]),
            (limited, ["rejected", "streams"]),
        ] {
            let end = End::Failed("too slow".to_owned());
            let found = parsed(&record("/api/v1/pods", outcome), end);
            assert_eq!(["outcome", "reason"].map(|key| &found[key]), expected);
            let is_forwarded = outcome == forwarded;
            assert_eq!(found["upstreamStatus"] == 404, is_forwarded, "{found}");
            assert_eq!(found["collapsed"] == true, is_forwarded, "{found}");
            assert_eq!([&found["end"], &found["error"]], ["failed", "too slow"]);
        }
    }
}
