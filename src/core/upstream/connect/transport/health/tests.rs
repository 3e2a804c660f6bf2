//! Tests of a server that stops to respond: in memory, on paused time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};

use crate::body::{Body, empty, full};
use crate::upstream::Identity::{Caller, Kubefan};
use crate::upstream::tests::support::StoppableServer;
use crate::upstream::{Client, Dial, Error};

/// The longest silence before a ping, and the time for its answer.
const DETECTION: Duration = Duration::from_secs(8);
/// Admission webhooks may take this long.
const SLOW: Duration = Duration::from_secs(30);

fn request(method: Method, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.body(empty()).expect("a request")
}

fn get(path: &str) -> Request<Body> {
    request(Method::GET, path)
}

/// Answers at once, or after `SLOW` if the path is `/slow`.
async fn answer(request: Request<Incoming>) -> Response<Body> {
    if request.uri().path() == "/slow" {
        sleep(SLOW).await;
    }
    Response::new(full("ok"))
}

async fn text(response: Result<Response<Body>, Error>) -> String {
    let body = response.expect("an answer").into_body().collect().await;
    let bytes = body.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_fail_when_the_server_stops_and_later_ones_fail_at_once() {
    let server = StoppableServer::start(answer);
    let client = &server.client;
    assert_eq!(text(client.request(Kubefan, get("/x")).await).await, "ok");
    let stopped_at = Instant::now();
    let waiting = async {
        sleep(Duration::from_secs(1)).await;
        server.stopped.send_replace(true);
    };
    let (read, write, ()) = tokio::join!(
        client.request(Kubefan, get("/slow")),
        client.request(Kubefan, request(Method::POST, "/slow")),
        waiting,
    );
    assert!(matches!(read, Err(Error::Transport(_))), "{read:?}");
    assert!(matches!(write, Err(Error::InDoubt(_))), "{write:?}");
    let took = stopped_at.elapsed();
    assert!(took <= DETECTION + Duration::from_secs(1), "{took:?}");

    assert!(!client.is_responding());
    let refused_at = Instant::now();
    for identity in [Kubefan, Caller] {
        for method in [Method::GET, Method::POST] {
            let refused = client.request(identity, request(method, "/x")).await;
            assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
        }
        let refused = client.request_http1(identity, get("/x")).await;
        assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    }
    assert_eq!(refused_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_shows_that_the_server_stopped() {
    let server = StoppableServer::start(answer);
    text(server.client.request(Kubefan, get("/x")).await).await;
    server.stopped.send_replace(true);
    sleep(DETECTION + Duration::from_millis(1)).await;
    assert!(!server.client.is_responding());
}

#[tokio::test(start_paused = true)]
async fn requests_are_sent_again_after_the_server_continues() {
    let server = StoppableServer::start(answer);
    text(server.client.request(Kubefan, get("/x")).await).await;
    server.stopped.send_replace(true);
    sleep(Duration::from_secs(100)).await;
    assert!(!server.client.is_responding());
    server.stopped.send_replace(false);
    sleep(super::PROBE_PAUSE + Duration::from_millis(1)).await;
    assert!(server.client.is_responding());
    for identity in [Kubefan, Caller] {
        assert_eq!(
            text(server.client.request(identity, get("/x")).await).await,
            "ok"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_lets_probes_accept_the_servers_new_certificates() {
    let (old, new) = (
        StoppableServer::start(answer),
        StoppableServer::start(answer),
    );
    let client = &old.client;
    text(client.request(Kubefan, get("/x")).await).await;
    old.stopped.send_replace(true);
    sleep(2 * DETECTION).await;
    assert!(!client.is_responding());
    client.reload_in_memory(&new.dial, new.authority.clone());
    let refused = client.request(Kubefan, get("/x")).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    sleep(super::PROBE_TIMEOUT + super::PROBE_PAUSE + Duration::from_millis(1)).await;
    assert_eq!(text(client.request(Kubefan, get("/x")).await).await, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_on_a_live_connection_is_waited_for() {
    let server = StoppableServer::start(answer);
    let started = Instant::now();
    let post = request(Method::POST, "/slow");
    assert_eq!(text(server.client.request(Kubefan, post).await).await, "ok");
    assert!(started.elapsed() >= SLOW);
    assert!(server.client.is_responding());
}

#[tokio::test(start_paused = true)]
async fn the_clients_own_calls_have_a_limit_of_ten_seconds() {
    let server = StoppableServer::start(answer);
    let started = Instant::now();
    let called = server.client.get_json::<serde_json::Value>("/slow").await;
    assert!(matches!(called, Err(Error::Timeout(_))), "{called:?}");
    assert_eq!(started.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn waiting_http1_requests_fail_once_a_probe_has_failed() {
    let server = StoppableServer::start(answer);
    text(server.client.request(Kubefan, get("/x")).await).await;
    let started = Instant::now();
    let stop = async {
        sleep(Duration::from_secs(1)).await;
        server.stopped.send_replace(true);
    };
    let (waited, ()) = tokio::join!(server.client.request_http1(Caller, get("/slow")), stop);
    assert!(matches!(waited, Err(Error::Transport(_))), "{waited:?}");
    let took = started.elapsed();
    let limit = DETECTION + super::PROBE_TIMEOUT + Duration::from_secs(1);
    assert!(took <= limit, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_finishes_a_handshake_does_not_respond() {
    let server = StoppableServer::start(answer);
    server.stopped.send_replace(true);
    let started = Instant::now();
    let failed = server.client.request(Kubefan, get("/x")).await;
    assert!(matches!(failed, Err(Error::Unreachable(_))), "{failed:?}");
    assert_eq!(started.elapsed().as_secs(), 10);
    assert!(!server.client.is_responding());
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_needs_no_probe() {
    let dial: Dial = Arc::new(|| Err(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let client = Client::in_memory(&dial);
    let refused = client.request(Kubefan, request(Method::POST, "/x")).await;
    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    assert!(client.is_responding());
}
