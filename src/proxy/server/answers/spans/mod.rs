//! The spans of a recorded request, from its record and from what its stages have noted.
//!
//! They have no names of objects or users, no queries and no addresses, because readers of traces
//! may have fewer rights than readers of the cluster.

mod route;

use std::borrow::Cow;
use std::time::Duration;

use http::Version;
use kubefan_core::informer::Proof;
use route::{method, route};
use tokio::time::Instant;

use super::outcome::Outcome;
use super::record::{End, Ended, Record};
use crate::traces::{Notes, RequestTrace, Span, SpanContext, SpanKind, Value};

/// A stage that took less has no span, because nothing was waited for.
const SHORTEST: Duration = Duration::from_micros(1);

/// The spans of one request, as far as they are made.
struct Spans<'a> {
    trace: &'a RequestTrace,
    spans: Vec<Span>,
}

/// The start and the end of a span.
type Times = (Instant, Instant);

/// Exports the spans of a long-running request. They end with the head of its answer: a watch may
/// last for hours, and a trace that is complete only then shows nothing while it would be useful.
pub(super) fn began(trace: &RequestTrace, record: &Record) {
    if record.arrival.info.is_long_running() {
        trace.export(spans(trace, record, None));
    }
}

/// Exports the spans of any other request, when its answer has ended.
pub(super) fn ended(trace: &RequestTrace, record: &Record, ended: &Ended) {
    if !record.arrival.info.is_long_running() {
        trace.export(spans(trace, record, Some(ended)));
    }
}

/// Notes the proof that the answer relies on. The first recorded read that relies on the calls of
/// the proof exports a span for them, and the others link to it, too.
pub(in crate::server) fn proven(trace: &RequestTrace, proof: &Proof) {
    let Some(call) = &proof.call else {
        return;
    };
    let span = call.note_once(|| {
        let context = SpanContext::new_trace();
        trace.export(vec![Span {
            context,
            parent: None,
            name: "shared proof".into(),
            kind: SpanKind::Internal,
            began: trace.clock.unix_nanos(call.began),
            ended: trace.clock.unix_nanos(call.ended),
            attributes: vec![("kubefan.proof", proof.method.name().into())],
            links: Vec::new(),
            is_error: false,
        }]);
        context
    });
    if let Some(span) = span {
        trace.proven(span);
    }
}

/// Returns the spans of a request. They end as `ended` says, or with the head of the answer.
fn spans(trace: &RequestTrace, record: &Record, ended: Option<&Ended>) -> Vec<Span> {
    let began = record.arrival.began;
    let head = began + record.time_to_head;
    let end = ended.map_or(head, |ended| began + ended.lasted);
    let notes = trace.notes();
    let mut spans = Spans {
        trace,
        spans: Vec::with_capacity(7),
    };
    spans.root(record, ended, (began, end));
    let decided = record.waits.began.or(notes.forwarded).unwrap_or(head);
    spans.stage("decide", (began, decided));
    let ready = spans.read(record, &notes, decided);
    let answered = match notes.forwarded {
        Some(forwarded) => spans.forward(record, &notes, (forwarded, head)),
        None => ready,
    };
    if !matches!(record.outcome, Outcome::Rejected(_) | Outcome::Unanswered) {
        spans.stage("deliver", (answered, end));
    }
    spans.spans
}

impl Spans<'_> {
    /// Adds the span of the whole request.
    fn root(&mut self, record: &Record, ended: Option<&Ended>, times: Times) {
        let (arrival, outcome) = (&record.arrival, record.outcome);
        let (method, route) = (method(&arrival.method), route(record));
        let scheme = if self.trace.is_tls { "https" } else { "http" };
        let proof = outcome.proof();
        let is_error = record.status.is_server_error();
        let name = match &route {
            Some(route) => format!("{method} {route}"),
            None => method.to_owned(),
        };
        let mut attributes: Vec<(_, Value)> = vec![
            ("http.request.method", method.into()),
            ("http.response.status_code", record.status.as_u16().into()),
            ("url.scheme", scheme.into()),
            ("network.protocol.version", version(arrival.protocol).into()),
            ("kubefan.verb", arrival.info.verb.label().into()),
            ("kubefan.outcome", outcome.name().into()),
        ];
        attributes.extend(route.map(|route| ("http.route", Value::from(route))));
        let texts = [
            ("kubefan.reason", outcome.reason_or_limit()),
            (
                "kubefan.proof",
                proof.map_or("", |proof| proof.method.name()),
            ),
            (
                "kubefan.end",
                ended.map_or("", |ended| end_name(&ended.end)),
            ),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        attributes.extend(texts.map(|(key, text)| (key, Value::from(text))));
        if is_error {
            let status = record.status.as_str().to_owned();
            attributes.push(("error.type", status.into()));
        }
        let span = self.below_root(self.trace.root, name.into(), times);
        self.spans.push(Span {
            parent: self.trace.parent,
            kind: SpanKind::Server,
            attributes,
            is_error,
            ..span
        });
    }

    /// Adds the stages for a read from a cache that were completed, from `began` on. Returns when
    /// the last one had ended.
    fn read(&mut self, record: &Record, notes: &Notes, began: Instant) -> Instant {
        let waits = &record.waits;
        let judged = began + waits.authorize;
        let acquired = judged + waits.acquire;
        let proven = acquired + waits.prove;
        self.stage("authorize", (began, judged));
        self.stage("acquire", (judged, acquired));
        if let Some(prove) = self.stage("prove", (acquired, proven)) {
            prove.links.extend(notes.proof);
        }
        proven
    }

    /// Adds the span of the call to the API server, which began at `began`. Returns its end: at the
    /// latest that is `head`, when kubefan has answered.
    fn forward(&mut self, record: &Record, notes: &Notes, (began, head): Times) -> Instant {
        let answered = notes.answered.unwrap_or(head);
        let status = record.outcome.call().status;
        // The request to the API server may be that of the shared call.
        let kind = match notes.shared_call {
            Some(_) => SpanKind::Internal,
            None => SpanKind::Client,
        };
        let attribute = status.map(|status| Value::from(status.as_u16()));
        let attribute = attribute.map(|status| ("http.response.status_code", status));
        let span = self.below_root(self.trace.forward, "forward".into(), (began, answered));
        self.spans.push(Span {
            kind,
            attributes: attribute.into_iter().collect(),
            links: notes.shared_call.into_iter().collect(),
            is_error: status.is_none_or(|status| status.is_server_error()),
            ..span
        });
        answered
    }

    /// Adds the span of a stage, and returns it, unless the stage took no time.
    fn stage(&mut self, name: &'static str, (began, ended): Times) -> Option<&mut Span> {
        if ended.saturating_duration_since(began) < SHORTEST {
            return None;
        }
        let context = self.trace.root.sibling();
        let span = self.below_root(context, name.into(), (began, ended));
        self.spans.push(span);
        self.spans.last_mut()
    }

    /// Makes a span whose parent is that of the whole request.
    fn below_root(
        &self,
        context: SpanContext,
        name: Cow<'static, str>,
        (began, ended): Times,
    ) -> Span {
        let clock = &self.trace.clock;
        Span {
            context,
            parent: Some(self.trace.root.span),
            name,
            kind: SpanKind::Internal,
            began: clock.unix_nanos(began),
            ended: clock.unix_nanos(ended),
            attributes: Vec::new(),
            links: Vec::new(),
            is_error: false,
        }
    }
}

/// Returns the version of HTTP as the semantic conventions write it.
fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

/// Returns how the body of the answer has ended; empty if it was complete.
fn end_name(end: &End) -> &'static str {
    match end {
        End::Complete => "",
        // The text of an error is left out, because it may have addresses.
        end => end.name(),
    }
}

#[cfg(test)]
mod tests;
