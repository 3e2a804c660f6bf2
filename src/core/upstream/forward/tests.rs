//! Tests of the forwarder, with a server that checks or returns the forwarded requests.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::{Forwarder, Identity, UpgradedBytes};
use crate::body::{Body, BoxError, boxed, empty, full};
use crate::upstream::Error;
use crate::upstream::tests::support::TestServer;

/// The method, URI and sorted headers of a request, as the server received them.
fn head(request: &Request<Incoming>) -> String {
    let mut lines = vec![format!("{} {}", request.method(), request.uri())];
    let value = |value: &HeaderValue| value.to_str().unwrap_or("?").to_owned();
    let headers = request.headers().iter();
    lines.extend(headers.map(|(name, text)| format!("{name}: {}", value(text))));
    lines[1..].sort();
    lines.join("\n")
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

#[tokio::test]
async fn requests_are_forwarded_unchanged() {
    let server = TestServer::plain(|request| async move { Response::new(full(head(&request))) });
    let server = server.await;
    let settings = json!({ "server": format!("{}/k8s/clusters/c-1/", server.url) });
    let client = server.client_as(settings, json!({})).await;
    let request = Request::builder()
        .method(Method::PATCH)
        .uri("http://kubefan:8001//api/v1/a%2Fb/%zz?labelSelector=a%3D%62,x!=y&fieldManager=%20")
        .header("host", "kubefan:8001")
        .header("connection", "keep-alive, proxy-connection")
        .header("proxy-connection", "keep-alive")
        .header("keep-alive", "timeout=5")
        .header("accept-encoding", "gzip, br")
        .header("authorization", "Bearer t")
        .header("impersonate-group", "a")
        .header("impersonate-group", "b")
        .header("x-remote-user", "u")
        .body(full("{}"))
        .expect("a request");
    let forwarder = Forwarder::new(client);
    let forwarded = forwarder.forward(request, Identity::Caller).await;
    let host = server.url.trim_start_matches("http://");
    assert_eq!(
        text(forwarded.expect("an answer").response).await,
        format!(
            "PATCH /k8s/clusters/c-1//api/v1/a%2Fb/%zz?labelSelector=a%3D%62,x!=y&fieldManager=%20\n\
             accept-encoding: gzip, br\n\
             authorization: Bearer t\n\
             content-length: 2\n\
             host: {host}\n\
             impersonate-group: a\n\
             impersonate-group: b\n\
             x-remote-user: u"
        )
    );
}

#[tokio::test]
async fn a_connection_header_removes_no_identity() {
    let server = TestServer::plain(|_| async { Response::new(empty()) }).await;
    let forwarder = Forwarder::new(server.client().await);
    let request = Request::get("/api/v1/pods")
        .header("authorization", "Bearer t")
        .header("impersonate-user", "jane")
        .header("connection", "Impersonate-User")
        .body(empty())
        .expect("a request");
    let refused = forwarder.forward(request, Identity::Caller).await;
    assert!(matches!(refused, Err(Error::Request(_))), "{refused:?}");
}

#[tokio::test]
async fn answers_are_forwarded_unchanged() {
    let server = TestServer::tls(|_| async {
        let response = Response::builder()
            .status(301)
            .header("audit-id", "a")
            .header("warning", "299 - \"one\"")
            .header("warning", "299 - \"two\"")
            .header("retry-after", "3")
            .header("etag", "\"AB\"")
            .header("location", "/openapi/v3?hash=1");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-late", HeaderValue::from_static("1"));
        let frames = [
            Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"body"))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = boxed(StreamBody::new(futures::stream::iter(frames)));
        response.body(body).expect("a response")
    })
    .await;
    let forwarder = Forwarder::new(server.client().await);
    let request = Request::get("/openapi/v3")
        .body(empty())
        .expect("a request");
    let forwarded = forwarder.forward(request, Identity::Kubefan).await;
    let (parts, body) = forwarded.expect("an answer").response.into_parts();
    assert_eq!(parts.status, 301);
    let warnings: Vec<_> = parts.headers.get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"one\"", "299 - \"two\""]);
    for (name, value) in [
        ("audit-id", "a"),
        ("retry-after", "3"),
        ("etag", "\"AB\""),
        ("location", "/openapi/v3?hash=1"),
    ] {
        assert_eq!(parts.headers[name], value);
    }
    let collected = body.collect().await.expect("a body");
    assert_eq!(collected.trailers().expect("trailers")["x-late"], "1");
    assert_eq!(collected.to_bytes(), "body");
}

async fn echo(request: Request<Incoming>) -> Response<Body> {
    Response::new(boxed(request.into_body()))
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    for server in [TestServer::plain(echo).await, TestServer::tls(echo).await] {
        let forwarder = Forwarder::new(server.client().await);
        let (mut sender, chunks) = mpsc::channel::<Bytes>(0);
        let frames = chunks.map(|chunk| Ok::<_, BoxError>(Frame::data(chunk)));
        let request = Request::post("/upload").body(StreamBody::new(frames));
        let request = request.expect("a request");
        let forwarded = forwarder.forward(request, Identity::Kubefan).await;
        let mut body = forwarded.expect("headers before the upload ends").response;
        for chunk in ["one", "two"] {
            sender.send(chunk.into()).await.expect("taken");
            let frame = body.body_mut().frame().await.expect("a frame");
            let echoed = frame.expect("no error").into_data().expect("data");
            assert_eq!(echoed, chunk);
        }
        drop(sender);
        assert_eq!(text(body).await, "");
    }
}

/// Sends a message when it is dropped.
struct NotifyOnDrop(Option<oneshot::Sender<()>>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        if let Some(notify) = self.0.take() {
            let _ = notify.send(());
        }
    }
}

#[tokio::test]
async fn dropping_the_answer_cancels_the_request() {
    let (senders, mut dropped) = mpsc::unbounded();
    let handler = Arc::new(move || {
        let (notify, dropped) = oneshot::channel();
        senders.unbounded_send(dropped).expect("the test listens");
        let guard = NotifyOnDrop(Some(notify));
        let frames = futures::stream::unfold(guard, async |guard| {
            let frame = Frame::data(Bytes::from_static(&[0; 64 << 10]));
            Some((Ok::<_, BoxError>(frame), guard))
        });
        Response::new(boxed(StreamBody::new(frames)))
    });
    let plain = Arc::clone(&handler);
    let plain = TestServer::plain(move |_| std::future::ready(plain())).await;
    let tls = TestServer::tls(move |_| std::future::ready(handler())).await;
    for server in [plain, tls] {
        let forwarder = Forwarder::new(server.client().await);
        let request = Request::get("/endless").body(empty()).expect("a request");
        let forwarded = forwarder.forward(request, Identity::Kubefan).await;
        let forwarded = forwarded.expect("an answer");
        let ended = dropped.next().await.expect("a request came");
        drop(forwarded);
        ended.await.expect("the server's body was dropped");
    }
}

#[tokio::test]
async fn dropping_an_unanswered_request_cancels_it() {
    let (sender, mut dropped) = mpsc::unbounded();
    let server = TestServer::tls(move |_| {
        let (notify, dropped) = oneshot::channel();
        sender.unbounded_send(dropped).expect("the test listens");
        let guard = NotifyOnDrop(Some(notify));
        async move {
            let _guard = guard;
            pending().await
        }
    })
    .await;
    let forwarder = Forwarder::new(server.client().await);
    let request = Request::get("/slow").body(empty()).expect("a request");
    let forwarding = forwarder.forward(request, Identity::Kubefan);
    let ended = tokio::select! {
        _ = forwarding => panic!("the server never answers"),
        ended = dropped.next() => ended.expect("a request came"),
    };
    ended.await.expect("the server's work was dropped");
}

/// Answers an upgrade with 101, and then returns the first four bytes that arrive, followed by an
/// exclamation mark. Answers other requests with 400.
async fn upgrade_echo(mut request: Request<Incoming>) -> Response<Body> {
    let Some(protocol) = request.headers().get("upgrade").cloned() else {
        let response = Response::builder().status(400);
        return response.body(full("upgrade required")).expect("a response");
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.expect("upgraded"));
        let mut received = [0; 4];
        io.read_exact(&mut received).await.expect("four bytes");
        io.write_all(&received).await.expect("written");
        io.write_all(b"!").await.expect("written");
        io.shutdown().await.expect("shut down");
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", protocol)
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .body(empty())
        .expect("a response")
}

#[tokio::test]
async fn upgraded_connections_are_joined() {
    let upstream = TestServer::tls(upgrade_echo).await;
    let forwarder = Forwarder::new(upstream.client().await);
    let (joined, mut results) = mpsc::unbounded();
    let front = TestServer::plain(move |request| {
        let (forwarder, joined) = (forwarder.clone(), joined.clone());
        async move {
            let forwarded = forwarder.forward(request, Identity::Caller).await;
            let forwarded = forwarded.expect("an answer");
            if let Some(upgrade) = forwarded.upgrade {
                tokio::spawn(async move { joined.unbounded_send(upgrade.join().await) });
            }
            forwarded.response
        }
    })
    .await;
    let address = front.url.trim_start_matches("http://");
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    let request = "POST /api/v1/namespaces/n/pods/p/exec HTTP/1.1\r\nhost: k\r\n\
                   connection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.expect("a byte"));
    }
    let head = String::from_utf8(head).expect("text");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for header in [
        "connection: Upgrade\r\n",
        "upgrade: SPDY/3.1\r\n",
        "x-stream-protocol-version: v4.channel.k8s.io\r\n",
    ] {
        assert!(head.contains(header), "{head}");
    }
    tcp.write_all(b"ping").await.expect("written");
    let mut echoed = Vec::new();
    tcp.read_to_end(&mut echoed).await.expect("the end");
    assert_eq!(echoed, b"ping!");
    drop(tcp);
    let bytes = results.next().await.expect("joined").expect("no error");
    let expected = UpgradedBytes {
        sent: 4,
        received: 5,
    };
    assert_eq!(bytes, expected);
}

#[tokio::test]
async fn a_refused_upgrade_is_forwarded_as_a_normal_answer() {
    let upstream = TestServer::plain(upgrade_echo).await;
    let forwarder = Forwarder::new(upstream.client().await);
    let request = Request::get("/exec").header("connection", "Upgrade");
    let request = request.header("upgrade", "websocket").body(empty());
    // Without an `OnUpgrade` extension, as over HTTP/2, the connection can't be upgraded.
    let forwarded = forwarder.forward(request.expect("a request"), Identity::Caller);
    let forwarded = forwarded.await.expect("an answer");
    assert!(forwarded.upgrade.is_none());
    assert_eq!(forwarded.response.status(), 400);
    assert_eq!(text(forwarded.response).await, "upgrade required");
}

#[tokio::test]
async fn other_upgrades_are_ignored() {
    let upstream = TestServer::plain(async |request: Request<Incoming>| {
        let headers = request.headers();
        assert!(!headers.contains_key("http2-settings"), "{headers:?}");
        upgrade_echo(request).await
    })
    .await;
    let forwarder = Forwarder::new(upstream.client().await);
    let front = TestServer::plain(move |request| {
        let forwarder = forwarder.clone();
        async move {
            let forwarded = forwarder.forward(request, Identity::Caller).await;
            let forwarded = forwarded.expect("an answer");
            assert!(forwarded.upgrade.is_none());
            forwarded.response
        }
    })
    .await;
    let address = front.url.trim_start_matches("http://");
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    let request = "GET /api HTTP/1.1\r\nhost: k\r\nconnection: Upgrade, HTTP2-Settings, close\r\n\
                   upgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n";
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.expect("the end");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("upgrade required"), "{answer}");
}

#[tokio::test]
async fn a_401_for_kubefans_own_credentials_is_not_relayed() {
    let server = TestServer::plain(|_| async {
        let response = Response::builder().status(401);
        response.body(full("no")).expect("a response")
    });
    let server = server.await;
    let forwarder = Forwarder::new(server.client().await);
    let backend = "/api/v1/namespaces/n/pods/p/proxy/login";
    for (identity, path, is_relayed) in [
        (Identity::Kubefan, "/api/v1/pods", false),
        (Identity::Kubefan, backend, true),
        (Identity::Caller, "/api/v1/pods", true),
    ] {
        let request = Request::get(path).body(empty()).expect("a request");
        match forwarder.forward(request, identity).await {
            Ok(forwarded) => {
                assert!(is_relayed, "{identity:?} {path}");
                assert_eq!(forwarded.response.status(), 401);
            }
            Err(error) => {
                assert!(!is_relayed, "{identity:?} {path}");
                assert!(matches!(error, Error::CredentialsRefused), "{error:?}");
            }
        }
    }
}
