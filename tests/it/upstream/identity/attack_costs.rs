//! What attacks cost the API server, kubefan and honest clients, beside equal
//! attacks on the API server itself.
//!
//! The long form runs each attack for a minute. Run it with a release build on a machine that is
//! otherwise idle:
//!
//! ```sh
//! KUBEFAN_TEST_BINARY=target/release/kubefan \
//!     cargo test --test it attack_costs -- --ignored --nocapture --test-threads=1
//! ```

use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::identities::TOKENS;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::programs::apiserver::{ApiServer, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::process;

/// Requests that are sent at once on each connection of an attacker.
const STREAMS: usize = 900;
/// Requests without accepted credentials that the API server answers on one HTTP/2 connection.
const ANSWERED: usize = 100;
/// Files that kubefan may open for unknown callers: connections for 32 requests and 64 reviews, and
/// as many idle ones as there may be, for callers and for itself.
const FILES: usize = 32 + 64 + 2 * 32;
const LIMIT: Duration = Duration::from_secs(20);
/// How long an attacker waits for the answers of a connection.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const HONEST_READ: &str = "/api/v1/namespaces/default/configmaps";

/// What the requests of an attack carry.
const ATTACKS: [(&str, Option<&str>); 3] = [
    ("no credentials", None),
    ("another scheme", Some("Basic YWRtaW46YWRtaW4=")),
    ("a wrong token", Some("Bearer wrong-token")),
];

/// A server under attack, and an honest client of it.
struct Target {
    url: String,
    connector: Connector,
    honest: Client,
}

/// What an attack did.
#[derive(Debug)]
struct Cost {
    connections: usize,
    /// Answers that are not 429.
    answered: usize,
    /// CPU time of the API server in seconds.
    cpu: f64,
    honest_p99: Duration,
    /// Highest number of open files of kubefan.
    files: usize,
}

impl Target {
    fn new(url: &str, authority: &str) -> Self {
        let connector = Connector::tls(authority, None, &["h2"]);
        let honest = Client::http2(url, connector.clone()).as_token("admin-token");
        Self {
            url: url.to_owned(),
            connector,
            honest,
        }
    }

    /// Sends 900 requests on one connection; returns how many of the answers are not 429.
    /// Streams that get no end are given up after `patience`.
    async fn attack_once(&self, authorization: Option<&str>, patience: Duration) -> usize {
        let dialed = self.connector.dial(&self.url, ATTACKER).await;
        let stream = TokioIo::new(dialed.expect("a connection"));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let builder = builder.initial_max_send_streams(STREAMS);
        let (sender, connection) = builder.handshake(stream).await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        let requests: FuturesUnordered<_> = (0..STREAMS)
            .map(|_| {
                let mut sender = sender.clone();
                let mut request = Request::get(format!("{}/version", self.url));
                if let Some(authorization) = authorization {
                    request = request.header("authorization", authorization);
                }
                let request = request.body(Empty::<Bytes>::new()).expect("a request");
                async move {
                    let answer = sender.send_request(request).await.ok()?;
                    let status = answer.status().as_u16();
                    answer.into_body().collect().await.ok()?;
                    Some(status)
                }
            })
            .collect();
        let answered = AtomicUsize::new(0);
        let counting = requests.for_each(|status| {
            let is_answered = status.is_some_and(|status| status != 429);
            answered.fetch_add(usize::from(is_answered), Ordering::Relaxed);
            std::future::ready(())
        });
        // After it has closed the connection gracefully, a server may leave streams without an end.
        timeout(patience, counting).await.ok();
        drop(sender);
        connection.abort();
        answered.into_inner()
    }

    /// Attacks for `time`, while the honest client reads.
    async fn attack(
        &self,
        authorization: Option<&str>,
        time: Duration,
        server: &ApiServer,
        kubefan: &Kubefan,
    ) -> Cost {
        let before = process::cpu(server.pid());
        let end = Instant::now() + time;
        let attack = async {
            let (mut connections, mut answered) = (0, 0);
            while Instant::now() < end {
                answered += self.attack_once(authorization, PATIENCE).await;
                connections += 1;
            }
            (connections, answered)
        };
        let honest = async {
            let (mut waits, mut files) = (Vec::new(), 0);
            while Instant::now() < end {
                let asked = Instant::now();
                self.honest.get(HONEST_READ).await.ok();
                waits.push(asked.elapsed());
                files = files.max(process::open_files(kubefan.pid()));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            waits.sort_unstable();
            (waits[waits.len() * 99 / 100], files)
        };
        let ((connections, answered), (honest_p99, files)) = tokio::join!(attack, honest);
        Cost {
            connections,
            answered,
            cpu: process::cpu(server.pid()) - before,
            honest_p99,
            files,
        }
    }
}

/// Attacks the API server and then a kubefan, and compares. `is_long` compares the honest clients'
/// waits, too.
async fn compare(mode: &str, time: Duration, is_long: bool) {
    let server = private_with_tokens(TOKENS, &[]).await;
    let flags = ["--auth", mode, "--tls-self-signed", "-r", "configmaps"];
    let kubefan = Kubefan::start_with(&server.kubeconfig("certificate"), &flags).await;
    let authority = kubefan.authority().expect("kubefan's CA");
    let through = Target::new(kubefan.url(), &authority);
    let direct = Target::new(&server.url(), server.authority());
    for target in [&through, &direct] {
        target.honest.get(HONEST_READ).await.ok();
    }
    let idle = process::open_files(kubefan.pid());
    for (name, authorization) in ATTACKS {
        let twin = direct.attack(authorization, time, &server, &kubefan).await;
        let cost = through.attack(authorization, time, &server, &kubefan).await;
        println!("{mode}, {name}: {cost:?}, directly {twin:?}");
        let most = cost.connections * ANSWERED;
        assert!(cost.answered <= most, "{mode}, {name}: {cost:?}");
        assert!(
            cost.cpu <= 1.2 * twin.cpu + 0.2,
            "{mode}, {name}: {cost:?} {twin:?}"
        );
        // One of the files is the attacker's connection.
        assert!(cost.files <= idle + FILES + 1, "{mode}, {name}: {cost:?}");
        let noise = Duration::from_millis(25);
        let most = match is_long {
            true => 2 * twin.honest_p99.max(noise),
            // Other programs may have most of the machine.
            false => LIMIT,
        };
        assert!(cost.honest_p99 <= most, "{mode}, {name}: {cost:?} {twin:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn unknown_callers_cost_the_api_server_no_more_than_directly() {
    for mode in ["caller", "delegated"] {
        compare(mode, Duration::from_secs(2), false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and needs a release build"]
async fn unknown_callers_cost_no_more_than_directly_for_a_minute() {
    for mode in ["caller", "delegated"] {
        compare(mode, Duration::from_secs(60), true).await;
    }
}

/// A token that kubefan has reviewed, but not forwarded yet, needs no connection for each request.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_new_good_token_opens_few_connections() {
    let server = private_with_tokens(TOKENS, &[]).await;
    for mode in ["caller", "delegated"] {
        let flags = ["--auth", mode, "--tls-self-signed", "-r", "configmaps"];
        let kubefan = Kubefan::start_with(&server.kubeconfig("certificate"), &flags).await;
        let authority = kubefan.authority().expect("kubefan's CA");
        let target = Target::new(kubefan.url(), &authority);
        let before = process::open_files(kubefan.pid());
        let answered = target
            .attack_once(Some("Bearer lister-token"), 2 * LIMIT)
            .await;
        let after = process::open_files(kubefan.pid());
        assert!(answered > ANSWERED, "{mode}: {answered}");
        // The review, and HTTP/2 connections with 90 streams each.
        let most = before + 2 + STREAMS.div_ceil(90);
        assert!(after <= most, "{mode}: {after} files, {before} before");
    }
}

/// The connection of an upgraded request to the API server is a file like that of its client.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn upgraded_connections_leave_files_for_others() {
    const CONNECTIONS: usize = 64;
    let server = private_with_tokens(TOKENS, &[]).await;
    let most = CONNECTIONS.to_string();
    let flags = [
        "--auth",
        "caller",
        "--tls-self-signed",
        "--never-cache",
        "pods",
        "--max-connections",
        &most,
    ];
    let kubefan = Kubefan::start_with(&server.kubeconfig("certificate"), &flags).await;
    let authority = fs::read_to_string(kubefan.file(".local/state/kubefan/tls/ca.crt"));
    let authority = authority.expect("kubefan's CA");
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let before = process::open_files(kubefan.pid());
    // The API server needs the origin.
    let request = "GET /api/v1/namespaces/default/pods?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\
                   Authorization: Bearer admin-token\r\nOrigin: https://127.0.0.1\r\n\
                   Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut open = Vec::new();
    let deadline = Instant::now() + LIMIT;
    for _ in 0..CONNECTIONS {
        let dialed = timeout_at(deadline, connector.dial(kubefan.url(), ATTACKER)).await;
        let mut stream = dialed
            .expect("a slot for a connection")
            .expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("room");
        let mut status = [0; 12];
        let read = timeout_at(deadline, stream.read_exact(&mut status)).await;
        read.expect("an answer in time").expect("an answer");
        match &status {
            b"HTTP/1.1 101" => open.push(stream),
            b"HTTP/1.1 429" => break,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    // Each has two of the three quarters that are not reserved.
    let found = open.len();
    assert!((20..=CONNECTIONS * 3 / 8).contains(&found), "{found}");
    let files = process::open_files(kubefan.pid());
    assert!(
        files <= before + CONNECTIONS + FILES,
        "{files}, {before} before"
    );
    let honest = Client::new(kubefan.url(), connector.clone()).as_token("admin-token");
    let answer = timeout_at(deadline, honest.get(HONEST_READ)).await;
    answer.expect("an answer in time").ok();
}
