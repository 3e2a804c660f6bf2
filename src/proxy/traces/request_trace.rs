//! The trace of one request that is recorded.
//!
//! There are no span objects while a request is answered. Its stages note times here, and the spans
//! are made at the end, from these notes and from the record of the request.

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Traces;
use super::context::{Parent, SpanContext, SpanId, TRACEPARENT, TRACESTATE};
use super::span::{Clock, Span, SpanKind, Value};

/// The trace of a request that is recorded.
pub(crate) struct RequestTrace {
    traces: Traces,
    /// The client's span; `None` if this request begins the trace.
    pub(crate) parent: Option<SpanId>,
    /// The span of the whole request.
    pub(crate) root: SpanContext,
    /// The span of the call to the API server, if the request is forwarded.
    pub(crate) forward: SpanContext,
    pub(crate) clock: Clock,
    /// Whether the client's connection is encrypted.
    pub(crate) is_tls: bool,
    notes: Mutex<Notes>,
}

/// What the stages of a request have noted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Notes {
    /// When the request was forwarded.
    pub(crate) forwarded: Option<Instant>,
    /// When the head of the API server's answer was there, or the call had failed.
    pub(crate) answered: Option<Instant>,
    /// The call to the API server that also answered other requests.
    pub(crate) shared_call: Option<SpanContext>,
    /// The proof of the cache, which other reads may have used, too.
    pub(crate) proof: Option<SpanContext>,
}

/// A call to the API server that answers several requests, of which at least one is recorded. Its
/// span has a trace of its own, and ends when this is dropped.
pub(crate) struct SharedCall {
    traces: Traces,
    pub(crate) context: SpanContext,
    clock: Clock,
    began: Instant,
    status: Option<StatusCode>,
}

// === impl RequestTrace ===

impl RequestTrace {
    /// Begins a trace, or continues that of `parent`.
    pub(super) fn new(traces: Traces, parent: Option<Parent>, is_tls: bool) -> Self {
        let parent = parent.map(|parent| parent.span);
        let root = parent.map_or_else(SpanContext::new_trace, SpanContext::sibling);
        Self {
            traces,
            parent: parent.map(|parent| parent.span),
            forward: root.sibling(),
            root,
            clock: Clock::now(),
            is_tls,
            notes: Mutex::default(),
        }
    }

    /// Makes the span of the call the parent of what the API server records.
    pub(crate) fn set_headers(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.forward.header());
        if self.parent.is_none() {
            // It belongs to a context that is not valid.
            headers.remove(TRACESTATE);
        }
    }

    /// Notes that the request is forwarded now.
    pub(crate) fn forwarded(&self) {
        self.notes.lock().forwarded = Some(Instant::now());
    }

    /// Notes that the head of the API server's answer is there, or that the call has failed.
    pub(crate) fn answered(&self) {
        self.notes.lock().answered = Some(Instant::now());
    }

    /// Notes the call that also answered other requests.
    pub(crate) fn shared(&self, call: SpanContext) {
        self.notes.lock().shared_call = Some(call);
    }

    /// Notes the span of the proof that the answer relies on.
    pub(crate) fn proven(&self, proof: SpanContext) {
        self.notes.lock().proof = Some(proof);
    }

    pub(crate) fn notes(&self) -> Notes {
        *self.notes.lock()
    }

    /// Begins a call that answers this request and others.
    pub(crate) fn share_call(&self) -> SharedCall {
        let clock = Clock::now();
        SharedCall {
            traces: self.traces.clone(),
            context: SpanContext::new_trace(),
            clock,
            began: Instant::now(),
            status: None,
        }
    }

    /// Passes `spans` to the exporter. Never waits.
    pub(crate) fn export(&self, spans: Vec<Span>) {
        self.traces.export(spans);
    }
}

// === impl SharedCall ===

impl SharedCall {
    /// Notes the status of the answer.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for SharedCall {
    fn drop(&mut self) {
        let status = self.status.map(|status| Value::from(status.as_u16()));
        let status = status.map(|status| ("http.response.status_code", status));
        self.traces.export(vec![Span {
            context: self.context,
            parent: None,
            name: "shared call".into(),
            kind: SpanKind::Client,
            began: self.clock.unix_nanos(self.began),
            ended: self.clock.unix_nanos(Instant::now()),
            attributes: status.into_iter().collect(),
            links: Vec::new(),
            is_error: self.status.is_none_or(|status| status.is_server_error()),
        }]);
    }
}
