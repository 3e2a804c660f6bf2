//! The limits of one user at a time, on all its connections. Other users are not affected.

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::identities::grant;
use super::observed::{LIMIT, Observed, websocket};
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::Format;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;

/// Two tokens of one user, and one token of another user.
const TOKENS: &str = "one-token,one,1\nagain-token,one,1\nother-token,other,2\n";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUESTIONS: &str = "kubefan_freshness_questions_total";
const REJECTED: &str = "kubefan_user_limit_rejected_total";

async fn allow(server: &ApiServer) {
    for user in ["one", "other"] {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
        let subject = json!({"kind": "User", "name": user});
        grant(&server.client(), None, user, &rules, &subject).await;
    }
}

/// Asserts that `answer` is the 429 of kube-apiserver.
fn is_too_many(answer: &Answer) {
    assert_eq!(answer.status, 429, "{answer}");
    assert_eq!(
        answer.body,
        "Too many requests, please try again later.\n".as_bytes()
    );
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(matches!(answer.retry_seconds(), Some(1..=5)), "{answer}");
}

/// Opens a connection, and sends a write without its body.
async fn half_a_write(kubefan: &Kubefan) -> TcpStream {
    let address = kubefan.url().trim_start_matches("http://");
    let mut write = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer one-token\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n"
    );
    write.write_all(head.as_bytes()).await.expect("room");
    write
}

async fn rejected(kubefan: &Kubefan, limit: &str) -> f64 {
    metric(&kubefan.admin(), REJECTED, &[("limit", limit)]).await
}

/// Waits until `client` gets an answer with this status.
async fn answers(client: &Client, path: &str, status: u16) -> Answer {
    eventually(path, LIMIT, async || client.get(path).await.is(status)).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_watches_and_streams_of_a_user_are_limited_on_all_its_connections() {
    let server = private_with_tokens(TOKENS, &[]).await;
    allow(&server).await;
    let flags = [
        "--auth",
        "caller",
        "--max-watches-per-user",
        "2",
        "--max-streams-per-user",
        "3",
    ];
    let kubefan = Kubefan::start(&server, &flags).await;
    let client = |token: &str| kubefan.client().as_token(token);
    let (one, again, other) = (
        client("one-token"),
        client("again-token"),
        client("other-token"),
    );
    let cached = format!("{MAPS}?watch=1&resourceVersion=0");
    // The API server answers deprecated paths.
    let forwarded = "/api/v1/watch/namespaces/default/configmaps?resourceVersion=0";
    let first = Observed::open(&one, &cached, 0).await;
    // An upgraded connection counts until it is closed.
    let second = websocket(&again, forwarded).await;
    for client in [&one, &again] {
        for path in [&cached, forwarded] {
            is_too_many(&client.get(path).await);
        }
    }
    assert_eq!(rejected(&kubefan, "watches").await, 4.0);
    let others = [
        Observed::open(&other, &cached, 0).await,
        Observed::open(&other, forwarded, 0).await,
    ];
    // A read is no watch, and its place is free again after the answer.
    for _ in 0..5 {
        one.get(&format!("{MAPS}?resourceVersion=0")).await.ok();
    }
    // A write with a body that never arrives is the third stream.
    let write = eventually("the third stream", LIMIT, async || {
        let write = half_a_write(&kubefan).await;
        let refused = again.get(MAPS).await.is(429)?;
        is_too_many(&refused);
        // The place of the last read may not have been free yet. Then the write was refused, too.
        let mut answer = [0; 100];
        match write.try_read(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(write),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(rejected(&kubefan, "streams").await >= 1.0);
    other.get(MAPS).await.ok();
    drop(write);
    answers(&again, MAPS, 200).await;
    // Each watch that ends makes room for one.
    drop(first);
    let third = eventually("room for a watch", LIMIT, async || {
        again.watch(&cached, Format::Json).await
    });
    let third = third.await;
    is_too_many(&one.get(&cached).await);
    drop(second);
    let fourth = eventually("room for a watch", LIMIT, async || {
        one.watch(forwarded, Format::Json).await
    });
    let fourth = fourth.await;
    assert!(others.iter().all(Observed::is_open));
    drop((third, fourth));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn reads_of_a_user_wait_for_proofs_of_a_limited_number_of_scopes() {
    let server = private_with_tokens(TOKENS, &[]).await;
    allow(&server).await;
    // Remembered tokens and decisions must outlast the time when the API server does not answer.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let ttl = "authentication:\n  tokenTtl: 10m\nauthorization:\n  allowedTtl: 10m\n";
    fs::write(&file, ttl).expect("room");
    let file = file.path().to_str().expect("a path").to_owned();
    let flags = [
        "--auth",
        "caller",
        "--config",
        &file,
        "--max-proof-scopes-per-user",
        "1",
    ];
    let kubefan = Kubefan::start(&server, &flags).await;
    let client = |token: &str| kubefan.client().as_token(token);
    let (one, again, other) = (
        client("one-token"),
        client("again-token"),
        client("other-token"),
    );
    let list = |label: &str| format!("{MAPS}?labelSelector=a%3D{label}");
    for client in [&one, &again, &other] {
        client.get(&list("x")).await.ok();
    }
    let asked = async || metric(&kubefan.admin(), QUESTIONS, &[]).await;
    let before = asked().await;
    server.suspend();
    let (path, further) = (list("x"), list("y"));
    let waiting = tokio::spawn({
        let (one, path) = (one.clone(), path.clone());
        async move { one.get(&path).await }
    });
    eventually("the question about the first scope", LIMIT, async || {
        let asked = asked().await;
        match asked > before {
            true => Ok(()),
            false => Err("not yet"),
        }
    })
    .await;
    let refused = within("the refusal", LIMIT, again.get(&further)).await;
    assert!(!waiting.is_finished(), "refused while a proof was open");
    assert_eq!(refused.status, 429, "{refused}");
    assert_eq!(refused.json()["reason"], "TooManyRequests", "{refused}");
    assert!(matches!(refused.retry_seconds(), Some(1..=5)), "{refused}");
    // A further read of the first scope waits, and so does another user's read of the second scope.
    let short = Duration::from_millis(200);
    assert!(timeout(short, again.get(&path)).await.is_err());
    assert!(timeout(short, other.get(&further)).await.is_err());
    assert_eq!(rejected(&kubefan, "proof_scopes").await, 1.0);
    server.resume();
    let first = within("the first read", LIMIT, waiting).await;
    let first = first.expect("no panic");
    // The first read is forwarded, or refused with 429, if the API server was suspended for
    // longer than a proof may take.
    assert!([200, 429].contains(&first.status.as_u16()), "{first}");
    for client in [&one, &other] {
        answers(client, &further, 200).await;
    }
}
