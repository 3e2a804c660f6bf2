//! Connections of load balancers, which begin with a PROXY header.

use std::io;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Server, get, http1_on, http2_on, soon, text_of, tls_server};
use crate::net::tls::files::crypto_provider;
use crate::net::{Acceptor, Config, ProxyNetworks, TlsFiles};

const CLIENT: &str = "203.0.113.7:4000";
const V1: &[u8] = b"PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\x0a\0\0\x01\x0f\xa0\x01\xbb";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// A configuration for load balancers in `network`.
fn behind(network: &str) -> Config {
    let network = network.parse().expect("a network");
    Config {
        proxies: ProxyNetworks(vec![network]),
        ..Config::default()
    }
}

async fn connect(server: &Server, header: &[u8]) -> (TcpStream, SocketAddr) {
    let mut stream = server.connect().await;
    let address = stream.local_addr().unwrap();
    stream.write_all(header).await.unwrap();
    (stream, address)
}

#[tokio::test]
async fn the_address_in_the_header_is_the_peers() {
    let server = Server::start(behind("127.0.0.0/8"), None).await;
    for (header, client) in [
        (V1, Some(CLIENT)),
        (V2, Some(CLIENT)),
        // The load balancer itself, and a client that it does not know.
        (LOCAL, None),
        (b"PROXY UNKNOWN\r\n", None),
    ] {
        let (stream, address) = connect(&server, header).await;
        let expected = client.map_or_else(|| address.to_string(), str::to_owned);
        let mut http1 = http1_on(stream).await;
        let response = soon(http1.send_request(get("/peer"))).await.unwrap();
        let found = text_of(response).await;
        assert_eq!(found, format!("HTTP/1.1 {expected} false"));

        let (stream, address) = connect(&server, header).await;
        let expected = client.map_or_else(|| address.to_string(), str::to_owned);
        let mut http2 = http2_on(stream).await;
        let response = soon(http2.send_request(get("/peer"))).await.unwrap();
        let found = text_of(response).await;
        assert_eq!(found, format!("HTTP/2.0 {expected} false"));
    }
}

#[tokio::test]
async fn tls_follows_the_header() {
    let (_, directory, roots) = tls_server().await;
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let acceptor = Acceptor::from_files(&files).unwrap();
    let server = Server::start(behind("127.0.0.0/8"), Some(acceptor)).await;
    let config = ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    for header in [V1, V2] {
        let (stream, _) = connect(&server, header).await;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = soon(connector.connect(name, stream)).await.unwrap();
        let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let response = soon(client.send_request(get("/peer"))).await.unwrap();
        assert_eq!(text_of(response).await, format!("HTTP/1.1 {CLIENT} true"));
    }
}

#[tokio::test]
async fn a_connection_without_a_complete_header_is_closed_and_counted() {
    let config = Config {
        handshake_timeout: Duration::from_millis(50),
        ..behind("127.0.0.0/8")
    };
    let server = Server::start(config, None).await;
    let sent: [&[u8]; 5] = [
        b"GET /peer HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PROXY TCP4 nowhere 10.0.0.1 4000 443\r\n",
        &[b'P'; 200],
        // The rest never arrives.
        &V1[..20],
        b"",
    ];
    for (number, sent) in sent.into_iter().enumerate() {
        let (mut stream, _) = connect(&server, sent).await;
        let mut answer = Vec::new();
        // The close is a reset if the server has not read everything.
        let _ = soon(stream.read_to_end(&mut answer)).await;
        assert_eq!(answer, b"", "{}", String::from_utf8_lossy(sent));
        let count = number + 1;
        let stage = r#"{listener="test",stage="proxy"}"#;
        let line = format!("kubefan_connection_failures_total{stage} {count}");
        soon(async {
            while !server.has_metric(&line) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_log_names_the_client_of_a_broken_connection() {
    let log = Arc::<Mutex<Vec<u8>>>::default();
    let written = Arc::clone(&log);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || Log(Arc::clone(&written)))
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start(behind("127.0.0.0/8"), None).await;
    let (mut stream, _) = connect(&server, V1).await;
    stream.write_all(b"no HTTP\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    let line = soon(async {
        loop {
            let log = String::from_utf8_lossy(&log.lock()).into_owned();
            if let Some(line) = log.lines().find(|line| line.contains("connection ended")) {
                return line.to_owned();
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(line.contains(CLIENT), "{line}");
}

/// Writes to memory.
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn only_load_balancers_name_their_clients() {
    let server = Server::start(behind("10.0.0.0/8"), None).await;
    let stream = server.connect().await;
    let address = stream.local_addr().unwrap();
    let mut client = http1_on(stream).await;
    let response = soon(client.send_request(get("/peer"))).await.unwrap();
    assert_eq!(text_of(response).await, format!("HTTP/1.1 {address} false"));
    // From elsewhere the header is a malformed request.
    let (stream, _) = connect(&server, V1).await;
    let mut client = http1_on(stream).await;
    match soon(client.send_request(get("/peer"))).await {
        Ok(response) => assert_eq!(response.status(), StatusCode::BAD_REQUEST),
        Err(error) => assert!(error.is_canceled() || error.is_parse(), "{error}"),
    }
}
