//! Reads by name, by users whose rights, or whose API server's authorizers, distinguish names.

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::identities::grant;
use super::observed::{LIMIT, Observed};
use super::questions::{found_out, maps};
use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{READER, private_with, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::listener::Listener;

/// The object that the webhook forbids.
const FORBIDDEN: &str = "map-3";
const COUNT: usize = 6;
/// kubefan has caches from the start, because a GET starts none.
const FLAGS: [&str; 6] = [
    "--auth",
    "caller",
    "--resource",
    "configmaps",
    "--authorization-cache-authorized-ttl",
    "1s",
];

/// Waits until a client gets this status.
async fn answers(client: &Client, path: &str, status: u16) {
    eventually(path, LIMIT, async || {
        client.get(path).await.is(status).map(|_| ())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_right_to_some_names_is_no_right_to_others() {
    let server = shared();
    let kubefan = Kubefan::start(server, &FLAGS).await;
    let (reader, direct) = (
        kubefan.client().as_token(READER),
        server.anonymous().as_token(READER),
    );
    let other = "/api/v1/namespaces/default/configmaps/other?resourceVersion=0";
    found_out(&kubefan, &reader, other, "names are covered").await;
    let reader_user = json!({"kind": "User", "name": "reader"});
    for (names, first, second) in [
        (json!(null), 200, 200),
        (json!([]), 200, 200),
        (json!(["map-1"]), 200, 403),
        // Perhaps from a template without a value.
        (json!([""]), 403, 403),
        (json!(["*"]), 403, 403),
    ] {
        let namespace = server.namespace("some-names").await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        for name in ["map-1", "map-2"] {
            let map = json!({"metadata": {"name": name}});
            server.client().create(&path, &map).await.ok();
        }
        let rule = json!({
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"],
            "resourceNames": names,
        });
        let of_namespace = Some(namespace.as_str());
        let (admin, rules) = (server.client(), json!([rule]));
        grant(&admin, of_namespace, "some", &rules, &reader_user).await;
        let read = |name: &str| format!("{path}/{name}?resourceVersion=0");
        // The API server's authorizer learns of a new role through a cache.
        for client in [&direct, &reader] {
            answers(client, &read("map-1"), first).await;
        }
        for _ in 0..3 {
            for (name, status) in [("map-1", first), ("map-2", second)] {
                let answer = reader.get(&read(name)).await;
                assert_eq!(answer.status, status, "{names} {name}: {answer}");
            }
        }
    }
}

/// Answers a question to a webhook authorizer: forbids one name, and has no opinion on others.
async fn judge(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.expect("a whole body");
    let review: Value = serde_json::from_slice(&body.to_bytes()).expect("a review");
    let denied = review["spec"]["resourceAttributes"]["name"] == FORBIDDEN;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "status": {"allowed": false, "denied": denied},
    });
    let mut answer = Response::new(Full::from(review.to_string()));
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    Ok(answer)
}

async fn webhook() -> Listener {
    Listener::start(|_, tcp| async move {
        let served = http1::Builder::new().serve_connection(TokioIo::new(tcp), service_fn(judge));
        // The API server may close its connection at any time.
        served.await.ok();
    })
    .await
}

/// Returns an AuthorizationConfiguration: RBAC, after the webhook of this kubeconfig if there is one.
fn authorizers(webhook: Option<&Path>) -> String {
    let webhook = webhook.map(|kubeconfig| {
        json!({
            "type": "Webhook",
            "name": "names",
            "webhook": {
                "timeout": "3s",
                "subjectAccessReviewVersion": "v1",
                "matchConditionSubjectAccessReviewVersion": "v1",
                "failurePolicy": "Deny",
                "authorizedTTL": "1s",
                "unauthorizedTTL": "1s",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
            },
        })
    });
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    let authorizers: Vec<Value> = webhook.into_iter().chain([rbac]).collect();
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    });
    config.to_string()
}

/// The API server reads its authorizers again when their file changes.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_webhook_that_forbids_a_name_counts_as_soon_as_the_api_server_has_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (chain, config) = (
        directory.path().join("authorizers"),
        directory.path().join("webhook"),
    );
    fs::write(&chain, authorizers(None)).expect("room");
    let webhook = webhook().await;
    kubeconfig::write(&config, webhook.http_url(), None, &User::Anonymous);
    let flag = format!("--authorization-config={}", chain.display());
    let server = private_with(&[flag.as_str()]).await;
    let maps = maps(&server, "webhook", COUNT).await;
    let kubefan = Kubefan::start(&server, &FLAGS).await;
    let (reader, direct) = (
        kubefan.client().as_token(READER),
        server.anonymous().as_token(READER),
    );
    let read = |name: &str| format!("{maps}/{name}?resourceVersion=0");
    let first = read("map-0");
    found_out(&kubefan, &reader, &first, "names are covered").await;
    for number in 0..COUNT {
        answers(&reader, &read(&format!("map-{number}")), 200).await;
    }
    // Watches of one object each share a question.
    let flags = ["--authorization-reauthorize", "1s"];
    let judging = Kubefan::start(&server, &[&FLAGS[..], &flags].concat()).await;
    let watcher = judging.client().as_token(READER);
    found_out(&judging, &watcher, &first, "names are covered").await;
    let watch = async |name: &str| {
        let one = format!("fieldSelector=metadata.name%3D{name}");
        let path = format!("{maps}?watch=1&resourceVersion=0&{one}");
        Observed::open(&watcher, &path, 1).await
    };
    let (lost, kept) = (watch(FORBIDDEN).await, watch("map-1").await);
    fs::write(&chain, authorizers(Some(&config))).expect("room");
    answers(&direct, &read(FORBIDDEN), 403).await;
    answers(&reader, &read(FORBIDDEN), 403).await;
    lost.ended().await;
    found_out(&kubefan, &reader, &first, "names are not covered").await;
    for _ in 0..3 {
        for number in 0..COUNT {
            let name = format!("map-{number}");
            let status = if name == FORBIDDEN { 403 } else { 200 };
            let answer = reader.get(&read(&name)).await;
            assert_eq!(answer.status, status, "{name}: {answer}");
        }
    }
    assert!(kept.is_open());
    // Without the webhook, names are covered again.
    fs::write(&chain, authorizers(None)).expect("room");
    answers(&direct, &read(FORBIDDEN), 200).await;
    answers(&reader, &read(FORBIDDEN), 200).await;
}
