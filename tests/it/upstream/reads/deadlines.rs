//! Reads of a future resourceVersion, and reads with a short deadline.

use std::time::Duration;

use futures::future::join3;
use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format};
use crate::support::poll::within;
use crate::support::programs::apiserver::{private, shared};
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);

fn number(version: &str) -> u64 {
    version.parse().expect("a number")
}

/// Creates `count` ConfigMaps, one after another.
async fn write(client: &Client, path: &str, count: u32) {
    for object in 0..count {
        let object = json!({ "metadata": { "name": format!("object-{object}") } });
        client.create(path, &object).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_version_that_comes_in_time_is_waited_for() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    for format in [Format::Json, Format::Protobuf] {
        let namespace = server.namespace("ahead").await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let early = format!("{path}?resourceVersion=0");
        within("the cache", STEP, through.list(&early, format)).await;
        let now = number(&direct.list(&path, format).await.resource_version);
        let ahead = now + 20;
        let list = async {
            let query = format!("{path}?resourceVersion={ahead}");
            number(&through.list(&query, format).await.resource_version)
        };
        let stream = async {
            let query = format!(
                "{path}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
                 &resourceVersionMatch=NotOlderThan&resourceVersion={ahead}"
            );
            let mut stream = through.watch(&query, format).await.expect("a stream");
            loop {
                match stream.next().await.expect("a frame") {
                    Some(Event::Added(_)) => {}
                    Some(Event::Bookmark {
                        resource_version,
                        initial_events_end: true,
                    }) => return number(&resource_version),
                    other => panic!("{other:?}"),
                }
            }
        };
        let reads = join3(list, stream, write(&direct, &path, 25));
        let (listed, streamed, ()) = within("the reads", STEP, reads).await;
        assert!(listed >= ahead, "{listed} is older than {ahead}");
        assert!(streamed >= ahead, "{streamed} is older than {ahead}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_deadline_holds_when_the_upstream_does_not_answer() {
    let server = private().await;
    let kubefan = Kubefan::start(&server, &["--resource", "configmaps"]).await;
    let through = kubefan.client();
    server.stop_etcd();
    // Secrets are not cached yet, and the first list gets no answer from the API server.
    let path = "/api/v1/namespaces/default/secrets?resourceVersion=0&timeout=1s";
    let late = within(path, STEP, through.get(path)).await;
    assert_eq!(late.status, 504, "{late}");
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout", "details": {}, "code": 504,
    });
    assert_eq!(late.json(), expected);
    for path in [
        // Forwarded reads, which the API server ends when their timeout has passed.
        "/api/v1/namespaces/default/configmaps?timeout=1s",
        "/api/v1/namespaces/default/configmaps/one?timeout=1s",
    ] {
        let late = within(path, STEP, through.get(path)).await;
        assert!(late.status.is_server_error(), "{path}: {late}");
    }
    server.start_etcd_again().await;
}
