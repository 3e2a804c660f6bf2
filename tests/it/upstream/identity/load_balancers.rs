//! Clients behind a load balancer that passes their bytes on, and names them in PROXY headers.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::observed::LIMIT;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::private_with_tokens;
use crate::support::programs::kubefan::Kubefan;

/// The connections of an attacker, and the wrong tokens on each.
const CONNECTIONS: usize = 8;
const TOKENS: usize = 500;
/// The longest time until the answers on a connection: the API server checks a thousand tokens.
const ANSWERED: Duration = Duration::from_secs(120);
const PODS: &str = "/api/v1/namespaces/default/pods?resourceVersion=0";

/// Sends the GETs of `path` with these tokens on one connection of a client at `source`; returns
/// their statuses.
async fn gets(kubefan: &Kubefan, source: &str, path: &str, tokens: &[String]) -> Vec<u16> {
    let address = kubefan.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let header = format!("PROXY TCP4 {source} 10.0.0.1 4000 443\r\n");
    stream.write_all(header.as_bytes()).await.expect("room");
    let mut requests = String::new();
    for (number, token) in tokens.iter().enumerate() {
        let connection = match number + 1 == tokens.len() {
            true => "close",
            false => "keep-alive",
        };
        requests.push_str(&format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             connection: {connection}\r\n\r\n"
        ));
    }
    let (mut read, mut write) = stream.split();
    let mut answers = Vec::new();
    let send = async { write.write_all(requests.as_bytes()).await.expect("room") };
    let receive = read.read_to_end(&mut answers);
    let (_, received) = within("the answers", ANSWERED, async {
        tokio::join!(send, receive)
    })
    .await;
    received.expect("answers");
    let text = String::from_utf8_lossy(&answers);
    let statuses = text.match_indices("HTTP/1.1 ");
    let statuses = statuses.map(|(at, before)| &text[at + before.len()..][..3]);
    statuses
        .map(|status| status.parse().expect("a status"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn clients_behind_a_load_balancer_are_audited_and_limited_by_their_own_addresses() {
    let audit = tempfile::NamedTempFile::new().expect("a file");
    let policy = tempfile::NamedTempFile::new().expect("a file");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    fs::write(&policy, text).expect("room");
    let flags = [
        format!("--audit-log-path={}", audit.path().display()),
        format!("--audit-policy-file={}", policy.path().display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = private_with_tokens("", &flags).await;
    let ours = tempfile::NamedTempFile::new().expect("a file");
    let path = ours.path().to_str().expect("a path").to_owned();
    let flags = [
        "--auth",
        "caller",
        "-r",
        "pods",
        "--proxy-protocol-from",
        "127.0.0.0/8",
        "--audit-log-path",
        &path,
    ];
    let kubefan = Kubefan::start(&server, &flags).await;
    let admin = ["admin-token".to_owned()];
    let (attacker, honest) = ("203.0.113.7", "203.0.113.8");
    assert_eq!(gets(&kubefan, honest, PODS, &admin).await, [200]);
    // Forwarded, with the address in X-Forwarded-For.
    let nowhere = "/api/v1/namespaces/default/pods/nowhere/log";
    assert_eq!(gets(&kubefan, honest, nowhere, &admin).await, [404]);
    for (file, what, path) in [
        (ours.path(), "kubefan", PODS),
        (audit.path(), "the API server", nowhere),
    ] {
        eventually(what, LIMIT, async || {
            let log = fs::read_to_string(file).expect("a log");
            let events = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut events = events.filter(|event| event["requestURI"] == path);
            let event = events.next().ok_or("no event")?;
            match event["sourceIPs"][0] == honest {
                true => Ok(()),
                false => Err("other addresses"),
            }
        })
        .await;
    }
    // Each client is limited for itself. A wrong token may count more than once.
    let wrong = |connection: usize| -> Vec<String> {
        let tokens = (0..TOKENS).map(|number| format!("wrong-{connection}-{number}"));
        tokens.collect()
    };
    let attacks = (0..CONNECTIONS).map(|connection| {
        let (kubefan, tokens) = (&kubefan, wrong(connection));
        async move { gets(kubefan, attacker, PODS, &tokens).await }
    });
    let is_over = AtomicBool::new(false);
    let attack = async {
        let statuses = join_all(attacks).await.concat();
        is_over.store(true, Ordering::Relaxed);
        statuses
    };
    // Beside it, from both addresses: tokens that kubefan does not know, and one that it knows.
    let beside = async {
        let mut rounds = 0;
        while !is_over.load(Ordering::Relaxed) {
            let unknown = [format!("unknown-{rounds}")];
            assert_eq!(gets(&kubefan, honest, PODS, &unknown).await, [401]);
            assert_eq!(gets(&kubefan, honest, PODS, &admin).await, [200]);
            assert_eq!(gets(&kubefan, attacker, PODS, &admin).await, [200]);
            rounds += 1;
            sleep(Duration::from_millis(50)).await;
        }
        rounds
    };
    let began = Instant::now();
    let (statuses, rounds) = tokio::join!(attack, beside);
    let seconds = began.elapsed().as_secs_f64();
    let count = |of: u16| statuses.iter().filter(|status| **status == of).count();
    let (refused, limited) = (count(401), count(429));
    println!("{refused} wrong tokens got 401 and {limited} got 429 in {seconds:.1} s");
    assert_eq!(refused + limited, CONNECTIONS * TOKENS);
    // A thousand may fail at once, and a hundred more each second. Each
    // connection has sent one more.
    let most = 1_000.0 + 100.0 * seconds + CONNECTIONS as f64;
    assert!(refused as f64 <= most, "{refused} in {seconds} s");
    assert!(refused > 0 && limited > 0);
    assert!(rounds > 5, "{rounds}");
}
