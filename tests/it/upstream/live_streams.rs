//! Streams that are open while it happens: of the API server and of kubefan, compared to the byte.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::support::apiserver::shared;
use crate::support::client::Client;
use crate::support::frames::Event;
use crate::support::frames::Format;
use crate::support::frames::WatchReader;
use crate::support::kubefan::Kubefan;
use crate::support::poll::within;

#[tokio::test(flavor = "multi_thread")]
async fn live_streams_are_alike_to_the_byte() {
    let Some(server) = shared() else { return };
    let kubefan = Kubefan::start(server, &[]).await;
    let namespace = server.namespace("streams").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let (direct, through) = (server.client(), kubefan.client());
    let formats = [Format::Json, Format::Protobuf];
    // Before the streams: the caches, and what the streams begin after.
    for format in formats {
        through
            .list(&format!("{path}?resourceVersion=0"), format)
            .await;
    }
    direct.create(&path, &colored("first", "red")).await.ok();
    let from = direct.list(&path, Format::Json).await.resource_version;
    let mut pairs = Vec::new();
    for format in formats {
        for selector in [
            "",
            "labelSelector=color%3Dred",
            "labelSelector=color%20notin%20(red)",
            "labelSelector=all%2Ccolor!%3Dblue",
            "fieldSelector=metadata.name!%3Dfirst",
        ] {
            let query = format!("{path}?watch=1&resourceVersion={from}&{selector}");
            let open =
                async |client: &Client| client.watch(&query, format).await.expect("a stream");
            pairs.push((
                format!("{format:?} {selector}"),
                open(&direct).await,
                open(&through).await,
            ));
        }
    }
    write_across_selectors(&direct, &path).await;
    for (what, wanted, got) in &mut pairs {
        are_alike_to_the_last(what, wanted, got).await;
    }
}

fn colored(name: &str, color: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "color": color, "all": "yes" } },
        "data": { "text": "<é&\u{2028}>" },
    })
}

/// Brings objects into and out of every selector, and ends with one for each.
async fn write_across_selectors(direct: &Client, path: &str) {
    for (name, color) in [("second", "blue"), ("third", "red")] {
        direct.create(path, &colored(name, color)).await.ok();
    }
    for (name, color) in [
        ("first", "blue"),
        ("third", "green"),
        ("first", "red"),
        ("second", "red"),
    ] {
        let change = json!({ "metadata": { "labels": { "color": color } } });
        direct.merge(&format!("{path}/{name}"), &change).await.ok();
    }
    direct.delete(&format!("{path}/first")).await.ok();
    direct.create(path, &colored("first", "red")).await.ok();
    direct.delete(&format!("{path}/second")).await.ok();
    for color in ["red", "green"] {
        direct
            .create(path, &colored(&format!("last-{color}"), color))
            .await
            .ok();
    }
}

async fn are_alike_to_the_last(what: &str, wanted: &mut WatchReader, got: &mut WatchReader) {
    const LIMIT: Duration = Duration::from_secs(20);
    // Only reds come through one of the selectors.
    let last = if what.ends_with("Dred") {
        "/last-red"
    } else {
        "/last-green"
    };
    for events in 1.. {
        let wanted = within(what, LIMIT, wanted.next_frame())
            .await
            .expect("a frame");
        let got = within(what, LIMIT, got.next_frame())
            .await
            .expect("a frame");
        assert!(wanted == got, "{what}: {wanted:?} is not {got:?}");
        if let Some((Event::Added(item), _)) = wanted
            && item.key.ends_with(last)
        {
            assert!(events >= 3, "{what}: {events} events");
            break;
        }
    }
}
