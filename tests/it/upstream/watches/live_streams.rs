//! Compares open watches of the API server and of kubefan byte by byte while objects change.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::clients::frames::{Event, Format, WatchReader};
use crate::support::cluster::define_widgets;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::kubefan::Kubefan;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn live_streams_are_alike_to_the_byte() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    define_widgets(server).await;
    let namespace = server.namespace("streams").await;
    for (resource, formats) in [
        ("api/v1", [Format::Json, Format::Protobuf].as_slice()),
        ("apis/example.kubefan.io/v1", &[Format::Json]),
    ] {
        let path = match resource {
            "api/v1" => format!("/{resource}/namespaces/{namespace}/configmaps"),
            _ => format!("/{resource}/namespaces/{namespace}/widgets"),
        };
        live_streams_are_alike(server, &kubefan, &path, formats).await;
    }
}

/// Compares watches of complete objects in `formats`, and metadata-only watches in both formats.
async fn live_streams_are_alike(
    server: &ApiServer,
    kubefan: &Kubefan,
    path: &str,
    formats: &[Format],
) {
    let (direct, through) = (server.client(), kubefan.client());
    // Fill the caches and create an object first, so that the streams start from its version.
    for format in formats {
        through
            .list(&format!("{path}?resourceVersion=0"), *format)
            .await;
    }
    direct
        .create(path, &colored(path, "first", "red"))
        .await
        .ok();
    let from = direct.list(path, Format::Json).await.resource_version;
    let mut pairs = Vec::new();
    let whole = formats
        .iter()
        .map(|format| (*format, format.media_type().to_owned()));
    let metadata = [Format::Json, Format::Protobuf]
        .into_iter()
        .flat_map(|format| {
            let accept = partial(format.media_type(), "");
            let beta = accept.replace("v=v1", "v=v1beta1");
            [(format, accept), (format, beta)]
        });
    for (format, accept) in whole.chain(metadata) {
        for selector in [
            "",
            "labelSelector=color%3Dred",
            "labelSelector=color%20notin%20(red)",
            "labelSelector=all%2Ccolor!%3Dblue",
            "fieldSelector=metadata.name!%3Dfirst",
        ] {
            let query = format!("{path}?watch=1&resourceVersion={from}&{selector}");
            let open = async |client: &Client| {
                let stream = client.watch_accepting(&query, format, &accept).await;
                stream.expect("a stream")
            };
            pairs.push((
                format!("{accept} {selector}"),
                open(&direct).await,
                open(&through).await,
            ));
        }
    }
    write_across_selectors(&direct, path).await;
    for (what, wanted, got) in &mut pairs {
        are_alike_to_the_last(what, wanted, got).await;
    }
}

fn colored(path: &str, name: &str, color: &str) -> Value {
    let (api_version, kind) = match path.ends_with("widgets") {
        true => ("example.kubefan.io/v1", "Widget"),
        false => ("v1", "ConfigMap"),
    };
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": { "color": color, "all": "yes" },
            "annotations": { "text": "<é&\u{2028}>" },
        },
        "data": { "text": "<é&\u{2028}>" },
    })
}

/// Changes objects so that they enter and leave every selector, and creates `last-red` and
/// `last-green` at the end.
async fn write_across_selectors(direct: &Client, path: &str) {
    for (name, color) in [("second", "blue"), ("third", "red")] {
        direct.create(path, &colored(path, name, color)).await.ok();
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
    direct
        .create(path, &colored(path, "first", "red"))
        .await
        .ok();
    direct.delete(&format!("{path}/second")).await.ok();
    for color in ["red", "green"] {
        direct
            .create(path, &colored(path, &format!("last-{color}"), color))
            .await
            .ok();
    }
}

async fn are_alike_to_the_last(what: &str, wanted: &mut WatchReader, got: &mut WatchReader) {
    const LIMIT: Duration = Duration::from_secs(20);
    // The selector for red does not match `last-green`.
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

fn partial(media_type: &str, list: &str) -> String {
    format!("{media_type};as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1")
}
