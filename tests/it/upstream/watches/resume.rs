//! A client that resumes a watch, at its first kubefan or at another kubefan, gets exactly the
//! remaining events. It may resume after any event, including DELETED, and after a bookmark.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::poll::within;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(60);
/// Selectors, and the number of events that each matches of those that `write` causes.
const SELECTORS: [(&str, usize); 3] = [
    ("", 9),
    ("labelSelector=side%3Da", 7),
    ("labelSelector=side!%3Da", 6),
];

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_goes_on_after_every_event_at_any_replica() {
    let server = shared();
    let replicas = [
        Kubefan::start(server, &[]).await,
        Kubefan::start(server, &[]).await,
    ];
    let direct = server.client();
    let namespace = server.namespace("resume").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let clients: Vec<Client> = replicas.iter().map(Kubefan::client).collect();
    for format in [Format::Json, Format::Protobuf] {
        for client in &clients {
            client
                .list(&format!("{path}?resourceVersion=0"), format)
                .await;
        }
    }
    let from = direct.create(&path, &object("first", "a")).await.ok();
    let from = from.json()["metadata"]["resourceVersion"]
        .as_str()
        .expect("an RV")
        .to_owned();
    write(&direct, &path).await;
    for format in [Format::Json, Format::Protobuf] {
        for (selector, count) in SELECTORS {
            let what = format!("{format:?} {selector}");
            let mut stream = open(&direct, &path, &from, selector, format).await;
            let all = take(&what, &mut stream, count).await;
            for seen in 0..=all.len() {
                let after = match seen.checked_sub(1) {
                    None => from.clone(),
                    Some(last) => all[last].0.clone(),
                };
                for client in &clients {
                    let what = format!("{what} after {seen} events at {client:?}");
                    let mut stream = open(client, &path, &after, selector, format).await;
                    let rest = take(&what, &mut stream, count - seen).await;
                    assert!(rest == all[seen..], "{what}: {rest:?}");
                }
            }
        }
        after_a_bookmark(&direct, &clients, &path, &from, format).await;
        unselected_changes_are_not_sent(&clients[0], &path, &from, format).await;
    }
}

fn object(name: &str, side: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name, "labels": { "side": side } } })
}

/// Moves objects into and out of every selector; the last change matches all selectors.
async fn write(direct: &Client, path: &str) {
    let side = async |name: &str, side: &str| {
        let change = json!({ "metadata": { "labels": { "side": side } } });
        let object = format!("{path}/{name}");
        direct.merge(&object, &change).await.ok();
    };
    direct.create(path, &object("second", "b")).await.ok();
    side("first", "b").await;
    side("second", "a").await;
    direct.delete(&format!("{path}/first")).await.ok();
    direct.create(path, &object("first", "a")).await.ok();
    side("first", "b").await;
    direct.delete(&format!("{path}/second")).await.ok();
    direct.create(path, &object("last", "a")).await.ok();
    side("last", "b").await;
}

async fn open(
    client: &Client,
    path: &str,
    after: &str,
    selector: &str,
    format: Format,
) -> WatchReader {
    let path = format!("{path}?watch=1&resourceVersion={after}&{selector}");
    client.watch(&path, format).await.expect("a stream")
}

/// Reads the next `count` events: their resourceVersions and their frames.
async fn take(what: &str, stream: &mut WatchReader, count: usize) -> Vec<(String, Bytes)> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let frame = within(what, STEP, stream.next_frame()).await;
        let (event, frame) = frame.expect("a stream").expect("an event");
        let (Event::Added(item) | Event::Modified(item) | Event::Deleted(item)) = event else {
            panic!("{what}: {event:?}")
        };
        frames.push((item.resource_version, frame));
    }
    frames
}

/// Checks that changes of objects that the selector never matches cause no events, and that
/// bookmarks still advance past their versions.
async fn unselected_changes_are_not_sent(client: &Client, path: &str, from: &str, format: Format) {
    let newest = client.list(path, format).await.items;
    let newest = newest.iter().map(|item| number(&item.resource_version));
    let nothing = "labelSelector=nosuch";
    let (events, bookmark) = until_a_bookmark(client, path, from, nothing, format).await;
    assert_eq!(events, 0, "{format:?}");
    assert!(Some(number(&bookmark)) >= newest.max(), "{bookmark}");
}

fn number(version: &str) -> u64 {
    version.parse().expect("a number")
}

/// Watches for three seconds, and returns the number of events and the version of the last
/// bookmark. Checks that no bookmark's version is below the version of an earlier event.
async fn until_a_bookmark(
    client: &Client,
    path: &str,
    from: &str,
    selector: &str,
    format: Format,
) -> (usize, String) {
    let query = format!(
        "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={from}&{selector}"
    );
    let mut stream = client.watch(&query, format).await.expect("a stream");
    let (mut events, mut last) = (0, number(from));
    let mut bookmark = None;
    while let Some(event) = within("a bookmark", STEP, stream.next())
        .await
        .expect("a clean end")
    {
        match event {
            Event::Bookmark {
                resource_version, ..
            } => {
                assert!(number(&resource_version) >= last, "{resource_version}");
                bookmark = Some(resource_version);
            }
            Event::Added(item) | Event::Modified(item) | Event::Deleted(item) => {
                last = number(&item.resource_version);
                events += 1;
            }
            other @ Event::Error { .. } => panic!("{other:?}"),
        }
    }
    (events, bookmark.expect("a bookmark before the deadline"))
}

/// Checks that watches that resume from a bookmark get only events after the bookmark.
async fn after_a_bookmark(
    direct: &Client,
    clients: &[Client],
    path: &str,
    from: &str,
    format: Format,
) {
    let (_, bookmark) = until_a_bookmark(&clients[0], path, from, "", format).await;
    let name = format!("after-{}", rand::random::<u32>());
    let mut streams = Vec::new();
    for client in clients {
        for selector in ["", &format!("fieldSelector=metadata.name%3D{name}")] {
            streams.push(open(client, path, &bookmark, selector, format).await);
        }
    }
    direct.create(path, &object(&name, "a")).await.ok();
    for stream in &mut streams {
        let event = within("the next event", STEP, stream.next()).await;
        let event = event.expect("a stream").expect("an event");
        assert!(
            matches!(&event, Event::Added(item) if item.key.ends_with(&name)),
            "{event:?}"
        );
    }
}
