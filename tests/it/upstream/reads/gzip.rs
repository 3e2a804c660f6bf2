//! kubefan compresses the same answers as the API server, with equal contents.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use serde_json::json;

use crate::support::clients::client::Answer;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::within;
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
async fn large_answers_are_compressed_as_the_api_server_does() {
    let Some(server) = shared() else { return };
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
async fn a_long_error_is_compressed_and_a_watch_never() {
    let Some(server) = shared() else { return };
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
