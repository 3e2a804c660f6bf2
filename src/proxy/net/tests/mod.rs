use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{FutureExt, StreamExt};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubefan_core::shutdown;
use kubefan_core::shutdown::{Outcome, Phase, Shutdown};
use kubefan_core::telemetry::Registry;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::service_fn;

use crate::ledger::{Ledger, Limits};
use crate::net::tls::files::{crypto_provider, read_certificates};
use crate::net::{
    Abort, Acceptor, ClientHandle, Config, Listener, Metrics, Peer, Protocol, RequestBody,
    SelfSigned, ServedSocket, ServingThreads, TlsFiles, serve_connection,
};

mod limits;
mod proxies;
mod streams;

type Chunks = mpsc::UnboundedReceiver<Result<Frame<Bytes>, Infallible>>;
type TestBody = UnsyncBoxBody<Bytes, Infallible>;

/// A listener on a free port. `/peer` answers with the peer's address, `/stream` streams the chunks
/// of the test, `/upgrade` echoes bytes after a 101, `/wait` never answers, `/read` answers with
/// the length of the request's body, `/finish` finishes its connection, `/abort-kept` aborts the
/// answer to the `/kept` before it, `/aborted` answers with 8 KiB of an endless body, and aborts it
/// at the first chunk of the test.
struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    registry: Registry,
    ledger: Ledger,
    chunks: mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>,
}

impl Server {
    async fn start(config: Config, tls: Option<Acceptor>) -> Server {
        let registry = Registry::new();
        let shutdown = Shutdown::new(shutdown::Config::default());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let metrics = Metrics::new(&registry);
        let listener = Listener::new("test", socket, config, metrics, shutdown.clone());
        let ledger = Ledger::new(Limits::default());
        let mut listener = listener.with_ledger(ledger.clone());
        if let Some(acceptor) = tls {
            listener = listener.with_tls(acceptor);
        }
        let address = listener.local_address().unwrap();
        let (chunks, stream) = mpsc::unbounded();
        let stream = Arc::new(Mutex::new(Some(stream)));
        let tasks = shutdown.clone();
        let service = service_fn(move |request| answer(request, stream.clone(), tasks.clone()));
        shutdown.spawn(listener.serve(service));
        Server {
            address,
            shutdown,
            registry,
            ledger,
            chunks,
        }
    }

    async fn plain() -> Server {
        Server::start(Config::default(), None).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn send_chunk(&self, text: &'static str) {
        let frame = Frame::data(Bytes::from_static(text.as_bytes()));
        self.chunks.unbounded_send(Ok(frame)).unwrap();
    }

    fn drain(&self) -> JoinHandle<Outcome> {
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move { shutdown.drain().await })
    }

    fn has_metric(&self, line: &str) -> bool {
        self.registry.render().1.lines().any(|found| found == line)
    }
}

async fn answer(
    request: Request<RequestBody>,
    stream: Arc<Mutex<Option<Chunks>>>,
    tasks: Shutdown,
) -> Result<Response<TestBody>, Infallible> {
    let response = Response::builder().header("x-test-header", "1");
    let text = |text: String| text.map_err(|never| match never {}).boxed_unsync();
    Ok(match request.uri().path() {
        "/peer" => {
            let peer = &client_of(&request).peer;
            let version = request.version();
            let body = format!("{version:?} {} {}", peer.address, peer.tls);
            response.body(text(body)).unwrap()
        }
        "/stream" => {
            let chunks = stream.lock().await.take().unwrap();
            response
                .body(StreamBody::new(chunks).boxed_unsync())
                .unwrap()
        }
        "/wait" => std::future::pending().await,
        "/read" => {
            let body = request.into_body().collect().await.unwrap();
            let length = body.to_bytes().len();
            response.body(text(length.to_string())).unwrap()
        }
        "/finish" => {
            client_of(&request).connection.finish();
            response.body(text("finished".to_owned())).unwrap()
        }
        "/aborted" => {
            let abort = client_of(&request).abort.clone().unwrap();
            let mut chunks = stream.lock().await.take().unwrap();
            tasks.spawn(async move {
                chunks.next().await;
                abort.abort();
            });
            let first = Frame::data(Bytes::from(vec![b'x'; 8 << 10]));
            let endless = futures::stream::iter([Ok(first)]).chain(futures::stream::pending());
            response
                .body(StreamBody::new(endless).boxed_unsync())
                .unwrap()
        }
        "/kept" => {
            let abort = client_of(&request).abort.clone().unwrap();
            *kept_abort(&request).lock() = Some(abort);
            response.body(text("kept".to_owned())).unwrap()
        }
        "/abort-kept" => {
            kept_abort(&request).lock().take().unwrap().abort();
            // The connection gets time to notice it.
            tokio::task::yield_now().await;
            response.body(text("aborted".to_owned())).unwrap()
        }
        "/upgrade" => {
            tasks.spawn(async move {
                let upgraded = hyper::upgrade::on(request).await.unwrap();
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                tokio::io::copy(&mut read, &mut write).await.unwrap();
                write.shutdown().await.unwrap();
            });
            response
                .status(StatusCode::SWITCHING_PROTOCOLS)
                .header("connection", "upgrade")
                .header("upgrade", "echo")
                .body(Empty::new().boxed_unsync())
                .unwrap()
        }
        _ => response
            .status(StatusCode::NOT_FOUND)
            .body(text(String::new()))
            .unwrap(),
    })
}

/// Returns where `/kept` stores its abort on the connection for `/abort-kept`.
fn kept_abort(request: &Request<RequestBody>) -> &parking_lot::Mutex<Option<Abort>> {
    client_of(request).connection.memo()
}

fn client_of(request: &Request<RequestBody>) -> &ClientHandle {
    request.extensions().get().unwrap()
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://localhost{path}");
    Request::get(uri)
        .header("host", "localhost")
        .body(Empty::new())
        .unwrap()
}

async fn text_of(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("the test hangs")
}

type Io = TokioIo<TcpStream>;

async fn http1_on(stream: TcpStream) -> http1::SendRequest<Empty<Bytes>> {
    let (sender, connection) = http1::handshake::<Io, _>(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

async fn http2_on(stream: TcpStream) -> http2::SendRequest<Empty<Bytes>> {
    let io = TokioIo::new(stream);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn http1_is_served_with_the_peer_and_title_case_headers() {
    let server = Server::plain().await;
    let mut stream = server.connect().await;
    let request = "GET /peer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\nX-Test-Header: 1\r\n"),
        "{response}"
    );
    let expected = format!("HTTP/1.1 {} false", stream.local_addr().unwrap());
    assert!(response.ends_with(&expected), "{response}");
    let line = r#"kubefan_connections_total{listener="test",protocol="http1"} 1"#;
    assert!(server.has_metric(line));
}

#[tokio::test]
async fn http2_by_prior_knowledge_is_served() {
    let server = Server::plain().await;
    let stream = server.connect().await;
    let address = stream.local_addr().unwrap();
    let mut client = http2_on(stream).await;
    let response = soon(client.send_request(get("/peer"))).await.unwrap();
    assert_eq!(text_of(response).await, format!("HTTP/2.0 {address} false"));
    let line = r#"kubefan_connections_total{listener="test",protocol="http2"} 1"#;
    assert!(server.has_metric(line));
}

#[tokio::test]
async fn an_account_shows_its_client_and_the_requests_in_progress() {
    let server = Server::plain().await;
    let stream = server.connect().await;
    let address = stream.local_addr().unwrap();
    let mut http2 = http2_on(stream).await;
    let response = soon(http2.send_request(get("/stream"))).await.unwrap();
    let accounts = server.ledger.accounts();
    let client = accounts[0].client().expect("it has sent a request");
    let shown = (client.address, client.protocol, client.is_tls);
    assert_eq!(shown, (address, "http2", false));
    assert_eq!(client.requests(), 1);
    server.send_chunk("all");
    server.chunks.close_channel();
    assert_eq!(soon(text_of(response)).await, "all");
    let ended = async {
        while client.requests() > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(ended).await;
}

#[tokio::test]
async fn a_preface_in_two_parts_is_still_http2() {
    let server = Server::plain().await;
    let mut stream = server.connect().await;
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"PRI * HT").await.unwrap();
    tokio::task::yield_now().await;
    stream
        .write_all(b"TP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut frame_head = [0; 9];
    soon(stream.read_exact(&mut frame_head)).await.unwrap();
    assert_eq!(
        frame_head[3], 4,
        "a SETTINGS frame comes first: {frame_head:?}"
    );
}

#[tokio::test]
async fn an_aborted_answer_is_reset_whatever_its_client_has_read() {
    // With a window of one byte, h2 holds the rest of a chunk in its own buffer.
    for window in [0, 1, 65_535] {
        let server = Server::plain().await;
        let io = TokioIo::new(server.connect().await);
        let (mut client, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .handshake(io)
            .await
            .unwrap();
        tokio::spawn(connection);
        let waiting = client.send_request(get("/wait"));
        let answer = soon(client.send_request(get("/aborted"))).await.unwrap();
        server.send_chunk("now");
        let body = answer.into_body().collect();
        let error = soon(body).await.expect_err("no clean end");
        let cause = std::error::Error::source(&error).unwrap();
        let reset: &h2::Error = cause.downcast_ref().unwrap();
        assert_eq!(reset.reason(), Some(h2::Reason::CANCEL), "window {window}");
        // Other streams of the connection go on.
        let other = soon(client.send_request(get("/nowhere"))).await.unwrap();
        assert_eq!(other.status(), StatusCode::NOT_FOUND);
        drop(waiting);
    }
}

#[tokio::test]
async fn an_aborted_answer_over_http1_ends_without_its_last_chunk() {
    let server = Server::plain().await;
    let mut stream = server.connect().await;
    let request = b"GET /aborted HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut head = [0; 15];
    soon(stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    server.send_chunk("now");
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.unwrap();
    let text = String::from_utf8(rest).unwrap();
    assert!(text.contains("Transfer-Encoding: chunked"), "{text}");
    assert!(!text.ends_with("0\r\n\r\n"), "a clean end");
}

#[tokio::test]
async fn an_answer_that_has_ended_is_not_aborted_nor_is_the_next_one() {
    let server = Server::plain().await;
    let mut http1 = http1_on(server.connect().await).await;
    let mut http2 = http2_on(server.connect().await).await;
    for _ in 0..3 {
        let kept = soon(http1.send_request(get("/kept"))).await.unwrap();
        assert_eq!(text_of(kept).await, "kept");
        soon(http1.ready()).await.unwrap();
        let next = soon(http1.send_request(get("/abort-kept"))).await;
        assert_eq!(text_of(next.unwrap()).await, "aborted");
        soon(http1.ready()).await.unwrap();
        let kept = soon(http2.send_request(get("/kept"))).await.unwrap();
        assert_eq!(text_of(kept).await, "kept");
        let next = soon(http2.send_request(get("/abort-kept"))).await;
        assert_eq!(text_of(next.unwrap()).await, "aborted");
    }
}

async fn tls_server() -> (Server, TempDir, Arc<RootCertStore>) {
    let directory = TempDir::new().unwrap();
    let made = SelfSigned {
        directory: directory.path().to_owned(),
        names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
    }
    .ensure()
    .unwrap();
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&made.ca_certificate).unwrap() {
        roots.add(certificate).unwrap();
    }
    let acceptor = Acceptor::from_files(&made.server).unwrap();
    let server = Server::start(Config::default(), Some(acceptor)).await;
    (server, directory, Arc::new(roots))
}

async fn tls_connect(
    server: &Server,
    roots: Arc<RootCertStore>,
    name: &'static str,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from(name).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, server.connect().await).await
}

#[tokio::test]
async fn tls_chooses_the_protocol_by_alpn() {
    let (server, _directory, roots) = tls_server().await;

    let stream = tls_connect(&server, roots.clone(), "localhost", "h2")
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let address = stream.get_ref().0.local_addr().unwrap();
    let io = TokioIo::new(stream);
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let response = soon(client.send_request(get("/peer"))).await.unwrap();
    assert_eq!(text_of(response).await, format!("HTTP/2.0 {address} true"));

    let stream = tls_connect(&server, roots, "127.0.0.1", "http/1.1")
        .await
        .unwrap();
    let address = stream.get_ref().0.local_addr().unwrap();
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = soon(client.send_request(get("/peer"))).await.unwrap();
    assert_eq!(text_of(response).await, format!("HTTP/1.1 {address} true"));
}

#[tokio::test]
async fn a_self_signed_certificate_is_valid_only_for_its_names() {
    let (server, _directory, roots) = tls_server().await;
    let error = tls_connect(&server, roots, "example.com", "h2")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn a_failed_handshake_ends_its_connection_and_is_counted() {
    let (server, _directory, _roots) = tls_server().await;
    for (sent, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.0 400 "),
        // A peer of TLS gets an alert.
        ("no HTTP", "\u{15}"),
    ] {
        let mut stream = server.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        soon(stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{answer}");
    }
    let drain = server.drain();
    assert_eq!(soon(drain).await.unwrap(), Outcome::Drained);
    let line = r#"kubefan_connection_failures_total{listener="test",stage="open"} 2"#;
    assert!(server.has_metric(line));
}

#[tokio::test]
async fn a_silent_peer_is_disconnected_after_its_timeout() {
    let short = Duration::from_millis(20);
    let config = Config {
        head_timeout: short,
        handshake_timeout: short,
        ..Config::default()
    };
    let (_, directory, _) = tls_server().await;
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    for tls in [None, Some(Acceptor::from_files(&files).unwrap())] {
        let server = Server::start(config.clone(), tls).await;
        let mut stream = server.connect().await;
        let mut rest = Vec::new();
        assert_eq!(soon(stream.read_to_end(&mut rest)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_upgrade_passes_bytes_both_ways_and_is_waited_for() {
    let server = Server::plain().await;
    let mut client = http1_on(server.connect().await).await;
    let mut request = get("/upgrade");
    request
        .headers_mut()
        .insert("connection", "upgrade".parse().unwrap());
    request
        .headers_mut()
        .insert("upgrade", "echo".parse().unwrap());
    let response = soon(client.send_request(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    let mut io = TokioIo::new(upgraded);
    let drain = server.drain();
    server.shutdown.reached(Phase::EndWatches).await;
    io.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    soon(io.read_exact(&mut echo)).await.unwrap();
    assert_eq!(&echo, b"ping");
    assert!(!drain.is_finished());
    io.shutdown().await.unwrap();
    assert_eq!(soon(drain).await.unwrap(), Outcome::Drained);
}

#[tokio::test]
async fn drain_closes_idle_connections_and_the_socket() {
    let server = Server::plain().await;
    let mut idle = http1_on(server.connect().await).await;
    text_of(soon(idle.send_request(get("/peer"))).await.unwrap()).await;
    let mut idle2 = http2_on(server.connect().await).await;
    text_of(soon(idle2.send_request(get("/peer"))).await.unwrap()).await;
    let _silent = server.connect().await;
    assert_eq!(soon(server.drain()).await.unwrap(), Outcome::Drained);
    assert!(soon(idle.send_request(get("/peer"))).await.is_err());
    assert!(soon(idle2.send_request(get("/peer"))).await.is_err());
    assert!(TcpStream::connect(server.address).await.is_err());
    assert!(server.has_metric(r#"kubefan_connections_open{listener="test"} 0"#));
}

#[tokio::test]
async fn drain_waits_for_a_streaming_response() {
    for http2 in [false, true] {
        let server = Server::plain().await;
        let stream = server.connect().await;
        let response = if http2 {
            soon(http2_on(stream).await.send_request(get("/stream"))).await
        } else {
            soon(http1_on(stream).await.send_request(get("/stream"))).await
        };
        let mut body = response.unwrap().into_body().into_data_stream();
        server.send_chunk("one");
        assert_eq!(soon(body.next()).await.unwrap().unwrap(), "one");
        let drain = server.drain();
        server.shutdown.reached(Phase::EndWatches).await;
        server.send_chunk("two");
        assert_eq!(soon(body.next()).await.unwrap().unwrap(), "two");
        assert!(!drain.is_finished());
        server.chunks.close_channel();
        // An HTTP/2 body may end with an empty frame.
        while let Some(rest) = soon(body.next()).await {
            assert_eq!(rest.unwrap(), "");
        }
        assert_eq!(soon(drain).await.unwrap(), Outcome::Drained);
    }
}

#[tokio::test]
async fn a_finished_connection_completes_its_answers_and_takes_no_request() {
    for http2 in [false, true] {
        let server = Server::plain().await;
        let mut requests: Box<dyn FnMut(&str) -> _> = if http2 {
            let sender = http2_on(server.connect().await).await;
            let send = move |path: &str| sender.clone().send_request(get(path)).boxed();
            Box::new(send)
        } else {
            let mut sender = http1_on(server.connect().await).await;
            Box::new(move |path: &str| sender.send_request(get(path)).boxed())
        };
        let mut watched = None;
        if http2 {
            let response = soon(requests("/stream")).await.unwrap();
            watched = Some(response.into_body().into_data_stream());
        }
        let finished = soon(requests("/finish")).await.unwrap();
        assert_eq!(text_of(finished).await, "finished");
        if let Some(watched) = &mut watched {
            for chunk in ["one", "two"] {
                server.send_chunk(chunk);
                assert_eq!(soon(watched.next()).await.unwrap().unwrap(), chunk);
            }
        }
        // The client may not have seen the end yet; then the server refuses the request.
        assert!(soon(requests("/peer")).await.is_err(), "http2: {http2}");
        drop(watched);
        only_the_accept_loop_is_left(&server).await;
    }
}

#[tokio::test]
async fn a_request_that_arrived_before_the_stop_is_answered() {
    let (near, mut far) = tokio::io::duplex(1024);
    let head = b"GET /peer HTTP/1.1\r\nhost: localhost\r\n\r\n";
    far.write_all(head).await.unwrap();
    let tasks = Shutdown::new(shutdown::Config::default());
    let service = service_fn(move |request| answer(request, Arc::default(), tasks.clone()));
    let peer = Peer {
        address: ([127, 0, 0, 1], 1).into(),
        tls: false,
        certificates: None,
    };
    let (config, stop) = (Config::default(), std::future::ready(()));
    let socket = ServedSocket::new(near, config.write_timeout);
    let served = serve_connection(socket, Protocol::Http1, peer, service, &config, None, stop);
    soon(served).await.unwrap();
    let mut answered = String::new();
    soon(far.read_to_string(&mut answered)).await.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
}

#[tokio::test]
async fn the_task_ends_with_its_connection_not_with_the_drain() {
    let server = Server::plain().await;
    let mut client = http1_on(server.connect().await).await;
    text_of(soon(client.send_request(get("/peer"))).await.unwrap()).await;
    // One task is the accept loop, the other the connection.
    assert_eq!(server.shutdown.serving_tasks(), 2);
    drop(client);
    only_the_accept_loop_is_left(&server).await;
    assert!(!server.shutdown.is_draining());
}

async fn only_the_accept_loop_is_left(server: &Server) {
    soon(async {
        while server.shutdown.serving_tasks() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_disconnecting_peer_is_not_a_failure_but_invalid_input_is() {
    let server = Server::plain().await;
    for http2 in [false, true] {
        let stream = server.connect().await;
        let request = "GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let (mut read, mut write) = stream.into_split();
        let sent = if http2 { preface } else { request };
        write.write_all(sent.as_bytes()).await.unwrap();
        soon(read.read_u8()).await.unwrap();
    }
    only_the_accept_loop_is_left(&server).await;
    let line = r#"kubefan_connection_failures_total{listener="test",stage="serve"} 1"#;
    assert!(!server.has_metric(line));

    let mut stream = server.connect().await;
    stream
        .write_all(b"\x01\x02 nonsense\r\n\r\n")
        .await
        .unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    only_the_accept_loop_is_left(&server).await;
    assert!(server.has_metric(line));
}

#[tokio::test]
async fn an_idle_connection_ends_without_a_failure() {
    let config = Config {
        head_timeout: Duration::from_millis(20),
        ..Config::default()
    };
    let server = Server::start(config, None).await;
    let mut client = http1_on(server.connect().await).await;
    text_of(soon(client.send_request(get("/peer"))).await.unwrap()).await;
    only_the_accept_loop_is_left(&server).await;
    assert!(soon(client.send_request(get("/peer"))).await.is_err());
    let line = r#"kubefan_connection_failures_total{listener="test",stage="serve"} 1"#;
    assert!(!server.has_metric(line));
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_a_slot() {
    let config = Config {
        max_connections: 1.try_into().unwrap(),
        ..Config::default()
    };
    let server = Server::start(config, None).await;
    let mut first = http1_on(server.connect().await).await;
    text_of(soon(first.send_request(get("/peer"))).await.unwrap()).await;
    let mut second = http1_on(server.connect().await).await;
    let mut waiting = Box::pin(second.send_request(get("/peer")));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "served beside the first");
    drop(first);
    assert_eq!(soon(waiting).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn errors_name_unusable_tls_files() {
    let (_server, directory, _roots) = tls_server().await;
    let other = tls_server().await.1;
    let path = directory.path();
    fs::write(path.join("empty"), "").unwrap();
    let file = |name: &str| path.join(name);
    let table = [
        (file("gone"), file("tls.key"), "cannot read {}/gone"),
        (
            file("empty"),
            file("tls.key"),
            "no PEM certificate in {}/empty",
        ),
        (
            file("tls.crt"),
            file("empty"),
            "no PEM private key in {}/empty",
        ),
        (
            file("tls.crt"),
            file("tls.crt"),
            "no PEM private key in {}/tls.crt",
        ),
        (
            file("tls.crt"),
            other.path().join("tls.key"),
            "can't be used with {}/tls.crt",
        ),
    ];
    for (certificate, key, expected) in table {
        let error = Acceptor::from_files(&TlsFiles { certificate, key }).unwrap_err();
        let expected = expected.replace("{}", path.to_str().unwrap());
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_disconnected() {
    for http2 in [false, true] {
        let config = Config {
            write_timeout: Duration::from_millis(50),
            ..Config::default()
        };
        let server = Server::start(config, None).await;
        let mut stream = server.connect().await;
        let request = "GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n";
        // SETTINGS with windows of 2 GiB for streams and the connection, and `GET http://x/stream`.
        let preface =
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\
            \0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0\
            \0\0\x0e\x01\x05\0\0\0\x01\x82\x86\x04\x07/stream\x41\x01x";
        let sent = if http2 {
            &preface[..]
        } else {
            request.as_bytes()
        };
        stream.write_all(sent).await.unwrap();
        stream.read_u8().await.unwrap();
        // More than the kernel buffers for a peer that reads nothing.
        let megabyte = Bytes::from(vec![0; 1 << 20]);
        for _ in 0..64 {
            let frame = Frame::data(megabyte.clone());
            server.chunks.unbounded_send(Ok(frame)).unwrap();
        }
        only_the_accept_loop_is_left(&server).await;
        let line = r#"kubefan_connection_failures_total{listener="test",stage="serve"} 1"#;
        assert!(server.has_metric(line), "{http2}");
    }
}

#[tokio::test]
async fn http2_carries_large_bodies_whole() {
    let server = Server::plain().await;
    let mut client = http2_on(server.connect().await).await;
    let response = soon(client.send_request(get("/stream"))).await.unwrap();
    let parts: Vec<_> = (0..300u32)
        .map(|n| Bytes::from(n.to_be_bytes().repeat(5_000)))
        .collect();
    for part in &parts {
        server
            .chunks
            .unbounded_send(Ok(Frame::data(part.clone())))
            .unwrap();
    }
    server.chunks.close_channel();
    let body = soon(response.into_body().collect())
        .await
        .unwrap()
        .to_bytes();
    assert_eq!(body, parts.concat());
}

#[tokio::test]
async fn http2_peers_that_answer_no_ping_are_disconnected() {
    let config = Config {
        ping_interval: Duration::from_millis(20),
        ping_timeout: Duration::from_secs(1),
        ..Config::default()
    };
    let server = Server::start(config, None).await;
    // A peer that answers pings stays connected for longer than a ping may take.
    let mut client = http2_on(server.connect().await).await;
    let response = soon(client.send_request(get("/stream"))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    server.send_chunk("still here");
    let mut body = response.into_body().into_data_stream();
    assert_eq!(soon(body.next()).await.unwrap().unwrap(), "still here");
    drop((client, body));
    only_the_accept_loop_is_left(&server).await;
    // A peer that reads everything but answers no ping is disconnected, although it has a stream.
    let mut stream = server.connect().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
        \0\0\x0c\x01\x04\0\0\0\x01\x82\x86\x04\x05/peer\x41\x01x";
    stream.write_all(preface).await.unwrap();
    let mut read = Vec::new();
    soon(stream.read_to_end(&mut read)).await.unwrap();
    assert!(
        read.windows(9).any(|frame| frame[..5] == [0, 0, 8, 6, 0]),
        "no PING"
    );
}

/// Answers every request with the name of the thread that serves it.
async fn thread_name(_: Request<RequestBody>) -> Result<Response<String>, Infallible> {
    let name = std::thread::current().name().map(str::to_owned);
    Ok(Response::new(name.unwrap_or_default()))
}

#[tokio::test]
async fn connections_are_distributed_over_the_threads_and_drained_there() {
    let shutdown = Shutdown::new(shutdown::Config::default());
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let metrics = Metrics::new(&Registry::new());
    let threads = ServingThreads::start(2.try_into().unwrap(), std::future::pending).unwrap();
    let listener = Listener::new("test", socket, Config::default(), metrics, shutdown.clone())
        .on_threads(Arc::new(threads));
    let address = listener.local_address().unwrap();
    shutdown.spawn(listener.serve(service_fn(thread_name)));
    let mut seen = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = http1_on(TcpStream::connect(address).await.unwrap()).await;
        let response = soon(client.send_request(get("/"))).await.unwrap();
        seen.push(text_of(response).await);
        clients.push(client);
    }
    assert_eq!(seen, ["serve-0", "serve-1", "serve-0", "serve-1"]);
    assert_eq!(soon(shutdown.drain()).await, Outcome::Drained);
    for mut client in clients {
        assert!(soon(client.send_request(get("/"))).await.is_err());
    }
}
