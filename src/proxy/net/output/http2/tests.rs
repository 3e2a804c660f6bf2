//! Connections in memory, with clients that have the windows of common ones.

use std::future::{pending, ready};

use futures::channel::mpsc;
use futures::{StreamExt, stream};
use h2::client::SendRequest;
use h2::{RecvStream, client};
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower::service_fn;

use super::*;
use crate::net::{Peer, Protocol, RequestBody, ServedSocket, serve_connection};

type TestBody = UnsyncBoxBody<Bytes, BoxError>;
type Answered = Result<Response<TestBody>, BoxError>;
type Served = JoinHandle<Result<(), BoxError>>;
type Client = SendRequest<Bytes>;

/// The windows of clients' connections: with the first one, `h2` sends all data.
const WINDOWS: [u32; 2] = [65_535, 1 << 20];

/// Serves a connection until `stop`, and returns the client's end of it.
fn serve_until<F>(
    service: impl Fn(Request<RequestBody>) -> F + Clone + Send + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (DuplexStream, Served)
where
    F: Future<Output = Answered> + Send + 'static,
{
    let (near, far) = duplex(64 << 10);
    let peer = Peer {
        address: ([127, 0, 0, 1], 1).into(),
        tls: false,
        certificates: None,
    };
    let config = Config::default();
    let socket = ServedSocket::new(near, config.write_timeout);
    let (protocol, service) = (Protocol::Http2, service_fn(service));
    let served = serve_connection(socket, protocol, peer, service, &config, None, stop);
    (far, tokio::spawn(served))
}

/// Returns a client of a connection that `service` answers.
async fn connect<F>(
    window: u32,
    service: impl Fn(Request<RequestBody>) -> F + Clone + Send + 'static,
) -> Client
where
    F: Future<Output = Answered> + Send + 'static,
{
    let (far, _) = serve_until(service, pending());
    let mut builder = client::Builder::new();
    let handshake = builder
        .initial_connection_window_size(window)
        .handshake(far);
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    // After the answer, the server has the client's windows.
    answer_to(&mut client, Method::GET, "/first").await.unwrap();
    client
}

/// Sends a request without a body, or the head of one with a body.
fn send(
    client: &mut Client,
    method: Method,
    path: &str,
) -> (client::ResponseFuture, h2::SendStream<Bytes>) {
    let has_body = method == Method::POST;
    let request = Request::builder().method(method);
    let request = request.uri(format!("http://localhost{path}"));
    let request = request.body(()).unwrap();
    client.send_request(request, !has_body).unwrap()
}

async fn answer_to(
    client: &mut Client,
    method: Method,
    path: &str,
) -> Result<Response<RecvStream>, h2::Error> {
    soon(send(client, method, path).0).await
}

/// Reads a body to its end.
async fn read(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = soon(body.data()).await {
        let data = data?;
        all.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(all)
}

async fn soon<F: Future>(future: F) -> F::Output {
    let waited = timeout(Duration::from_secs(20), future).await;
    waited.expect("the test hangs")
}

fn text(text: &'static str) -> TestBody {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    body.map_err(|never| match never {}).boxed_unsync()
}

fn empty() -> TestBody {
    let body = Empty::new();
    body.map_err(|never| match never {}).boxed_unsync()
}

/// Returns a body of unknown length with these frames.
fn frames<S>(frames: S) -> TestBody
where
    S: stream::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static,
{
    StreamBody::new(frames).boxed_unsync()
}

fn data(data: &'static str) -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::from_static(data.as_bytes())))
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-trailer", "1".parse().unwrap());
    trailers
}

#[tokio::test]
async fn heads_have_a_date_and_what_is_known_of_the_body() {
    let service = async |request: Request<RequestBody>| -> Answered {
        let answer = Response::builder();
        Ok(match request.uri().path() {
            "/full" => answer.body(text("four")),
            "/none" => answer.status(StatusCode::NO_CONTENT).body(empty()),
            "/head" => answer.header("content-length", "7").body(empty()),
            "/open" => answer.body(frames(stream::iter([data("open")]))),
            "/http1" => answer
                .header("connection", "close, x-hop")
                .header("x-hop", "1")
                .header("keep-alive", "timeout=5")
                .body(text("http1")),
            _ => answer.body(empty()),
        }?)
    };
    for window in WINDOWS {
        let mut client = connect(window, service).await;
        for (method, path, status, length, body) in [
            (Method::GET, "/full", 200, Some("4"), Some("four")),
            (Method::GET, "/none", 204, None, None),
            (Method::HEAD, "/head", 200, Some("7"), None),
            (Method::GET, "/open", 200, None, Some("open")),
            (Method::GET, "/http1", 200, Some("5"), Some("http1")),
        ] {
            let answer = answer_to(&mut client, method, path).await.unwrap();
            let (head, mut received) = answer.into_parts();
            assert_eq!(head.status, status, "{path}");
            assert_eq!(head.headers["date"].len(), 29, "{path}");
            let found = head.headers.get("content-length");
            assert_eq!(found.map(|value| value.to_str().unwrap()), length, "{path}");
            let others = 1 + usize::from(length.is_some());
            assert_eq!(head.headers.len(), others, "{path}: {:?}", head.headers);
            assert_eq!(received.is_end_stream(), body.is_none(), "{path}");
            let expected = body.unwrap_or_default().as_bytes();
            assert_eq!(read(&mut received).await.unwrap(), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn bodies_of_requests_arrive_with_their_length_and_trailers() {
    let service = async |request: Request<RequestBody>| -> Answered {
        let announced = request.body().size_hint().exact();
        let body = request.into_body().collect().await?;
        let fields = body.trailers().map_or(0, HeaderMap::len);
        let answer = format!("{announced:?} {} {fields}", body.to_bytes().len());
        Ok(Response::new(frames(stream::iter([Ok(Frame::data(
            Bytes::from(answer),
        ))]))))
    };
    let mut client = connect(WINDOWS[1], service).await;
    // More than the windows of a stream.
    let upload = || Bytes::from(vec![b'x'; 1 << 20]);

    let answer = answer_to(&mut client, Method::GET, "/").await.unwrap();
    let received = read(&mut answer.into_body()).await.unwrap();
    assert_eq!(received, b"Some(0) 0 0");

    let (answer, mut body) = send(&mut client, Method::POST, "/");
    body.send_data(upload(), true).unwrap();
    let received = read(&mut soon(answer).await.unwrap().into_body()).await;
    assert_eq!(received.unwrap(), b"None 1048576 0");

    let (answer, mut body) = send(&mut client, Method::POST, "/");
    body.send_data(upload(), false).unwrap();
    body.send_trailers(trailers()).unwrap();
    let received = read(&mut soon(answer).await.unwrap().into_body()).await;
    assert_eq!(received.unwrap(), b"None 1048576 1");

    let request = Request::post("http://localhost/").header("content-length", "4");
    let request = request.body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"four"), true).unwrap();
    let received = read(&mut soon(answer).await.unwrap().into_body()).await;
    assert_eq!(received.unwrap(), b"Some(4) 4 0");

    // The stream of a CONNECT is open, but it is no body.
    let request = Request::connect("localhost:1").body(()).unwrap();
    let (answer, _tunnel) = client.send_request(request, false).unwrap();
    let received = read(&mut soon(answer).await.unwrap().into_body()).await;
    assert_eq!(received.unwrap(), b"Some(0) 0 0");
}

#[tokio::test]
async fn a_reset_fails_the_body_of_its_request_unless_it_is_no_error() {
    let (events, mut received) = mpsc::unbounded();
    let service = move |request: Request<RequestBody>| {
        let events = events.clone();
        async move {
            if request.method() == Method::POST {
                events.unbounded_send(None).unwrap();
                let result = request.into_body().collect().await;
                events.unbounded_send(Some(result.is_ok())).unwrap();
            }
            Ok(Response::new(empty()))
        }
    };
    let mut client = connect(WINDOWS[1], service).await;
    for (reason, expected) in [(Reason::NO_ERROR, true), (Reason::CANCEL, false)] {
        let (answer, mut body) = send(&mut client, Method::POST, "/");
        assert_eq!(soon(received.next()).await, Some(None), "it has begun");
        body.send_reset(reason);
        let result = soon(received.next()).await;
        assert_eq!(result, Some(Some(expected)), "{reason:?}");
        drop(answer);
    }
}

#[tokio::test]
async fn failures_reset_their_stream_with_the_reason_of_their_cause() {
    let service = async |request: Request<RequestBody>| -> Answered {
        let failure = || BoxError::from("it fails");
        let refused = || BoxError::from(h2::Error::from(Reason::REFUSED_STREAM));
        let body = |error| frames(stream::iter([data("a part"), Err(error)]));
        Ok(Response::new(match request.uri().path() {
            "/service" => return Err(failure()),
            "/service/refused" => return Err(refused()),
            "/body" => body(failure()),
            "/body/refused" => body(refused()),
            _ => empty(),
        }))
    };
    for window in WINDOWS {
        let mut client = connect(window, service).await;
        for (path, expected) in [
            ("/service", Reason::INTERNAL_ERROR),
            ("/service/refused", Reason::REFUSED_STREAM),
            ("/body", Reason::INTERNAL_ERROR),
            ("/body/refused", Reason::REFUSED_STREAM),
        ] {
            let error = match answer_to(&mut client, Method::GET, path).await {
                // The reset may be sent in place of the head.
                Err(error) => error,
                Ok(answer) => read(&mut answer.into_body()).await.unwrap_err(),
            };
            assert!(error.is_remote(), "{path}: {error}");
            assert_eq!(error.reason(), Some(expected), "{path} {window}");
            // The connection goes on.
            answer_to(&mut client, Method::GET, "/").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_reset_drops_what_answers_its_request() {
    for window in WINDOWS {
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let service = move |request: Request<RequestBody>| {
            let held = Arc::clone(&held);
            async move {
                Ok(Response::new(match request.uri().path() {
                    "/first" => empty(),
                    "/service" => held_forever(held).await,
                    _ => {
                        let rest = stream::once(held_forever(held));
                        frames(stream::iter([data("a part")]).chain(rest))
                    }
                }))
            }
        };
        let mut client = connect(window, service).await;
        let others = Arc::strong_count(&alive);
        let is_held = || Arc::strong_count(&alive) > others;

        let answer = answer_to(&mut client, Method::GET, "/body").await;
        let mut body = answer.unwrap().into_body();
        assert_eq!(soon(body.data()).await.unwrap().unwrap(), "a part");
        assert!(is_held());
        drop(body);
        soon(until(|| !is_held())).await;

        let (answer, mut stream) = send(&mut client, Method::GET, "/service");
        soon(until(is_held)).await;
        stream.send_reset(Reason::CANCEL);
        soon(until(|| !is_held())).await;
        drop(answer);
    }
}

/// Never completes, and holds a value.
async fn held_forever<T>(held: Arc<()>) -> T {
    let _held = held;
    pending().await
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

/// The data of a body of 500 kB.
fn parts() -> impl Iterator<Item = Bytes> {
    (0..50_u32).map(|part| Bytes::from(part.to_be_bytes().repeat(2_500)))
}

#[tokio::test]
async fn open_ended_bodies_arrive_whole_with_their_trailers() {
    let service = async |request: Request<RequestBody>| -> Answered {
        let all = parts().map(|part| Ok(Frame::data(part)));
        let end = Ok(Frame::trailers(trailers()));
        Ok(Response::new(match request.uri().path() {
            "/first" => empty(),
            _ => frames(stream::iter(all.chain([end]))),
        }))
    };
    for window in WINDOWS {
        let mut client = connect(window, service).await;
        for method in [Method::GET, Method::PUT] {
            let answer = answer_to(&mut client, method.clone(), "/").await;
            let mut body = answer.unwrap().into_body();
            let received = read(&mut body).await.unwrap();
            let expected = parts().collect::<Vec<_>>().concat();
            assert!(received == expected, "{method} {window}");
            let end = soon(body.trailers()).await.unwrap();
            assert_eq!(end, Some(trailers()), "{method} {window}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_finished_before_its_handshake_ends_after_it() {
    let service = async |_: Request<RequestBody>| -> Answered { Ok(Response::new(empty())) };
    let (far, served) = serve_until(service, ready(()));
    // The client would stay.
    let (_client, connection) = client::handshake(far).await.unwrap();
    tokio::spawn(connection);
    soon(served).await.unwrap().unwrap();
}

/// A client's preface and SETTINGS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_pinged_and_leaves_if_it_does_not_answer() {
    // A GET request of `http://x/` on stream 1.
    let request = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01x";
    let service = async |_: Request<RequestBody>| -> Answered { Ok(Response::new(empty())) };
    // With pings after 30 s, and 60 s for their answers.
    for (request_after, expected) in [(None, 90), (Some(20), 110)] {
        let (mut far, served) = serve_until(service, pending());
        let began = Instant::now();
        far.write_all(PREFACE).await.unwrap();
        if let Some(seconds) = request_after {
            sleep(Duration::from_secs(seconds)).await;
            far.write_all(request).await.unwrap();
        }
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), expected);
        let heads = sent.windows(5);
        assert_eq!(heads.filter(|head| *head == [0, 0, 8, 6, 0]).count(), 1);
        // This is no failure.
        served.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_slow_with_an_upload_stays_without_an_answer_to_a_ping() {
    // A POST request of `http://x/` on stream 1, and the head of a DATA frame of 100 bytes.
    let upload = b"\0\0\x06\x01\x04\0\0\0\x01\x83\x86\x84\x41\x01x\0\0\x64\0\0\0\0\0\x01";
    let service = async |request: Request<RequestBody>| -> Answered {
        let _body = request.into_body().collect().await?;
        Ok(Response::new(empty()))
    };
    let (mut far, served) = serve_until(service, pending());
    far.write_all(PREFACE).await.unwrap();
    far.write_all(upload).await.unwrap();
    // Silent for more than 30 s, so that the server sends a PING.
    sleep(Duration::from_secs(40)).await;
    for _ in 0..50 {
        far.write_all(b"x").await.unwrap();
        sleep(Duration::from_secs(20)).await;
    }
    assert!(!served.is_finished());
    // The answer is late 60 s after the last byte.
    let silent_since = Instant::now();
    far.write_all(b"x").await.unwrap();
    let mut sent = Vec::new();
    far.read_to_end(&mut sent).await.unwrap();
    assert_eq!(silent_since.elapsed().as_secs(), 60);
    let heads = sent.windows(5);
    assert_eq!(heads.filter(|head| *head == [0, 0, 8, 6, 0]).count(), 1);
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_idle_peer_that_answers_pings_stays() {
    let service = async |_: Request<RequestBody>| -> Answered { Ok(Response::new(empty())) };
    let mut client = connect(WINDOWS[0], service).await;
    sleep(Duration::from_secs(1_000)).await;
    let answer = send(&mut client, Method::GET, "/").0.await;
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_panic_of_the_connection_closes_its_socket() {
    let service = |request: Request<RequestBody>| {
        assert_ne!(request.uri().path(), "/panic", "as expected");
        ready(Ok(Response::new(frames(stream::pending()))))
    };
    let mut client = connect(WINDOWS[1], service).await;
    let mut watch = answer_to(&mut client, Method::GET, "/watch").await.unwrap();
    let _ = send(&mut client, Method::GET, "/panic");
    let ended = soon(watch.body_mut().data()).await;
    assert!(ended.is_none_or(|data| data.is_err()));
}

#[tokio::test]
async fn a_long_answer_ends_without_a_window() {
    let (ends, end) = futures::channel::oneshot::channel::<()>();
    let end = Arc::new(parking_lot::Mutex::new(Some(end)));
    let service = move |request: Request<RequestBody>| {
        let body = match request.uri().path() {
            "/watch" => {
                let end = end.lock().take().expect("one watch");
                let until_end = stream::once(end).filter_map(async |_| None);
                frames(until_end)
            }
            _ => empty(),
        };
        ready(Ok(Response::new(body)))
    };
    let (far, _) = serve_until(service, pending());
    let mut builder = client::Builder::new();
    builder
        .initial_connection_window_size(WINDOWS[1])
        .initial_window_size(0);
    let (mut client, connection) = builder.handshake::<_, Bytes>(far).await.unwrap();
    tokio::spawn(connection);
    answer_to(&mut client, Method::GET, "/first").await.unwrap();
    let mut watch = answer_to(&mut client, Method::GET, "/watch").await.unwrap();
    ends.send(()).unwrap();
    assert_eq!(read(watch.body_mut()).await.unwrap(), b"");
}

#[tokio::test]
async fn a_long_answer_that_always_has_data_leaves_room_for_others() {
    let service = async |request: Request<RequestBody>| -> Answered {
        let body = match request.uri().path() {
            "/endless" => frames(stream::repeat_with(|| {
                Ok(Frame::data(Bytes::from_static(&[0; 8 << 10])))
            })),
            "/short" => frames(stream::iter([data("one")]).chain(stream::pending())),
            _ => empty(),
        };
        Ok(Response::new(body))
    };
    let mut client = connect(WINDOWS[1], service).await;
    let mut endless = answer_to(&mut client, Method::GET, "/endless")
        .await
        .unwrap();
    let reader = tokio::spawn(async move { read(endless.body_mut()).await });
    for _ in 0..3 {
        let mut short = answer_to(&mut client, Method::GET, "/short").await.unwrap();
        let one = soon(short.body_mut().data()).await;
        assert_eq!(one.unwrap().unwrap(), "one");
    }
    reader.abort();
}
