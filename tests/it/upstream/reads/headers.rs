//! Headers that every answer has, whether kubefan answers or forwards, over both protocols; and the
//! answers to other methods than GET.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::cluster::define_widgets;
use crate::support::poll::within;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;
use crate::upstream::differential::comparable_body;

const STEP: Duration = Duration::from_secs(30);

async fn send(client: &Client, method: &Method, path: &str, headers: &HeaderMap) -> Answer {
    let answer = client.send(method.clone(), path, headers, Bytes::new());
    within(path, STEP, answer).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_answer_has_an_audit_id_and_is_not_cacheable() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    let clients = [
        kubefan.client(),
        Client::http2(kubefan.url(), Connector::plain()),
    ];
    let collection = "/api/v1/namespaces/default/configmaps";
    for path in [
        // Requests that are answered from the cache, and requests that are forwarded.
        format!("{collection}?resourceVersion=0"),
        format!("{collection}/none?resourceVersion=0"),
        format!("{collection}?resourceVersion=0&limit=x"),
        format!("{collection}?watch=1&resourceVersion=0&timeoutSeconds=1"),
        format!("{collection}?watch=1&resourceVersion=x"),
        collection.to_owned(),
        format!("{collection}/none"),
    ] {
        for client in &clients {
            let mut headers = HeaderMap::new();
            let nameless = send(client, &Method::GET, &path, &headers).await;
            let name = nameless.header("audit-id").unwrap_or_default();
            assert!(uuid::Uuid::parse_str(name).is_ok(), "{path}: {name:?}");
            let caching = nameless.header("cache-control");
            assert_eq!(caching, Some("no-cache, private"), "{path}");
            headers.insert("audit-id", HeaderValue::from_static("mine"));
            let named = send(client, &Method::GET, &path, &headers).await;
            let names: Vec<_> = named.headers.get_all("audit-id").iter().collect();
            assert_eq!(names, ["mine"], "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_cross_site_request_is_refused_in_an_accepted_format() {
    let server = shared();
    let kubefan = Kubefan::start(server, &[]).await;
    for (accept, media_type, start) in [
        (
            "application/json",
            "application/json",
            r#"{"kind":"Status""#,
        ),
        ("text/html", "application/json", "{\n  \"kind\": \"Status\""),
        (
            "application/yaml",
            "application/json",
            "{\n  \"kind\": \"Status\"",
        ),
        (
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf",
            "k8s\0",
        ),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert("origin", HeaderValue::from_static("http://evil.example"));
        headers.insert("accept", HeaderValue::from_static(accept));
        let answer = send(&kubefan.client(), &Method::GET, "/api/v1/pods", &headers).await;
        assert_eq!(answer.status, 403, "{answer}");
        assert_eq!(answer.header("content-type"), Some(media_type));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-cache, private"));
        assert!(answer.body.starts_with(start.as_bytes()), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn non_read_methods_are_answered_alike_over_both_protocols() {
    let server = shared();
    define_widgets(server).await;
    let kubefan = Kubefan::start(server, &[]).await;
    let direct = server.client();
    let clients = [
        kubefan.client(),
        Client::http2(kubefan.url(), Connector::plain()),
    ];
    let none = HeaderMap::new();
    for path in [
        "/api/v1/namespaces/none/configmaps",
        "/api/v1/namespaces/none/configmaps/one",
        "/api/v1/watch/namespaces/none/configmaps?timeoutSeconds=1",
        "/apis/example.kubefan.io/v1/namespaces/none/widgets",
        "/apis/example.kubefan.io/v1/namespaces/none/widgets/one",
        "/version",
    ] {
        for method in ["HEAD", "OPTIONS", "TRACE", "FETCH"] {
            let method: Method = method.parse().expect("a method");
            let shown = |answer: &Answer| {
                let header = |name| answer.header(name).unwrap_or("-").to_owned();
                let body = comparable_body(path, answer);
                let (media_type, allow) = (header("content-type"), header("allow"));
                format!("{} {media_type} {allow}\n{body}", answer.status)
            };
            let wanted = shown(&send(&direct, &method, path, &none).await);
            for client in &clients {
                let got = shown(&send(client, &method, path, &none).await);
                assert_eq!(wanted, got, "{method} {path}");
            }
        }
    }
}
