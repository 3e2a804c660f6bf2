//! Tests with a collector in this process, which decodes what it gets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::body::Body;
use kubefan_core::upstream::{Client, Dial};
use kubefan_core::{body, shutdown};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::duplex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::context::SpanId;
use super::queue::{BATCH, MAX_SPANS, TraceMetrics};
use super::*;

/// How the collector answers a request.
#[derive(Clone, Default)]
struct Answer {
    /// `None` if it never answers.
    status: Option<StatusCode>,
    retry_after: Option<&'static str>,
    rejected: i64,
    /// True if the body goes on and on, a byte each second.
    is_endless: bool,
}

/// A collector, and the traces that are sent to it.
pub(crate) struct World {
    pub(crate) traces: Traces,
    /// What the collector has received.
    received: UnboundedReceiver<(Parts, ExportTraceServiceRequest)>,
    /// The next answers of the collector. It answers 200 if there is none.
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Answer {
    fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).ok(),
            ..Self::default()
        }
    }

    async fn response(self) -> Response<Body> {
        let Some(status) = self.status else {
            return pending().await;
        };
        let partial_success = (self.rejected > 0).then(|| ExportTracePartialSuccess {
            rejected_spans: self.rejected,
            error_message: String::new(),
        });
        let answer = ExportTraceServiceResponse { partial_success };
        let body = if self.is_endless {
            endless_body()
        } else {
            body::full(answer.encode_to_vec())
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert("retry-after", HeaderValue::from_static(seconds));
        }
        response
    }
}

fn endless_body() -> Body {
    let frames = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a"))));
    body::boxed(StreamBody::new(frames.then(|frame| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        frame
    })))
}

impl World {
    pub(crate) fn new(rate: u32) -> Self {
        Self::with_headers(rate, None)
    }

    fn with_headers(rate: u32, headers_file: Option<std::path::PathBuf>) -> Self {
        let (sender, received) = unbounded_channel();
        let answers: Arc<Mutex<VecDeque<Answer>>> = Arc::default();
        let next = Arc::clone(&answers);
        let dial: Dial = Arc::new(move || {
            let (near, far) = duplex(64 << 10);
            let (sender, next) = (sender.clone(), Arc::clone(&next));
            let service = service_fn(move |request: http::Request<Incoming>| {
                let (sender, next) = (sender.clone(), Arc::clone(&next));
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let message = ExportTraceServiceRequest::decode(body).expect("a message");
                    sender.send((parts, message)).expect("the test runs");
                    let answer = next.lock().pop_front();
                    let answer = answer.unwrap_or_else(|| Answer::status(200));
                    Ok::<_, hyper::Error>(answer.response().await)
                }
            });
            let connection = Builder::new().serve_connection(TokioIo::new(far), service);
            tokio::spawn(connection);
            Ok(near)
        });
        let target = PathAndQuery::from_static("/v1/traces");
        let collector = Collector::of(Client::in_memory(&dial), target, headers_file);
        Self {
            traces: Traces::new(Rate::per_million(rate), collector, &Registry::new()),
            received,
            answers,
        }
    }

    fn answer_with(&self, answers: impl IntoIterator<Item = Answer>) {
        self.answers.lock().extend(answers);
    }

    fn metrics(&self) -> &TraceMetrics {
        &self.traces.inner.queue.metrics
    }

    /// Adds one trace with `count` spans.
    fn add(&self, count: usize) {
        let context = SpanContext::new_trace();
        let span = |_| Span {
            context: context.sibling(),
            parent: None,
            name: "a".into(),
            kind: SpanKind::Internal,
            began: 1,
            ended: 2,
            attributes: Vec::new(),
            links: Vec::new(),
            is_error: false,
        };
        self.traces.export((0..count).map(span).collect());
    }

    /// Returns the next request that the collector has received, and its number of spans.
    fn next(&mut self) -> Option<(Parts, usize)> {
        let (parts, message) = self.received.try_recv().ok()?;
        Some((parts, spans_in(&message)))
    }

    /// Sends what waits, until the collector has accepted it or the exporter has given up.
    async fn flush(&self) {
        let mut exporter = Exporter::new(&self.traces.inner.collector);
        exporter.flush(&self.traces.inner.queue).await;
    }
}

/// Returns the spans that wait in the queue of `traces`.
pub(crate) fn waiting(traces: &Traces) -> Vec<Span> {
    let batch = traces.inner.queue.take();
    batch.map_or_else(Vec::new, |batch| batch.spans.clone())
}

fn spans_in(message: &ExportTraceServiceRequest) -> usize {
    let scopes = message.resource_spans.iter().flat_map(|of| &of.scope_spans);
    scopes.map(|scope| scope.spans.len()).sum()
}

/// Returns what has become of spans: exported, dropped from the queue, failed, rejected.
fn counts(metrics: &TraceMetrics) -> [u64; 4] {
    [
        metrics.exported.get(),
        metrics.queue_full.get(),
        metrics.failed.get(),
        metrics.rejected.get(),
    ]
}

#[tokio::test(start_paused = true)]
async fn spans_are_sent_in_batches_with_the_headers_of_the_file() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "authorization: Bearer x\n").expect("written");
    let mut world = World::with_headers(0, Some(file.path().to_owned()));
    world.flush().await;
    assert!(world.next().is_none(), "nothing waits");
    for _ in 0..BATCH {
        world.add(3);
    }
    world.flush().await;
    for _ in 0..3 {
        let (parts, spans) = world.next().expect("a request");
        assert_eq!(spans, BATCH);
        assert_eq!(parts.method, "POST");
        assert_eq!(parts.uri, "/v1/traces");
        assert_eq!(parts.headers["content-type"], "application/x-protobuf");
        assert_eq!(parts.headers["authorization"], "Bearer x");
        assert_eq!(parts.headers["host"], "localhost");
    }
    assert!(world.next().is_none());
    assert_eq!(counts(world.metrics()), [3 * BATCH as u64, 0, 0, 0]);
    std::fs::write(file.path(), "nonsense").expect("written");
    world.add(1);
    world.flush().await;
    assert!(world.next().is_none(), "not without the headers");
    assert_eq!(world.metrics().failed.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn spans_without_room_are_dropped_and_counted() {
    let world = World::new(0);
    world.answer_with([Answer::default()]);
    let running = tokio::spawn(world.traces.clone().run());
    for _ in 0..MAX_SPANS / 2 {
        world.add(2);
    }
    // The spans that are being sent need room, too.
    while world.received.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.traces.inner.queue.waiting(), MAX_SPANS - BATCH);
    world.add(7);
    world.add(5);
    assert_eq!(counts(world.metrics()), [0, 12, 0, 0]);
    running.abort();
    running.await.expect_err("aborted");
    world.flush().await;
    assert_eq!(counts(world.metrics()), [MAX_SPANS as u64, 12, 0, 0]);
    world.add(7);
    assert_eq!(world.metrics().queue_full.get(), 12);
}

#[tokio::test(start_paused = true)]
async fn only_failures_that_may_pass_are_tried_again() {
    for (status, is_retried) in [
        (Some(429), true),
        (Some(502), true),
        (Some(503), true),
        (Some(504), true),
        (None, true),
        (Some(400), false),
        (Some(401), false),
        (Some(404), false),
        (Some(500), false),
    ] {
        let mut world = World::new(0);
        let answer = status.map_or_else(Answer::default, Answer::status);
        world.answer_with([answer]);
        world.add(4);
        world.flush().await;
        assert_eq!(world.next().map(|(_, spans)| spans), Some(4));
        assert_eq!(world.next().is_some(), is_retried, "{status:?}");
        assert!(world.next().is_none(), "{status:?}");
        let expected = match is_retried {
            true => [4, 0, 0, 0],
            false => [0, 0, 4, 0],
        };
        assert_eq!(counts(world.metrics()), expected, "{status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_end_is_given_up_and_the_batch_is_sent_again() {
    let mut world = World::new(0);
    world.answer_with([Answer {
        is_endless: true,
        ..Answer::status(200)
    }]);
    world.add(4);
    world.flush().await;
    assert!(world.next().is_some() && world.next().is_some());
    assert_eq!(counts(world.metrics()), [4, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_collector_may_ask_for_a_pause_of_at_most_half_a_minute() {
    for (retry_after, expected) in [("20", 20), ("3600", 30)] {
        let mut world = World::new(0);
        let retry_after = Some(retry_after);
        world.answer_with([Answer {
            retry_after,
            ..Answer::status(503)
        }]);
        world.add(1);
        let began = Instant::now();
        world.flush().await;
        assert_eq!(began.elapsed().as_secs(), expected);
        assert!(world.next().is_some() && world.next().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_given_up_at_some_time() {
    let mut world = World::new(0);
    world.answer_with(vec![Answer::status(503); 6]);
    world.add(2);
    world.flush().await;
    for _ in 0..6 {
        assert!(world.next().is_some());
    }
    assert!(world.next().is_none());
    assert_eq!(counts(world.metrics()), [0, 0, 2, 0]);
    world.add(3);
    world.flush().await;
    assert_eq!(counts(world.metrics()), [3, 0, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn rejected_spans_are_counted() {
    let world = World::new(0);
    world.answer_with([Answer {
        rejected: 3,
        ..Answer::status(200)
    }]);
    world.add(10);
    world.flush().await;
    assert_eq!(counts(world.metrics()), [7, 0, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn the_last_spans_are_sent_after_the_drain() {
    let mut world = World::new(0);
    let shutdown = Shutdown::new(shutdown::Config::default());
    shutdown.spawn_background(world.traces.clone().run());
    world.answer_with([Answer::default()]);
    world.add(BATCH);
    while world.received.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.add(1);
    // The collector has not answered. A request may arrive twice, but is not lost.
    assert_eq!(shutdown.drain().await, shutdown::Outcome::Drained);
    world.traces.finish().await;
    let counted: Vec<_> = std::iter::from_fn(|| world.next())
        .map(|(_, spans)| spans)
        .collect();
    assert_eq!(counted, [BATCH, BATCH, 1]);
    assert_eq!(counts(world.metrics()), [BATCH as u64 + 1, 0, 0, 0]);

    world.answer_with([Answer::default()]);
    world.add(1);
    let began = Instant::now();
    world.traces.finish().await;
    assert_eq!(began.elapsed(), FINISH_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_client_can_lower_the_rate_but_not_raise_it() {
    let all = World::new(Rate::REQUESTS);
    let none = World::new(0);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (traceparent, is_recorded, is_continued) in [
        (None, true, false),
        (Some(format!("00-{trace}-00f067aa0ba902b7-01")), true, true),
        (
            Some(format!("00-{trace}-00f067aa0ba902b7-00")),
            false,
            false,
        ),
        (Some(format!("00-{trace}-0000000000000000-01")), true, false),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(text) = &traceparent {
            let value = HeaderValue::try_from(text).expect("a header value");
            headers.insert(TRACEPARENT, value);
        }
        let begun = all.traces.begin(&headers, false);
        assert_eq!(begun.is_some(), is_recorded, "{traceparent:?}");
        assert!(none.traces.begin(&headers, false).is_none());
        let Some(begun) = begun else { continue };
        let has_trace = format!("{:032x}", begun.root.trace) == trace;
        assert_eq!(has_trace, is_continued, "{traceparent:?}");
        let parent = begun.parent.map(SpanId::get);
        assert_eq!(parent, is_continued.then_some(0x00f0_67aa_0ba9_02b7));

        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static("other"));
        headers.insert(TRACESTATE, HeaderValue::from_static("a=b"));
        begun.set_headers(&mut headers);
        let child = Parent::of(&headers).expect("a valid header");
        assert_eq!(child.span, begun.forward);
        assert!(child.is_sampled && child.span.span != begun.root.span);
        assert_eq!(child.span.trace, begun.root.trace);
        assert_eq!(headers.contains_key(TRACESTATE), is_continued);
    }
}
