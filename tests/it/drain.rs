//! SIGTERM: what clients see until kubefan has exited.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::poll::{eventually, within};
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sim::Sim;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ELSEWHERE: &str = "/api/v1/namespaces/kube-system/configmaps";
const LIMIT: Duration = Duration::from_secs(20);

/// Creates an object at the simulator, and returns its version.
async fn create(direct: &Client, path: &str, name: &str) -> u64 {
    let object = json!({"metadata": {"name": name}});
    let made = direct.create(path, &object).await.ok().json();
    let version = made["metadata"]["resourceVersion"].as_str();
    version
        .and_then(|version| version.parse().ok())
        .expect("a version")
}

/// Returns the path of a LIST that is answered when the cache has `version`.
fn list_at(version: u64) -> String {
    format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan")
}

/// Returns the version of the bookmark that ends a watch.
async fn last_bookmark(mut watch: WatchReader) -> u64 {
    let mut last = None;
    while let Some(event) = watch.next().await.expect("a clean end") {
        last = Some(event);
    }
    match last {
        Some(Event::Bookmark {
            resource_version, ..
        }) => resource_version.parse().expect("a number"),
        other => panic!("the last event is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_served_until_load_balancers_know_and_ends_in_order() {
    let sim = Sim::start(&[]).await;
    let direct = sim.client();
    let first = create(&direct, MAPS, "first").await;
    let flags = ["-r", "configmaps", "--shutdown-delay-duration", "1500ms"];
    let mut kubefan = Kubefan::start_with(&sim.kubeconfig(), &flags).await;
    let clients = [
        kubefan.client(),
        Client::http2(kubefan.url(), Connector::plain()),
    ];
    let watch = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={first}");
    let mut watches = Vec::new();
    for client in &clients {
        let opened = client.watch(&watch, Format::Json).await;
        watches.push(opened.expect("a watch"));
    }
    // The watches get no event of this object.
    let newest = create(&direct, ELSEWHERE, "second").await;
    clients[0].get(&list_at(newest)).await.ok();

    let begun = Instant::now();
    kubefan.terminate();
    eventually("not ready", LIMIT, async || {
        kubefan.admin().get("/readyz").await.is(503)
    })
    .await;
    // Load balancers may not know yet.
    let late = Client::new(kubefan.url(), Connector::plain());
    late.get(&list_at(newest)).await.ok();
    let waiting = clients.clone().map(|client| {
        let list = list_at(newest + 1);
        tokio::spawn(async move { client.get(&list).await })
    });
    let address = kubefan.url().trim_start_matches("http://").to_owned();
    eventually(
        "a closed listener",
        LIMIT,
        async || match TcpStream::connect(&address).await {
            Ok(_) => Err("a new connection"),
            Err(_) => Ok(()),
        },
    )
    .await;
    assert!(begun.elapsed() >= Duration::from_millis(1500));
    // Before the third object: a watch that ends while an event waits has no bookmark.
    for watch in watches {
        let version = within("the end", LIMIT, last_bookmark(watch)).await;
        assert!(version >= newest, "{version} is before {newest}");
    }
    create(&direct, MAPS, "third").await;
    for (waiting, is_http1) in waiting.into_iter().zip([true, false]) {
        let answer = within("a read", LIMIT, waiting).await.expect("no panic");
        assert_eq!(answer.status, 200, "{answer}");
        let close = answer.header("connection") == Some("close");
        assert_eq!(close, is_http1, "{:?}", answer.headers);
    }
    assert_eq!(kubefan.wait_for_exit().code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}
