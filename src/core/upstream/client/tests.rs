//! Tests of the client's identities, shared connections and repeated requests.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::{Client, Identity, Pool};
use crate::body::{Body, BoxError, boxed, empty, full};
use crate::upstream::connect::connection::route::CONNECT_TIMEOUT;
use crate::upstream::connect::memory;
use crate::upstream::tests::support::{
    OTHER_NAME, TestServer, accept_each, in_memory_tls, in_time, peer,
};
use crate::upstream::{ClientConfig, Dial, Error};

const CHUNK: usize = 64 << 10;

impl Client {
    /// Does what [`Client::in_memory`] does, but with TLS and HTTP/2; the server's CA is
    /// `authority`.
    pub(in crate::upstream) fn in_memory_tls(
        dial: &Dial,
        authority: CertificateDer<'static>,
    ) -> Self {
        let server = Uri::from_static("https://127.0.0.1");
        Self::for_tests(dial, server, &roots(authority))
    }

    /// Does what [`Client::reload`] does, for a client in memory; `dial` opens its
    /// connections from now on.
    pub(in crate::upstream) fn reload_in_memory(
        &self,
        dial: &Dial,
        authority: CertificateDer<'static>,
    ) {
        let health = self.inner.stacks.load().health();
        let server = &self.inner.server;
        self.replace(memory::stacks(dial, server, &roots(authority), health));
    }
}

fn roots(authority: CertificateDer<'static>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(authority).expect("a root");
    roots
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(empty()).expect("a request")
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

/// Answers with the certificate, `Authorization` header and HTTP version that the server saw.
async fn describe_identity(request: Request<hyper::body::Incoming>) -> Response<Body> {
    let authorization = request.headers().get("authorization");
    let seen = format!(
        "certificate={} authorization={:?} version={:?}",
        peer(&request).has_certificate,
        authorization.and_then(|value| value.to_str().ok()),
        request.version(),
    );
    Response::new(full(seen))
}

#[tokio::test]
async fn a_callers_connection_has_neither_our_certificate_nor_our_token() {
    let server = TestServer::tls(describe_identity).await;
    let mut user = server.certificate_user();
    user["token"] = json!("ours");
    let client = server.client_as(json!({}), user).await;
    let seen = async |identity, authorization: Option<&str>| {
        let mut request = get("/api");
        if let Some(value) = authorization {
            let value = value.parse().expect("a header");
            request.headers_mut().insert("authorization", value);
        }
        let response = client.request(identity, request).await.expect("an answer");
        text(response).await
    };
    assert_eq!(
        seen(Identity::Kubefan, None).await,
        r#"certificate=true authorization=Some("Bearer ours") version=HTTP/2.0"#
    );
    // Credentials that the server has not accepted yet share no connection.
    for version in ["HTTP/1.1", "HTTP/2.0"] {
        assert_eq!(
            seen(Identity::Caller, Some("Bearer theirs")).await,
            format!(r#"certificate=false authorization=Some("Bearer theirs") version={version}"#)
        );
        // Requests without credentials never do.
        assert_eq!(
            seen(Identity::Caller, None).await,
            "certificate=false authorization=None version=HTTP/1.1"
        );
    }
}

/// kube-apiserver sends a GOAWAY after its answer to an anonymous request over HTTP/2. If callers'
/// requests shared such a connection, anyone could make kubefan open another one for them each time.
#[tokio::test]
async fn anonymous_requests_use_no_connection_of_callers() {
    let server = TestServer::tls(|request| async move {
        let authorization = request.headers().get("authorization");
        let seen = format!(
            "{} {:?} {}",
            authorization.is_some(),
            request.version(),
            peer(&request).connection
        );
        Response::new(full(seen))
    });
    let server = server.await;
    let client = server.client().await;
    let send = async |authorization: Option<&str>| {
        let mut request = get("/version");
        if let Some(value) = authorization {
            let value = value.parse().expect("a header");
            request.headers_mut().insert("authorization", value);
        }
        let response = client.request(Identity::Caller, request).await;
        text(response.expect("an answer")).await
    };
    send(Some("Bearer good")).await;
    let of_caller = send(Some("Bearer good")).await;
    assert!(of_caller.starts_with("true HTTP/2.0"), "{of_caller}");
    for _ in 0..3 {
        let anonymous = send(None).await;
        assert!(anonymous.starts_with("false HTTP/1.1"), "{anonymous}");
        assert_eq!(send(Some("Bearer good")).await, of_caller);
    }
}

/// How a header is represented in a block (RFC 7541, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Representation {
    Indexed,
    AddedToTable,
    NotAdded,
    NeverIndexed,
}

/// The representations in an HPACK block, each with the index of the header or of its name.
fn representations(mut block: &[u8]) -> Vec<(Representation, usize)> {
    fn integer(block: &mut &[u8], bits: u32) -> usize {
        let most = (1 << bits) - 1;
        let mut value = usize::from(block[0]) & most;
        *block = &block[1..];
        if value < most {
            return value;
        }
        for shift in (0..).step_by(7) {
            let byte = usize::from(block[0]);
            *block = &block[1..];
            value += (byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    fn skip_text(block: &mut &[u8]) {
        let length = integer(block, 7);
        *block = &block[length..];
    }
    let mut found = Vec::new();
    while let Some(first) = block.first() {
        let (representation, bits) = match first {
            0x80.. => (Representation::Indexed, 7),
            0x40.. => (Representation::AddedToTable, 6),
            // A new size of the table.
            0x20.. => {
                integer(&mut block, 5);
                continue;
            }
            0x10.. => (Representation::NeverIndexed, 4),
            _ => (Representation::NotAdded, 4),
        };
        let index = integer(&mut block, bits);
        if representation != Representation::Indexed {
            if index == 0 {
                skip_text(&mut block);
            }
            skip_text(&mut block);
        }
        found.push((representation, index));
    }
    found
}

/// Sends the block of each HEADERS frame that a client sends over HTTP/2. Answers nothing.
async fn header_blocks<I>(mut io: I, blocks: mpsc::UnboundedSender<Vec<u8>>)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let mut preface = [0; 24];
    io.read_exact(&mut preface).await.expect("a preface");
    // Empty SETTINGS.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    io.write_all(&settings).await.expect("room");
    let mut head = [0; 9];
    while io.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        io.read_exact(&mut payload).await.expect("a whole frame");
        let (is_headers, flags) = (head[3] == 1, head[4]);
        if is_headers {
            // The block ends with the frame, without padding or a priority.
            assert_eq!(flags & 0x2c, 0x04, "{flags:x}");
            blocks.send(payload).ok();
        }
    }
}

/// A token in the table of a connection could be compared with the guesses of other requests.
#[tokio::test(start_paused = true)]
async fn a_token_is_in_no_table_of_a_connection() {
    /// The place of `authorization` in the static table.
    const AUTHORIZATION: usize = 23;
    const STATIC: usize = 61;
    let (sent, mut blocks) = mpsc::unbounded_channel();
    let client = in_memory_tls(move |_, io| header_blocks(io, sent.clone()));
    for _ in 0..2 {
        let mut request = get("/api");
        let mut token = http::HeaderValue::from_static("Bearer a-secret");
        token.set_sensitive(true);
        request.headers_mut().insert("authorization", token);
        let other = http::HeaderValue::from_static("kept");
        request.headers_mut().insert("x-other", other);
        let client = client.clone();
        tokio::spawn(async move { client.request(Identity::Kubefan, request).await.map(drop) });
        let block = in_time(blocks.recv()).await.expect("a request");
        let headers = representations(&block);
        let of_token = headers.iter().filter(|(_, index)| *index == AUTHORIZATION);
        let of_token: Vec<_> = of_token
            .map(|(representation, _)| *representation)
            .collect();
        assert_eq!(of_token, [Representation::NeverIndexed], "{headers:?}");
        let has_other = headers.iter().any(|(representation, index)| {
            *representation == Representation::AddedToTable || *index > STATIC
        });
        assert!(has_other, "the connection has a table: {headers:?}");
    }
}

#[tokio::test]
async fn refused_credentials_never_share_a_connection() {
    let server = TestServer::tls(|request| async move {
        let authorization = request.headers().get("authorization");
        let is_bad = authorization.is_some_and(|value| value == "Bearer bad");
        let response = Response::builder().status(if is_bad { 401 } else { 200 });
        let version = format!("{:?}", request.version());
        response.body(full(version)).expect("a response")
    });
    let server = server.await;
    let client = server.client().await;
    let version = async |token: &'static str| {
        let mut request = get("/api");
        let value = http::HeaderValue::from_static(token);
        request.headers_mut().insert("authorization", value);
        let response = client.request(Identity::Caller, request).await;
        text(response.expect("an answer")).await
    };
    assert_eq!(version("Bearer good").await, "HTTP/1.1");
    for _ in 0..3 {
        assert_eq!(version("Bearer bad").await, "HTTP/1.1");
        assert_eq!(version("Bearer good").await, "HTTP/2.0");
    }
}

#[tokio::test]
async fn watches_and_upgrades_get_http1_connections() {
    let server = TestServer::tls(describe_identity).await;
    let client = server.client_as(json!({}), server.certificate_user()).await;
    let response = client.request_http1(Identity::Kubefan, get("/api")).await;
    assert_eq!(
        text(response.expect("an answer")).await,
        "certificate=true authorization=None version=HTTP/1.1"
    );
}

/// A body that sends `first` at once, and sends "end" and ends when `end` becomes true.
fn open_until(first: &'static str, mut end: watch::Receiver<bool>) -> Body {
    let first = stream::once(async move { Ok(Frame::data(Bytes::from_static(first.as_bytes()))) });
    let rest = stream::once(async move {
        let _ = end.wait_for(|ended| *ended).await;
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"end")))
    });
    boxed(StreamBody::new(first.chain(rest)))
}

#[tokio::test]
async fn a_hundred_and_fifty_open_responses_need_two_connections() {
    let (end, ended) = watch::channel(false);
    let mut server = TestServer::tls(move |request| {
        let connection = peer(&request).connection.to_string();
        let body = open_until("open", ended.clone());
        async move {
            let response = Response::builder().header("connection-number", connection);
            response.body(body).expect("a response")
        }
    })
    .await;
    let client = server.client().await;
    let requests = (0..150).map(|_| client.request(Identity::Kubefan, get("/watch")));
    let mut connections = HashSet::new();
    let mut bodies = Vec::new();
    for response in in_time(join_all(requests)).await {
        let (parts, mut body) = response.expect("an answer").into_parts();
        connections.insert(parts.headers["connection-number"].clone());
        let first = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(first.into_data().expect("data"), "open");
        bodies.push(body);
    }
    assert_eq!((connections.len(), *server.open.borrow()), (2, 2));

    end.send(true).expect("the responses wait for the end");
    for body in bodies {
        let rest = body.collect().await.expect("the end").to_bytes();
        assert_eq!(rest, "end");
    }
    let one_left = server.open.wait_for(|open| *open == 1);
    in_time(one_left).await.expect("the server still runs");
    let response = client.request(Identity::Kubefan, get("/watch")).await;
    let response = response.expect("an answer");
    let number = &response.headers()["connection-number"];
    assert!(
        connections.contains(number),
        "the remaining open connection is used"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_carries_no_more_streams_than_the_server_allows() {
    let connections = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&connections);
    let client = in_memory_tls(move |number, io| {
        opened.store(number + 1, Ordering::SeqCst);
        serve_waiting(io)
    });
    let requests = (0..25).map(|_| client.request(Identity::Kubefan, get("/watch")));
    let responses = in_time(join_all(requests)).await;
    assert!(responses.iter().all(Result::is_ok), "{responses:?}");
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_many_cancelled_requests_gets_no_more() {
    let connections = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&connections);
    let client = in_memory_tls(move |number, io| {
        opened.store(number + 1, Ordering::SeqCst);
        serve_waiting(io)
    });
    let kept = client.request(Identity::Kubefan, get("/watch")).await;
    let mut kept = kept.expect("an answer").into_body();
    for _ in 0..400 {
        let cancelled = client.request(Identity::Kubefan, get("/watch")).await;
        drop(cancelled.expect("an answer"));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3, "180 for each");
    let frame = kept.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "open");
}

/// Serves HTTP/2 with ten streams for each connection, and answers by bodies that never end.
async fn serve_waiting<I>(io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|_| async {
        let (kept, end) = watch::channel(false);
        std::mem::forget(kept);
        Ok::<_, std::convert::Infallible>(Response::new(open_until("open", end)))
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(10);
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
}

#[tokio::test]
async fn requests_survive_a_connection_that_the_server_drains() {
    let (end, ended) = watch::channel(false);
    let server = TestServer::tls(move |request| {
        let body = match request.uri().path() {
            "/watch" => open_until("open", ended.clone()),
            _ => full("ok"),
        };
        async move { Response::new(body) }
    })
    .await;
    let client = server.client().await;
    let watching = client.request(Identity::Kubefan, get("/watch")).await;
    let mut watching = watching.expect("an answer").into_body();
    watching.frame().await.expect("a frame").expect("no error");
    server.drain.notify_waiters();
    for _ in 0..20 {
        let post = Request::post("/api").body(full("{}")).expect("a request");
        let response = client.request(Identity::Kubefan, post).await;
        assert_eq!(text(response.expect("an answer")).await, "ok");
    }
    end.send(true).expect("the watch waits for the end");
    let rest = watching.collect().await.expect("the end").to_bytes();
    assert_eq!(rest, "end");
}

#[tokio::test]
async fn the_servers_certificate_is_checked_against_the_right_name() {
    let server = TestServer::tls(describe_identity).await;
    for (name, accepted) in [(OTHER_NAME, true), ("elsewhere.test", false)] {
        let settings = json!({ "tls-server-name": name });
        let client = server.client_as(settings, json!({})).await;
        for identity in [Identity::Kubefan, Identity::Caller] {
            let response = client.request(identity, get("/api")).await;
            assert_eq!(response.is_ok(), accepted, "{name}: {response:?}");
            let response = client.request_http1(identity, get("/api")).await;
            assert_eq!(response.is_ok(), accepted, "{name}: {response:?}");
        }
    }
}

#[tokio::test]
async fn a_proxy_tunnels_to_the_server() {
    let server = TestServer::tls(describe_identity).await;
    let target = server.url.trim_start_matches("https://").to_owned();
    let proxy = accept_each(move |tcp| {
        let target = target.clone();
        async move {
            let mut tcp = BufReader::new(tcp);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                tcp.read_line(&mut head).await.expect("a line");
            }
            let head = head.to_lowercase();
            assert!(head.starts_with(&format!("connect {target} http/1.1\r\n")));
            assert!(head.contains("proxy-authorization: basic dtpw\r\n"));
            let answer = b"HTTP/1.1 200 OK\r\n\r\n";
            tcp.write_all(answer).await.expect("written");
            let mut onward = TcpStream::connect(&target).await.expect("connected");
            let _ = tokio::io::copy_bidirectional(&mut tcp, &mut onward).await;
        }
    })
    .await;
    let settings = json!({ "proxy-url": format!("http://u:p@{proxy}") });
    let client = server.client_as(settings, json!({})).await;
    let response = client.request(Identity::Kubefan, get("/api")).await;
    let seen = text(response.expect("an answer")).await;
    assert!(seen.ends_with("version=HTTP/2.0"), "{seen}");
}

#[tokio::test]
async fn a_file_of_authorities_is_used_instead_of_those_of_the_system() {
    let server = TestServer::tls(describe_identity).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let connect = async |authorities: &str| {
        std::fs::write(file.path(), authorities).expect("a file of authorities");
        let config = ClientConfig {
            server: Some(server.url.clone()),
            ca_file: Some(file.path().to_owned()),
            ..ClientConfig::default()
        };
        Client::connect(config).await
    };
    let client = connect(server.authority()).await.expect("a client");
    let response = client.request(Identity::Kubefan, get("/api")).await;
    assert_eq!(response.expect("an answer").status(), 200);
    let error = connect("nothing").await.expect_err("no certificate");
    let expected = format!(
        "certificate authorities {}: there is no certificate in it",
        file.path().display()
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn reloading_takes_up_new_credentials_for_the_same_server() {
    let server = TestServer::plain(describe_identity).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |url: &str, token: &str| {
        let kubeconfig = json!({
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": { "server": url } }],
            "users": [{ "name": "u", "user": { "token": token } }],
        });
        std::fs::write(file.path(), kubeconfig.to_string()).expect("a kubeconfig");
    };
    let config = ClientConfig {
        kubeconfig: Some(file.path().to_owned()),
        context: None,
        ..ClientConfig::default()
    };
    write(&server.url, "old");
    let client = Client::connect(config).await.expect("a client");
    let seen = async || {
        let response = client.request(Identity::Kubefan, get("/api")).await;
        text(response.expect("an answer")).await
    };
    assert!(seen().await.contains("Bearer old"));
    write(&server.url, "new");
    client.reload().await.expect("a usable kubeconfig");
    assert!(seen().await.contains("Bearer new"));
    write("http://elsewhere.test", "other");
    let refused = client.reload().await.expect_err("another server");
    assert!(refused.to_string().contains("needs a restart"), "{refused}");
    assert!(seen().await.contains("Bearer new"));
}

#[tokio::test]
async fn a_socks_proxy_resolves_names_and_tunnels_to_the_server() {
    let server = TestServer::plain(describe_identity).await;
    let (_, port) = server.url.rsplit_once(':').expect("a port");
    let onward = format!("127.0.0.1:{port}");
    let proxy = accept_each(move |mut tcp| {
        let onward = onward.clone();
        async move {
            let mut greeting = [0; 2];
            tcp.read_exact(&mut greeting).await.expect("a greeting");
            let mut methods = vec![0; greeting[1].into()];
            tcp.read_exact(&mut methods).await.expect("methods");
            tcp.write_all(&[5, 0]).await.expect("written");
            let mut head = [0; 5];
            tcp.read_exact(&mut head).await.expect("a request");
            assert_eq!(head[..4], [5, 1, 0, 3], "a connection to a name");
            let mut name = vec![0; usize::from(head[4]) + 2];
            tcp.read_exact(&mut name).await.expect("a name");
            assert!(name.starts_with(b"kubernetes.test"));
            let granted = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            tcp.write_all(&granted).await.expect("written");
            let mut onward = TcpStream::connect(onward).await.expect("connected");
            let _ = tokio::io::copy_bidirectional(&mut tcp, &mut onward).await;
        }
    })
    .await;
    let settings = json!({
        "server": format!("http://{OTHER_NAME}:{port}"),
        "proxy-url": format!("socks5://{proxy}"),
    });
    let client = server.client_as(settings, json!({})).await;
    let response = client.request(Identity::Kubefan, get("/api")).await;
    let seen = text(response.expect("an answer")).await;
    assert!(seen.ends_with("version=HTTP/1.1"), "{seen}");
}

/// A body that never ends; `sent` counts its chunks.
fn endless(sent: Arc<AtomicUsize>) -> Body {
    let chunks = stream::repeat_with(move || {
        sent.fetch_add(1, Ordering::SeqCst);
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[b'x'; CHUNK])))
    });
    boxed(StreamBody::new(chunks))
}

#[tokio::test]
async fn a_stalled_download_buffers_little_and_does_not_stall_others() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let server = TestServer::tls(move |request| {
        let body = match request.uri().path() {
            "/endless" => endless(Arc::clone(&counted)),
            _ => full(vec![b'y'; 16 << 20]),
        };
        async move { Response::new(body) }
    })
    .await;
    let client = server.client().await;
    let stalled: Vec<_> =
        join_all((0..20).map(|_| client.request(Identity::Kubefan, get("/endless")))).await;
    let other = client.request(Identity::Kubefan, get("/other")).await;
    let other = other.expect("an answer").into_body().collect();
    assert_eq!(
        in_time(other).await.expect("all of it").to_bytes().len(),
        16 << 20
    );
    let buffered = sent.load(Ordering::SeqCst) * CHUNK / stalled.len();
    assert!(
        buffered <= 3 << 20,
        "{buffered} bytes of each download were sent"
    );
}

/// A server that answers the first request of each connection, and closes it on the second request.
/// Returns its URL and the count of requests.
async fn closing_server() -> (String, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let address = accept_each(move |tcp| {
        let counted = Arc::clone(&counted);
        async move {
            let mut tcp = BufReader::new(tcp);
            for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", ""] {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    tcp.read_line(&mut line).await.expect("a line");
                }
                counted.fetch_add(1, Ordering::SeqCst);
                tcp.write_all(answer.as_bytes()).await.expect("written");
            }
        }
    })
    .await;
    (format!("http://{address}"), requests)
}

async fn client_for(url: &str) -> Client {
    let kubeconfig = json!({
        "current-context": "test",
        "contexts": [{ "name": "test", "context": { "cluster": "c" } }],
        "clusters": [{ "name": "c", "cluster": { "server": url } }],
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), kubeconfig.to_string()).expect("a kubeconfig");
    let config = ClientConfig {
        kubeconfig: Some(file.path().to_owned()),
        context: None,
        ..ClientConfig::default()
    };
    Client::connect(config).await.expect("a client")
}

#[tokio::test]
async fn only_reads_are_repeated_after_a_kept_connection_broke() {
    let (url, requests) = closing_server().await;
    let client = client_for(&url).await;
    for _ in 0..2 {
        let response = client.request(Identity::Kubefan, get("/api")).await;
        assert_eq!(text(response.expect("an answer")).await, "ok");
    }
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    let post = Request::post("/api").body(empty()).expect("a request");
    let posted = client.request(Identity::Kubefan, post).await;
    assert!(matches!(posted, Err(Error::InDoubt(_))), "{posted:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn an_upgrade_is_never_sent_twice() {
    let (url, requests) = closing_server().await;
    let client = client_for(&url).await;
    let response = client.request(Identity::Caller, get("/api")).await;
    assert_eq!(text(response.expect("an answer")).await, "ok");
    let mut exec = get("/api/v1/namespaces/n/pods/p/exec?command=date");
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket")] {
        let value = http::HeaderValue::from_static(value);
        exec.headers_mut().insert(name, value);
    }
    let outcome = client.request_http1(Identity::Caller, exec).await;
    assert!(matches!(outcome, Err(Error::Transport(_))), "{outcome:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_finishes_its_handshake_does_not_block_the_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = client_for(&format!("https://{address}")).await;
    let started = tokio::time::Instant::now();
    let requests = (0..50).map(|_| client.request(Identity::Kubefan, get("/api")));
    for response in join_all(requests).await {
        assert!(
            matches!(response, Err(Error::Unreachable(_))),
            "{response:?}"
        );
    }
    assert!(started.elapsed() <= CONNECT_TIMEOUT + Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_closed_after_its_handshake_is_reported_at_once() {
    let client = in_memory_tls(|_, io| async move { drop(io) });
    let started = tokio::time::Instant::now();
    for pool in [Pool::Http2, Pool::OwnHttp2] {
        let closed = client.send(Identity::Kubefan, pool, get("/api")).await;
        assert!(matches!(closed, Err(Error::Unreachable(_))), "{closed:?}");
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(client.is_responding());
}

#[tokio::test]
async fn a_refused_connection_is_reported_as_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    for scheme in ["http", "https"] {
        let client = client_for(&format!("{scheme}://{address}")).await;
        let failed = client.request(Identity::Kubefan, get("/api")).await;
        let failed = failed.expect_err("nothing listens");
        assert!(failed.is_connection_refused(), "{failed:?}");
    }
}

#[tokio::test]
async fn failures_become_answers_with_their_status() {
    let server = TestServer::plain(|_| async {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "slow down", "reason": "TooManyRequests", "code": 429,
        });
        let response = Response::builder().status(429).header("retry-after", "7");
        let response = response.header("content-type", "application/json");
        response.body(full(status.to_string())).expect("a response")
    })
    .await;
    let client = server.client().await;
    let failed = client.get_json::<serde_json::Value>("/version").await;
    let failed = failed.expect_err("429");
    assert!(failed.is_too_many_requests());
    assert_eq!(failed.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(failed.to_string(), "the API server answered 429: slow down");
}

/// A kubeconfig for a user with a token, and a client that reads it.
struct Rotating {
    file: tempfile::NamedTempFile,
    url: String,
}

impl Rotating {
    fn new(url: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let url = url.to_owned();
        let rotating = Self { file, url };
        rotating.write("old");
        rotating
    }

    fn write(&self, token: &str) {
        self.write_user(&json!({ "token": token }));
    }

    fn write_user(&self, user: &serde_json::Value) {
        let kubeconfig = json!({
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "c", "user": "u" } }],
            "clusters": [{ "name": "c", "cluster": { "server": self.url } }],
            "users": [{ "name": "u", "user": user }],
        });
        std::fs::write(self.file.path(), kubeconfig.to_string()).expect("a kubeconfig");
    }

    async fn client(&self) -> Client {
        let config = ClientConfig {
            kubeconfig: Some(self.file.path().to_owned()),
            ..ClientConfig::default()
        };
        Client::connect(config).await.expect("a client")
    }
}

/// Answers 401 unless the token is `new`.
async fn accept_new_token(request: Request<hyper::body::Incoming>) -> Response<Body> {
    let authorization = request.headers().get("authorization");
    let is_new = authorization.is_some_and(|value| value == "Bearer new");
    let response = Response::builder().status(if is_new { 200 } else { 401 });
    response.body(full("answer")).expect("a response")
}

#[tokio::test]
async fn a_read_with_refused_credentials_is_sent_again_with_reloaded_ones() {
    let server = TestServer::plain(accept_new_token).await;
    let rotating = Rotating::new(&server.url);
    let client = rotating.client().await;
    rotating.write("new");
    let responses = (0..5).map(|_| client.request(Identity::Kubefan, get("/api")));
    for response in join_all(responses).await {
        assert_eq!(response.expect("an answer").status(), 200);
    }
    assert_eq!(client.refused_credentials(), 0);
}

#[tokio::test]
async fn a_reload_of_refused_credentials_outlasts_the_request_that_began_it() {
    let server = TestServer::plain(accept_new_token).await;
    let rotating = Rotating::new(&server.url);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let pipes = [path("started"), path("continue")];
    let made = std::process::Command::new("mkfifo").args(&pipes).status();
    assert!(made.expect("mkfifo").success());
    // The first run after the file `renew` was made waits for the test.
    let script = "cd $FOLDER; token=old; test -e renew && token=new && mkdir once 2>/dev/null \
                  && echo > started && read line < continue; \
                  echo $CREDENTIAL | sed s/TOKEN/$token/";
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": { "token": "TOKEN" },
    });
    rotating.write_user(&json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": "/bin/sh",
        "args": ["-c", script],
        "env": [
            { "name": "FOLDER", "value": folder.path().to_str().expect("text") },
            { "name": "CREDENTIAL", "value": credential.to_string() },
        ],
    }}));
    let client = rotating.client().await;
    std::fs::write(path("renew"), "").expect("written");
    let [started, go_on] = pipes;
    // Opening a pipe waits for the plugin.
    let started = tokio::task::spawn_blocking(|| std::fs::read(started).expect("read"));
    tokio::select! {
        response = client.request(Identity::Kubefan, get("/api")) => panic!("{response:?}"),
        started = in_time(started) => assert_eq!(started.expect("no panic"), b"\n"),
    }
    let go_on = tokio::task::spawn_blocking(|| std::fs::write(go_on, "\n").expect("written"));
    let response = in_time(client.request(Identity::Kubefan, get("/api"))).await;
    assert_eq!(response.expect("an answer").status(), 200);
    go_on.await.expect("no panic");
}

#[tokio::test]
async fn a_write_with_refused_credentials_reloads_them_and_is_not_sent_again() {
    let server = TestServer::plain(accept_new_token).await;
    let rotating = Rotating::new(&server.url);
    let client = rotating.client().await;
    rotating.write("new");
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let post = Request::post("/api").body(full("{}")).expect("a request");
        let response = client.request(Identity::Kubefan, post).await;
        statuses.push(response.expect("an answer").status().as_u16());
    }
    assert_eq!(statuses, [401, 200]);
}

#[tokio::test]
async fn credentials_are_not_reloaded_for_each_refusal_nor_for_those_of_backends_and_callers() {
    let server = TestServer::plain(accept_new_token).await;
    let rotating = Rotating::new(&server.url);
    let client = rotating.client().await;
    let status = async |identity, path| {
        let response = client.request(identity, get(path)).await;
        response.expect("an answer").status().as_u16()
    };
    rotating.write("new");
    let proxied = "/api/v1/namespaces/n/services/s/proxy/login";
    assert_eq!(status(Identity::Kubefan, proxied).await, 401);
    assert_eq!(status(Identity::Caller, "/api").await, 401);
    rotating.write("old");
    assert_eq!(status(Identity::Kubefan, "/api").await, 401);
    rotating.write("new");
    assert_eq!(status(Identity::Kubefan, "/api").await, 401);
    assert_eq!(client.refused_credentials(), 2);
}

#[test]
fn only_the_proxy_of_a_pod_service_or_node_is_answered_by_a_backend() {
    for (path, expected) in [
        ("/api/v1/namespaces/n/pods/p/proxy", true),
        ("/api/v1/namespaces/n/services/https:s:1/proxy/a/b", true),
        ("/api/v1/nodes/n/proxy/metrics", true),
        ("/api/v1/namespaces/proxy/pods", false),
        ("/api/v1/namespaces/n/pods/proxy", false),
        ("/api", false),
    ] {
        assert_eq!(super::is_answered_by_backend(path), expected, "{path}");
    }
}

#[tokio::test]
async fn a_path_cannot_leave_the_prefix_of_the_servers_url() {
    let server = TestServer::plain(async |request: Request<hyper::body::Incoming>| {
        Response::new(full(request.uri().path().to_owned()))
    })
    .await;
    let url = format!("{}/k8s/clusters/c1", server.url);
    let client = server.client_as(json!({ "server": url }), json!({})).await;
    for (path, expected) in [
        (
            "/api/v1/pods/a..b",
            Some("/k8s/clusters/c1/api/v1/pods/a..b"),
        ),
        ("/api/.well-known", Some("/k8s/clusters/c1/api/.well-known")),
        (
            "/api/%252e%252e/x",
            Some("/k8s/clusters/c1/api/%252e%252e/x"),
        ),
        ("/../../v3/x", None),
        ("/api/v1/pods/..", None),
        ("/./api", None),
        ("/%2e%2E/c2/api", None),
        ("/.%2e/c2/api", None),
        ("/api/a%2F..%2F..%2Fc2", None),
    ] {
        for identity in [Identity::Kubefan, Identity::Caller] {
            match (client.request(identity, get(path)).await, expected) {
                (Ok(answer), Some(expected)) => assert_eq!(text(answer).await, expected),
                (Err(Error::Request(_)), None) => {}
                (other, _) => panic!("{path}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn the_secrets_of_an_exec_plugin_are_in_no_error() {
    let server = TestServer::plain(async |_| Response::new(full("answer"))).await;
    let folder = tempfile::tempdir().expect("a folder");
    // The credential has expired, so the plugin runs again for the first request, and fails.
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": { "token": "t", "expirationTimestamp": "2000-01-01T00:00:00Z" },
    });
    let script = "test -e $FLAG && { echo $SECRET; echo $SECRET >&2; exit 3; }; \
                  echo $CREDENTIAL";
    let flag = folder.path().join("flag");
    let user = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": "/bin/sh",
        "args": ["-c", script, "in-the-arguments"],
        "env": [
            { "name": "FLAG", "value": flag.to_str().expect("text") },
            { "name": "CREDENTIAL", "value": credential.to_string() },
            { "name": "SECRET", "value": "from-the-plugin" },
        ],
    }});
    let client = server.client_as(json!({}), user).await;
    std::fs::write(&flag, "").expect("written");
    let failed = client.request(Identity::Kubefan, get("/api")).await;
    let error = failed.expect_err("the plugin fails");
    assert!(matches!(error, Error::Credentials(_)), "{error:?}");
    let text = format!("{error} {error:?}");
    for secret in ["from-the-plugin", "in-the-arguments", "SECRET"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(text.contains("exit status: 3"), "{text}");
}
