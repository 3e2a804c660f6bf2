//! Metadata-only and indented answers are answered from the cache, as kubefan's metrics show.
//! Answers in CBOR are the API server's.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use memchr::memmem;

use crate::support::clients::client::Client;
use crate::support::cluster::define_widgets;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{private_with, shared};
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);
const METADATA: [&str; 3] = [
    "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1",
];

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn metadata_and_indented_json_come_from_the_cache() {
    let server = shared();
    define_widgets(server).await;
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    let mut sent = 0;
    for (collection, name) in [
        ("/api/v1/namespaces", "default"),
        ("/apis/example.kubefan.io/v1/widgets", "none"),
    ] {
        let list = format!("{collection}?resourceVersion=0");
        let get = format!("{collection}/{name}?resourceVersion=0");
        let watch = format!("{list}&watch=1&timeoutSeconds=1");
        for metadata in METADATA {
            let (one, many) = (metadata.replace("{}", ""), metadata.replace("{}", "List"));
            send(&client, &list, "accept", &many).await;
            send(&client, &watch, "accept", &one).await;
            sent += 2;
            if name == "default" {
                send(&client, &get, "accept", &one).await;
                sent += 1;
            }
        }
        send(&client, &list, "user-agent", "curl/8.5.0").await;
        send(&client, &format!("{list}&pretty=1"), "accept", "*/*").await;
        send(&client, &list, "accept", "application/json;pretty=1").await;
        sent += 3;
    }
    let metrics = kubefan.metrics().await;
    let count = |outcome: &str| -> f64 {
        let lines = metrics
            .lines()
            .filter(|line| line.starts_with("kubefan_requests_total{"))
            .filter(|line| line.contains(&format!("outcome=\"{outcome}\"")));
        let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum()
    };
    let counts = (count("cache"), count("forwarded"), count("rejected"));
    assert_eq!(counts, (f64::from(sent), 0.0, 0.0), "{metrics}");
}

/// An API server with the feature gate for CBOR ends the initial events with a bookmark, too.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_list_in_cbor_is_the_api_servers() {
    let flags = ["--feature-gates=CBORServingAndStorage=true"];
    let server = private_with(&flags).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let (direct, through) = (server.client(), kubefan.client());
    let cbor =
        |media: &'static str| HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(media))]);
    let path = "/api/v1/namespaces?watch=1&timeoutSeconds=1&sendInitialEvents=true&\
                resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for media in [
        "application/cbor",
        "application/cbor;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ] {
        // The newest version may change between the two answers.
        eventually(media, STEP, async || {
            let headers = cbor(media);
            let (wanted, got) = tokio::join!(
                direct.send(Method::GET, path, &headers, Bytes::new()),
                through.send(Method::GET, path, &headers, Bytes::new())
            );
            let ends = [&wanted, &got].map(|answer| {
                let end = memmem::find(&answer.body, b"k8s.io/initial-events-end");
                (end.is_some(), answer.header("content-type"))
            });
            let has_ended = ends == [(true, Some("application/cbor-seq")); 2];
            match has_ended && sorted(&wanted.body) == sorted(&got.body) {
                true => Ok(()),
                false => Err(format!("{wanted:?}\n{got:?}")),
            }
        })
        .await;
    }
}

/// Sorts the bytes: in CBOR, the API server encodes the keys of maps in random order.
fn sorted(body: &Bytes) -> Vec<u8> {
    let mut bytes = body.to_vec();
    bytes.sort_unstable();
    bytes
}

async fn send(client: &Client, path: &str, header: &'static str, value: &str) {
    let mut headers = HeaderMap::new();
    let name = HeaderName::from_static(header);
    headers.insert(name, value.parse().expect("a header value"));
    let answer = client.send(Method::GET, path, &headers, Bytes::new()).await;
    answer.ok();
}
