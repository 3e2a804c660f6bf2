//! Tests shared reads with an API server in memory. The tests control its answers.

use std::convert::Infallible;

use futures_util::future::join_all;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::shutdown;
use kubefan_core::telemetry::Registry;
use kubefan_core::upstream::Client;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::ledger::{Ledger, Limits};
use crate::net::ClientConnection;
use crate::server::limits::in_flight::{Holder, InFlight, InFlightMetrics};
use crate::server::request::RequestInfo;
use crate::traces::tests::{World, waiting};
use crate::traces::{Parent, Rate};

const MIB: f64 = 1024.0 * 1024.0;
const PODS: &str = "/api/v1/pods";

/// A request that the API server received, as the sender of its answer.
struct Call {
    headers: HeaderMap,
    answer: oneshot::Sender<Response<Body>>,
}

/// An API server that sends each request to the test.
struct Upstream {
    calls: mpsc::UnboundedReceiver<Call>,
    reads: SharedReads,
}

impl Upstream {
    fn start() -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        let client = Client::in_memory(
            &(Arc::new(move || {
                let (near, far) = tokio::io::duplex(64 << 10);
                let sender = sender.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answer, answered) = oneshot::channel();
                        let headers = request.headers().clone();
                        // A send fails only after the test has ended.
                        let _ = sender.send(Call { headers, answer });
                        async move { Ok::<_, Infallible>(answered.await.expect("an answer")) }
                    });
                    let io = TokioIo::new(far);
                    let _ = http1::Builder::new().serve_connection(io, service).await;
                });
                Ok(near)
            }) as _),
        );
        let shutdown = Shutdown::new(shutdown::Config::default());
        let reads = SharedReads::new(Forwarder::new(client), shutdown);
        Self { calls, reads }
    }

    /// Returns the next `count` requests to the API server.
    async fn calls(&mut self, count: usize) -> Vec<Call> {
        let mut calls = Vec::new();
        while calls.len() < count {
            calls.push(soon(self.calls.recv()).await.expect("a call"));
        }
        calls
    }

    /// Starts `count` reads of one list in separate tasks.
    fn read(&self, count: usize, limit: Option<&Arc<Semaphore>>) -> Vec<Reading> {
        self.read_as(count, limit, None)
    }

    fn read_as(
        &self,
        count: usize,
        limit: Option<&Arc<Semaphore>>,
        account: Option<&Arc<Account>>,
    ) -> Vec<Reading> {
        let reading = |_| {
            let (reads, limit) = (self.reads.clone(), limit.map(Arc::clone));
            let account = account.map(Arc::clone);
            tokio::spawn(async move {
                let caller = SharingCaller {
                    account,
                    ..SharingCaller::default()
                };
                let answer = reads.forward(key(), limit, caller, None).await;
                answer.map(|(response, _)| response)
            })
        };
        (0..count).map(reading).collect()
    }
}

type Reading = tokio::task::JoinHandle<Result<Response<Body>, ForwardError>>;

fn key() -> ReadKey {
    let request = Request::get(PODS).header("accept", "application/json");
    let request = request.body(body::empty()).expect("a request");
    let info = RequestInfo::parse(request.method(), PODS, "");
    ReadKey::of(&request, &info).expect("a key")
}

/// Fails the test if `future` waits for something that does not happen; the clock is paused.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let output = timeout(Duration::from_secs(600), future).await;
    output.expect("happens soon")
}

fn limit() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(2))
}

fn long_list() -> Bytes {
    Bytes::from(vec![b'x'; MAX_SHARED_BYTES + 1])
}

/// Returns a body of `bytes` with unknown length, like the API server's.
fn streamed(bytes: Bytes) -> Body {
    let chunks = (0..bytes.len()).step_by(1 << 20);
    let chunks: Vec<_> = chunks
        .map(|at| bytes.slice(at..bytes.len().min(at + (1 << 20))))
        .collect();
    let frames = chunks
        .into_iter()
        .map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    body::boxed(StreamBody::new(stream::iter(frames)))
}

fn answer_all(calls: Vec<Call>, list: &Bytes) {
    for call in calls {
        let sent = call.answer.send(Response::new(streamed(list.clone())));
        sent.expect("the forwarder waits");
    }
}

/// Returns the answers, and the number of readers that got no permit.
fn partition(answers: Vec<Result<Response<Body>, ForwardError>>) -> (Vec<Response<Body>>, usize) {
    let mut responses = Vec::new();
    let mut refused = 0;
    for answer in answers {
        match answer {
            Ok(response) => responses.push(response),
            Err(ForwardError::Refused(Refused::Limit(Limit::UnprovenReads))) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    (responses, refused)
}

async fn answers(reads: Vec<Reading>) -> Vec<Result<Response<Body>, ForwardError>> {
    let joined = join_all(reads).await;
    joined
        .into_iter()
        .map(|read| read.expect("no panic"))
        .collect()
}

async fn length(response: Response<Body>) -> usize {
    let body = response.into_body().collect().await.expect("a whole body");
    body.to_bytes().len()
}

#[tokio::test(start_paused = true)]
async fn unproven_readers_of_one_long_list_cause_two_calls_and_the_rest_fail() {
    for calls_before in [0, 2] {
        let mut upstream = Upstream::start();
        let limit = limit();
        // Two calls are in flight, so the other readers share the next one.
        let before = upstream.read(calls_before, None);
        let calls = upstream.calls(calls_before).await;
        let reads = upstream.read(50, Some(&limit));
        answer_all(calls, &Bytes::from("short"));
        for answer in answers(before).await {
            assert_eq!(length(answer.expect("an answer")).await, 5);
        }
        for _ in 0..2 {
            answer_all(upstream.calls(1).await, &long_list());
        }
        let (long, refused) = partition(answers(reads).await);
        assert_eq!((long.len(), refused), (2, 48));
        // The answers hold both permits until the API server has sent them.
        let (none, refused) = partition(answers(upstream.read(3, Some(&limit))).await);
        assert_eq!((none.len(), refused), (0, 3));
        for response in long {
            assert_eq!(length(response).await, MAX_SHARED_BYTES + 1);
        }
        assert_eq!(limit.available_permits(), 2);
        assert!(upstream.calls.try_recv().is_err(), "more than two calls");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_stop_reading_release_their_permits() {
    let mut upstream = Upstream::start();
    let limit = limit();
    let reads = upstream.read(2, Some(&limit));
    answer_all(upstream.calls(2).await, &long_list());
    let (stalled, _) = partition(answers(reads).await);
    let (none, refused) = partition(answers(upstream.read(1, Some(&limit))).await);
    assert_eq!((none.len(), refused), (0, 1));

    drop(soon(limit.acquire_many(2)).await.expect("open"));
    let read = upstream.read(1, Some(&limit));
    answer_all(upstream.calls(1).await, &Bytes::from("list"));
    let (answer, _) = partition(answers(read).await);
    assert_eq!(answer.len(), 1);
    for stalled in stalled {
        let body = stalled.into_body().collect().await;
        body.expect_err("broken off");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_a_long_answer_slowly_but_steadily_gets_all_of_it() {
    let mut upstream = Upstream::start();
    // Two calls are in flight, so the other readers share the next one.
    let before = upstream.read(2, None);
    let calls = upstream.calls(2).await;
    let reads = upstream.read(2, None);
    answer_all(calls, &Bytes::from("short"));
    assert_eq!(partition(answers(before).await).0.len(), 2);
    for _ in 0..2 {
        answer_all(upstream.calls(1).await, &long_list());
    }
    let (responses, _) = partition(answers(reads).await);
    let lengths = join_all(responses.into_iter().map(|response| async {
        let (mut body, mut length) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            let read = frame.expect("not broken off").into_data().expect("data");
            length += read.len();
            // One MiB per second.
            tokio::time::sleep(Duration::from_secs(1).mul_f64(read.len() as f64 / MIB)).await;
        }
        length
    }));
    assert_eq!(lengths.await, [MAX_SHARED_BYTES + 1; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_known_to_be_long_is_not_shared_but_limited() {
    let mut upstream = Upstream::start();
    upstream.reads.inner.long_reads.remember(&key());
    let reads = upstream.read(10, None).into_iter().map(|read| async {
        let answer = read.await.expect("no panic");
        length(answer.expect("an answer")).await
    });
    let serve = async {
        for _ in 0..5 {
            let calls = upstream.calls(2).await;
            assert!(upstream.calls.try_recv().is_err(), "a third call");
            answer_all(calls, &Bytes::from("list"));
        }
    };
    let (lengths, ()) = tokio::join!(join_all(reads), serve);
    assert_eq!(lengths, [4; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_a_limited_time_for_a_permit() {
    let mut upstream = Upstream::start();
    upstream.reads.inner.long_reads.remember(&key());
    let began = Instant::now();
    let mut reads = upstream.read(3, None);
    let calls = upstream.calls(2).await;
    let third = reads.pop().expect("a read").await.expect("no panic");
    assert!(
        matches!(
            third,
            Err(ForwardError::Refused(Refused::Limit(Limit::LongReads)))
        ),
        "{third:?}"
    );
    assert_eq!(began.elapsed(), PERMIT_WAIT);
    answer_all(calls, &Bytes::from("list"));
    assert_eq!(partition(answers(reads).await).0.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_a_permit_has_no_seat() {
    let metrics = InFlightMetrics::new(&Registry::new());
    let connection = Holder::Connection(ClientConnection::next());
    let in_flight = InFlight::new(2, metrics);
    let seat = || {
        let info = RequestInfo::parse(&Method::GET, PODS, "");
        in_flight.take(&info, &connection)
    };
    let mut upstream = Upstream::start();
    upstream.reads.inner.long_reads.remember(&key());
    for has_seat_left in [true, false] {
        let reads = upstream.read(2, None);
        let calls = upstream.calls(2).await;
        let mut waiting_seat = seat().expect("the first one");
        // The connection may hold one of the two seats.
        assert!(matches!(seat(), Err(Limit::RequestsInFlight)));
        let forwarder = upstream.reads.clone();
        let waiting = tokio::spawn(async move {
            let seat = waiting_seat.as_mut();
            let caller = SharingCaller::default();
            forwarder.forward(key(), None, caller, seat).await
        });
        // The paused clock advances when the third reader waits.
        tokio::time::sleep(PERMIT_WAIT / 2).await;
        let other = seat().expect("it is free while the reader waits");
        let other = other.filter(|_| !has_seat_left);
        answer_all(calls, &Bytes::from("list"));
        assert_eq!(partition(answers(reads).await).0.len(), 2);
        if has_seat_left {
            answer_all(upstream.calls(1).await, &Bytes::from("list"));
        }
        let answer = waiting.await.expect("no panic");
        assert_eq!(answer.is_ok(), has_seat_left, "{answer:?}");
        drop(other);
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_the_first_caller_does_not_govern_its_group() {
    let mut upstream = Upstream::start();
    let exhausted = Arc::new(Semaphore::new(0));
    let mut reads = upstream.read(2, None);
    let calls = upstream.calls(2).await;
    reads.extend(upstream.read(1, Some(&exhausted)));
    reads.extend(upstream.read(1, None));
    answer_all(calls, &Bytes::from("list"));
    answer_all(upstream.calls(1).await, &Bytes::from("list"));
    let (served, refused) = partition(answers(reads).await);
    assert_eq!((served.len(), refused), (4, 0));
    let (served, refused) = partition(answers(upstream.read(1, Some(&exhausted))).await);
    assert_eq!((served.len(), refused), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_others_are_served_when_the_first_caller_leaves() {
    let mut upstream = Upstream::start();
    let mut served = upstream.read(2, None);
    let calls = upstream.calls(2).await;
    let first = upstream.read(1, None).pop().expect("a read");
    served.extend(upstream.read(2, None));
    answer_all(calls, &Bytes::from("list"));
    let shared = upstream.calls(1).await;
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    answer_all(shared, &Bytes::from("list"));
    assert_eq!(partition(answers(served).await).0.len(), 4);
}

/// Returns the charges of `ledger` for shared answers.
fn charged(ledger: &Ledger) -> u64 {
    let usage = ledger.usage();
    let shared = usage.iter().find(|(kind, _)| *kind == "shared");
    shared.map_or(0, |(_, bytes)| *bytes)
}

#[tokio::test(start_paused = true)]
async fn a_shared_answer_is_charged_once_until_its_last_reader_has_it() {
    const LENGTH: usize = 3 << 20;
    let list = Bytes::from(vec![b'x'; LENGTH]);
    let mut upstream = Upstream::start();
    let ledger = Ledger::new(Limits::new(Some(1 << 30), None, 0));
    let account = ledger.open_account();
    let first = upstream.read(2, None);
    let calls = upstream.calls(2).await;
    let shared = upstream.read_as(3, None, Some(&account));
    answer_all(calls, &list);
    answer_all(upstream.calls(1).await, &list);
    assert_eq!(partition(answers(first).await).0.len(), 2);
    let (mut shared, _) = partition(answers(shared).await);
    assert_eq!(shared.len(), 3);
    let of_one = charged(&ledger);
    assert!(
        (LENGTH as u64..3 * LENGTH as u64).contains(&of_one),
        "{of_one}"
    );
    shared.truncate(1);
    assert_eq!(charged(&ledger), of_one);
    drop((shared, account));
    assert_eq!(ledger.leased(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_memory_for_it_is_not_shared() {
    let list = Bytes::from(vec![b'x'; 3 << 20]);
    let mut upstream = Upstream::start();
    let ledger = Ledger::new(Limits::new(Some(1 << 30), Some(2 << 20), 0));
    let account = ledger.open_account();
    let mut rest = upstream.read(2, None);
    let calls = upstream.calls(2).await;
    rest.extend(upstream.read_as(3, None, Some(&account)));
    answer_all(calls, &list);
    let read = |reading: Reading| async {
        let answer = reading.await.expect("no panic").expect("an answer");
        length(answer).await
    };
    // The shared call, and one for each of the others.
    let answering = async {
        for _ in 0..3 {
            answer_all(upstream.calls(1).await, &list);
        }
    };
    let (lengths, ()) = tokio::join!(join_all(rest.into_iter().map(read)), answering);
    assert_eq!(lengths, [list.len(); 5]);
    drop(account);
    assert_eq!(ledger.leased(), 0);
}

#[tokio::test(start_paused = true)]
async fn recorded_callers_link_to_the_call_that_they_share() {
    let world = World::new(Rate::REQUESTS);
    let [alone, second, third] = [(); 3].map(|()| {
        let trace = world.traces.begin(&HeaderMap::new(), false);
        trace.expect("a recorded one")
    });
    let mut upstream = Upstream::start();
    let reads = upstream.reads.clone();
    let read = |trace: Option<&Arc<RequestTrace>>| -> Reading {
        let mut headers = HeaderMap::new();
        if let Some(trace) = trace {
            trace.set_headers(&mut headers);
        }
        let caller = SharingCaller {
            headers,
            trace: trace.map(Arc::clone),
            account: None,
        };
        let reads = reads.clone();
        tokio::spawn(async move {
            let answer = reads.forward(key(), None, caller, None).await;
            answer.map(|(response, _)| response)
        })
    };
    let parents = |calls: &[Call]| {
        let parents = calls.iter().map(|call| Parent::of(&call.headers));
        parents
            .flatten()
            .map(|parent| parent.span)
            .collect::<Vec<_>>()
    };
    // Two calls are in flight, so the other readers share the next one.
    let before = vec![read(Some(&alone)), read(None)];
    let calls = upstream.calls(2).await;
    assert_eq!(parents(&calls), [alone.forward]);
    let sharing = vec![read(Some(&second)), read(None), read(Some(&third))];
    answer_all(calls, &Bytes::from("first"));
    assert_eq!(partition(answers(before).await).0.len(), 2);
    let calls = upstream.calls(1).await;
    let [shared] = parents(&calls)[..] else {
        panic!("the call has no span");
    };
    answer_all(calls, &Bytes::from("second"));
    assert_eq!(partition(answers(sharing).await).0.len(), 3);
    let exported = waiting(&world.traces);
    assert_eq!(exported.len(), 1, "{exported:?}");
    assert_eq!(exported[0].context, shared);
    for (trace, expected) in [(alone, None), (second, Some(shared)), (third, Some(shared))] {
        assert_ne!(trace.root.trace, shared.trace);
        assert_eq!(trace.notes().shared_call, expected);
    }
}
