//! An API server with `--goaway-chance`, which often closes HTTP/2 connections gracefully.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Method};
use serde_json::json;

use crate::support::programs::apiserver::private_with;
use crate::support::programs::kubefan::Kubefan;

const WRITES: usize = 2_000;
const CONCURRENT: usize = 50;

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn no_write_fails_because_the_api_server_closes_its_connection() {
    let server = private_with(&["--goaway-chance=0.02"]).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let client = kubefan.client();
    let namespace = server.namespace("goaway").await;
    let path = &format!("/api/v1/namespaces/{namespace}/configmaps");
    let client = &client;
    let statuses = stream::iter(0..WRITES).map(|number| async move {
        let body = json!({ "metadata": { "name": format!("object-{number}") } }).to_string();
        let headers = HeaderMap::new();
        let answer = client.try_send(Method::POST, path, &headers, Bytes::from(body));
        answer.await.expect("an answer").to_string()
    });
    let answers: Vec<_> = statuses.buffer_unordered(CONCURRENT).collect().await;
    let failed: Vec<_> = answers
        .iter()
        .filter(|answer| !answer.starts_with("201"))
        .collect();
    assert!(
        failed.is_empty(),
        "{} failed: {:?}",
        failed.len(),
        failed.first()
    );
}
