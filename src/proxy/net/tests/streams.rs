//! The streams of an HTTP/2 connection, in memory.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::duplex;
use tower::service_fn;

use super::{TestBody, get, soon, text_of};
use crate::net::{Config, Peer, Protocol, RequestBody, ServedSocket, serve_connection};

type Client = http2::SendRequest<Empty<Bytes>>;

/// Returns a client of a connection on which `body` answers each path.
async fn client(body: impl Fn(&str) -> TestBody + Clone + Send + 'static) -> Client {
    client_with_window(1 << 20, body).await
}

/// Returns a client whose connection has a window of `window` bytes.
async fn client_with_window(
    window: u32,
    body: impl Fn(&str) -> TestBody + Clone + Send + 'static,
) -> Client {
    let (near, far) = duplex(64 << 10);
    let service = service_fn(move |request: Request<RequestBody>| {
        let answer = Response::new(body(request.uri().path()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let peer = Peer {
        address: ([127, 0, 0, 1], 1).into(),
        tls: false,
        certificates: None,
    };
    let config = Config::default();
    let socket = ServedSocket::new(near, config.write_timeout);
    let protocol = Protocol::Http2;
    let served = serve_connection(socket, protocol, peer, service, &config, None, pending());
    tokio::spawn(served);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let builder = builder.initial_connection_window_size(window);
    let (client, connection) = builder.handshake(TokioIo::new(far)).await.unwrap();
    tokio::spawn(connection);
    client
}

fn text(text: &'static str) -> TestBody {
    let text = Full::new(Bytes::from_static(text.as_bytes()));
    text.boxed_unsync()
}

/// Returns a body whose polls return what `poll` does.
fn body(
    mut poll: impl FnMut(&mut std::task::Context<'_>) -> Poll<Option<Bytes>> + Send + 'static,
) -> TestBody {
    let frames = stream::poll_fn(move |cx| poll(cx).map(|data| data.map(Frame::data).map(Ok)));
    StreamBody::new(frames).boxed_unsync()
}

#[tokio::test]
async fn an_event_costs_no_poll_that_finds_nothing() {
    // With the smaller window, the HTTP library sends the data.
    for window in [65_535, 1 << 20] {
        let polls = Arc::new(AtomicUsize::new(0));
        let (events, receiver) = mpsc::unbounded();
        let receiver = Arc::new(parking_lot::Mutex::new(receiver));
        let counted = Arc::clone(&polls);
        let watch = move |_: &str| {
            let (receiver, counted) = (Arc::clone(&receiver), Arc::clone(&counted));
            body(move |cx| {
                counted.fetch_add(1, Ordering::Relaxed);
                receiver.lock().poll_next_unpin(cx)
            })
        };
        let mut client = client_with_window(window, watch).await;
        let answer = soon(client.send_request(get("/"))).await.unwrap();
        let mut received = answer.into_body().into_data_stream();
        let before = polls.load(Ordering::Relaxed);
        for _ in 0..10 {
            events.unbounded_send(Bytes::from_static(b"event")).unwrap();
            assert_eq!(soon(received.next()).await.unwrap().unwrap(), "event");
        }
        // One poll returns the event, and the next one waits for another.
        let polls = polls.load(Ordering::Relaxed) - before;
        assert_eq!(polls, 2 * 10, "{window}");
    }
}

#[tokio::test]
async fn a_panic_in_a_body_resets_its_stream_only() {
    let mut client = client(|path| match path {
        "/panic" => body(|_| panic!("a panic in a body")),
        _ => text("answer"),
    })
    .await;
    for _ in 0..2 {
        // The client may get the reset together with the head.
        if let Ok(panicked) = soon(client.send_request(get("/panic"))).await {
            let received = soon(panicked.into_body().collect()).await;
            assert!(received.is_err(), "a clean end");
        }
        let other = soon(client.send_request(get("/"))).await.unwrap();
        assert_eq!(soon(text_of(other)).await, "answer");
    }
}

#[tokio::test]
async fn a_request_is_answered_beside_streams_that_are_always_ready() {
    let mut client = client(|path| match path {
        "/busy" => body(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }),
        _ => text("answer"),
    })
    .await;
    let mut busy = Vec::new();
    for _ in 0..200 {
        busy.push(soon(client.send_request(get("/busy"))).await.unwrap());
    }
    let answer = soon(client.send_request(get("/"))).await.unwrap();
    assert_eq!(soon(text_of(answer)).await, "answer");
}

#[tokio::test]
async fn a_client_that_leaves_drops_the_bodies_of_its_streams() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let watch = move |_: &str| {
        let held = Arc::clone(&held);
        body(move |_| {
            let _held = &held;
            Poll::Pending
        })
    };
    let mut client = client(watch).await;
    let mut answers = Vec::new();
    for _ in 0..100 {
        answers.push(soon(client.send_request(get("/"))).await.unwrap());
    }
    assert!(Arc::strong_count(&alive) > 100);
    drop((client, answers));
    let dropped = async {
        while Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
    };
    soon(dropped).await;
}
