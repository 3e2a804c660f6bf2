//! Checks that kubefan compresses the answers that the API server compresses, with equal contents.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::json;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;
use crate::upstream::differential::comparable_body;

const STEP: Duration = Duration::from_secs(30);

fn shown(target: &str, answer: &Answer) -> String {
    let header = |name| answer.header(name).unwrap_or("-").to_owned();
    format!(
        "{} {} {} {}\n{}",
        answer.status,
        header("content-type"),
        header("content-encoding"),
        header("vary"),
        comparable_body(target, answer)
    )
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn large_answers_are_compressed_as_the_api_server_does() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let namespace = server.namespace("gzip").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let direct = server.client();
    for format in [Format::Json, Format::Protobuf] {
        kubefan
            .client()
            .list(&format!("{path}?resourceVersion=0"), format)
            .await;
    }
    for (name, length) in [("large", 200_000), ("small", 100_000)] {
        let object = json!({
            "metadata": { "name": name },
            "data": { "text": "0123456789".repeat(length / 10) },
        });
        direct.create(&path, &object).await.ok();
    }
    let version = direct.list(&path, Format::Json).await.resource_version;
    let plain_http = Connector::plain();
    let clients = [kubefan.client(), Client::http2(kubefan.url(), plain_http)];
    for query in [
        format!("{path}?resourceVersion={version}"),
        format!("{path}/large?resourceVersion={version}"),
        format!("{path}/small?resourceVersion={version}"),
        format!("{path}/missing?resourceVersion={version}"),
        // The next two requests are forwarded.
        path.clone(),
        format!("{path}/large"),
    ] {
        for format in [Format::Json, Format::Protobuf] {
            for encoding in [
                "gzip",
                "deflate, gzip",
                "gzip;q=0.5",
                "*",
                "identity",
                "br,gzip ,x",
            ] {
                let mut headers = format.accept();
                headers.insert("accept-encoding", HeaderValue::from_static(encoding));
                let send = async |client: &Client| {
                    let answer = client.send(Method::GET, &query, &headers, Bytes::new());
                    within(&query, STEP, answer).await
                };
                let wanted = send(&direct).await;
                for client in &clients {
                    let got = send(client).await;
                    let what = format!("{query} {format:?} {encoding}");
                    assert!(
                        shown(&query, &wanted) == shown(&query, &got),
                        "{what}: {:.300}",
                        shown(&query, &got)
                    );
                    if let Some(length) = got.header("content-length") {
                        assert_eq!(length, got.body.len().to_string(), "{what}");
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_long_error_is_compressed_and_a_watch_without_bookmarks_never() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let namespace = server.namespace("gzip").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({
        "metadata": { "name": "large" },
        "data": { "text": "0123456789".repeat(30_000) },
    });
    server.client().create(&path, &object).await.ok();
    let mut headers = HeaderMap::new();
    headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
    // The error quotes the selector and JSON escapes that, so its text is four times as long.
    let wrong = "\\".repeat(40_000);
    let long = format!("{path}?resourceVersion=0&labelSelector=a%3D{wrong}");
    let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=1");
    for query in [watch, long] {
        let send = async |client: &Client| {
            let answer = client.send(Method::GET, &query, &headers, Bytes::new());
            within("an answer", STEP, answer).await
        };
        let (wanted, got) = (send(&server.client()).await, send(&kubefan.client()).await);
        assert!(
            shown(&query, &wanted) == shown(&query, &got),
            "{:.300}\n{:.300}",
            shown(&query, &wanted),
            shown(&query, &got)
        );
    }
}

/// The events that arrive within the first members of a compressed watch.
struct CompressedWatch {
    body: hyper::body::Incoming,
    gzip: Vec<u8>,
}

impl CompressedWatch {
    async fn open(client: &Client, path: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
        let response = client.open(Method::GET, path, &headers, Bytes::new());
        let response = within("a head", STEP, response).await.expect("a head");
        assert_eq!(response.headers()["content-encoding"], "gzip", "{path}");
        Self {
            body: response.into_body(),
            gzip: Vec::new(),
        }
    }

    /// Returns all text up to now, once `part` has arrived and the
    /// compressed data so far is complete.
    async fn text_with(&mut self, part: &str) -> String {
        loop {
            let mut text = String::new();
            let read = MultiGzDecoder::new(&self.gzip[..]).read_to_string(&mut text);
            if read.is_ok() && text.contains(part) {
                return text;
            }
            let frame = within(part, STEP, self.body.frame()).await;
            let frame = frame.expect("more events").expect("no failure");
            self.gzip.extend_from_slice(frame.data_ref().expect("data"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_open_watch_list_is_compressed_and_gets_each_event_at_once() {
    let server = shared();
    if !server.compresses_watch_lists() {
        return;
    }
    let kubefan = Kubefan::start(server, &[]).await;
    let namespace = server.namespace("gzip").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let direct = server.client();
    for number in 0..40 {
        let object = json!({
            "metadata": { "name": format!("object-{number}") },
            "data": { "text": "0123456789".repeat(1_000) },
        });
        direct.create(&path, &object).await.ok();
    }
    let list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let watch = format!("{path}?watch=1&{list}");
    // kubefan compresses once it knows the API server's version.
    let gzip = kubefan.client().with("accept-encoding", "gzip");
    eventually("a known version", STEP, async || {
        let answer = gzip.get(&format!("{watch}&timeoutSeconds=1")).await;
        let encoding = answer.header("content-encoding").map(str::to_owned);
        encoding.ok_or("not compressed")
    })
    .await;
    let plain_http = Connector::plain();
    let clients = [kubefan.client(), Client::http2(kubefan.url(), plain_http)];
    let mut open = Vec::new();
    for client in &clients {
        for _ in 0..5 {
            let mut stream = CompressedWatch::open(client, &watch).await;
            let text = stream.text_with("k8s.io/initial-events-end").await;
            assert_eq!(text.matches(r#""type":"ADDED""#).count(), 40);
            let (gzip, plain) = (stream.gzip.len(), text.len());
            assert!(gzip < plain / 10, "{gzip} of {plain} bytes");
            open.push(stream);
        }
    }
    for number in 0..3 {
        let name = format!("later-{number}");
        let object = json!({ "metadata": { "name": name } });
        direct.create(&path, &object).await.ok();
        for stream in &mut open {
            let part = format!(r#""name":"{name}""#);
            let text = stream.text_with(&part).await;
            assert!(text.ends_with("}\n"), "{text}");
        }
    }
    let metrics = kubefan.metrics().await;
    let shared = metrics
        .lines()
        .find_map(|line| line.strip_prefix(r#"kubefan_gzip_initial_chunks_total{how="shared"} "#));
    let shared: u64 = shared
        .and_then(|count| count.parse().ok())
        .expect("a count");
    assert!(shared > 0, "{metrics}");
}
