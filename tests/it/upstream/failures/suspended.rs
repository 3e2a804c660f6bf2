//! A suspended API server (SIGSTOP): it closes no connection and answers nothing.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::json;
use tokio::time::Instant;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::frames::{Format, decode_list};
use crate::support::clients::watcher::{Start, Watcher};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubefan::Kubefan;

/// 3 s of silence, 5 s for the ping, and some time for a busy machine.
const DETECTION: Duration = Duration::from_secs(12);
/// An answer without a wait for the API server, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);
const RECOVERY: Duration = Duration::from_secs(60);

/// Sends a GET, a LIST of the most recent state, a discovery request and a write concurrently.
/// Returns the answers, and the time of the slowest request.
async fn needs_the_api_server(client: &Client, path: &str) -> ([Answer; 4], Duration) {
    let started = Instant::now();
    let headers = HeaderMap::new();
    let body = Bytes::from(json!({ "metadata": { "name": "new" } }).to_string());
    let object = format!("{path}/object");
    let (get, list, discovery, write) = tokio::join!(
        client.get(&object),
        client.get(path),
        client.get("/apis"),
        client.try_send(Method::POST, path, &headers, body),
    );
    let write = write.expect("an answer to the write");
    ([get, list, discovery, write], started.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_suspended_api_server_delays_no_client_for_long_and_cuts_no_watch() {
    let server = private().await;
    let flags = ["--resource", "configmaps", "--max-staleness", "6s"];
    let kubefan = Kubefan::start(&server, &flags).await;
    let (client, direct) = (kubefan.client(), server.client());
    let namespace = server.namespace("suspended").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({ "metadata": { "name": "object" } });
    direct.create(&path, &object).await.ok();
    let cached = format!("{path}?resourceVersion=0");
    let watcher = Watcher::start(&client, &path, "", Format::Json, Start::Zero);
    watcher.synced().await;
    client.get(&path).await.ok();

    // Longer than the limit: pings prove a watch alive that has no events.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let admin = kubefan.admin();
    admin.get("/readyz").await.ok();

    server.suspend();
    let (answers, took) = needs_the_api_server(&client, &path).await;
    println!("in flight: {took:?}");
    assert!(took < DETECTION, "{took:?}");
    for answer in &answers {
        assert!(matches!(answer.status.as_u16(), 503 | 504), "{answer}");
        assert_eq!(answer.header("retry-after"), None, "{answer}");
    }
    assert_eq!(answers[3].status, 504, "{}", answers[3]);

    let (answers, took) = needs_the_api_server(&client, &path).await;
    println!("afterwards: {took:?}");
    assert!(took < AT_ONCE, "{took:?}");
    for answer in &answers {
        assert_eq!(answer.status, 503, "{answer}");
        assert_eq!(answer.header("retry-after"), Some("1"), "{answer}");
    }
    client.get(&cached).await.ok();
    assert_eq!(watcher.counts().streams, 1, "the watch is still open");

    let ready = admin.get("/readyz?verbose").await;
    println!("{ready}");
    assert_eq!(ready.status, 503, "{ready}");
    let text = ready.to_string();
    assert!(text.contains("the API server does not respond"), "{ready}");
    let metrics = kubefan.metrics().await;
    assert!(
        metrics.contains("kubefan_upstream_responding 0"),
        "{metrics}"
    );
    assert!(
        text.contains("[-]configmaps.v1 json: its watch was last"),
        "{ready}"
    );

    server.resume();
    eventually("a LIST after the suspension", RECOVERY, async || {
        client.get(&path).await.is(200)
    })
    .await;
    direct
        .merge(&format!("{path}/object"), &json!({ "data": { "a": "b" } }))
        .await
        .ok();
    let list = decode_list(Format::Json, &direct.get(&path).await.ok().body);
    watcher
        .reaches("after the suspension", &list, RECOVERY)
        .await;
    assert_eq!((watcher.counts().streams, watcher.counts().relists), (1, 0));
    assert_eq!(watcher.fold().errors, vec![]);
    eventually("ready again", RECOVERY, async || {
        admin.get("/readyz").await.is(200)
    })
    .await;
}
