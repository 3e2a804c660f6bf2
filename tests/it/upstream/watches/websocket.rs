//! Watches over WebSockets: the handshakes and messages of kubefan and of the API server are
//! compared byte by byte.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::cluster::define_widgets;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, private, shared};
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
/// A close frame with code 1000, as a server sends it.
const CLOSED: [u8; 4] = [0x88, 2, 0x03, 0xe8];
/// A ping frame of a client, with a mask of zeroes.
const PING: &[u8] = b"\x89\x82\0\0\0\0hi";
const PONG: &[u8] = b"\x8a\x02hi";
const TEXT: &[u8] = b"\x81\x86\0\0\0\0ignore";
const CLOSE: &[u8] = b"\x88\x82\0\0\0\0\x03\xe8";

/// Headers that replace those of the usual handshake; an empty value removes the header.
type Changes = &'static [(&'static str, &'static str)];

fn handshake(client: &Client, changes: Changes) -> HeaderMap {
    let usual = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("origin", client.server()),
        ("accept", "application/json"),
        ("user-agent", "kubefan-it"),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in usual.iter().chain(changes) {
        let name: HeaderName = name.parse().expect("a name");
        match value.is_empty() {
            true => headers.remove(name),
            false => headers.insert(name, HeaderValue::from_str(value).expect("a value")),
        };
    }
    headers
}

/// Sends a handshake, and returns the status, the compared headers, and all bytes until the end.
async fn exchange(client: &Client, path: &str, changes: Changes) -> String {
    const SHOWN: [&str; 7] = [
        "connection",
        "upgrade",
        "sec-websocket-accept",
        "sec-websocket-protocol",
        "sec-websocket-version",
        "content-type",
        "cache-control",
    ];
    let headers = handshake(client, changes);
    let response = client
        .open(Method::GET, path, &headers, Bytes::new())
        .await
        .expect("an answer");
    let status = response.status();
    let shown: Vec<String> = SHOWN
        .iter()
        // Without an upgrade, these two headers belong to the connection and may differ.
        .filter(|name| status == 101 || !matches!(**name, "connection" | "upgrade"))
        .filter_map(|name| Some(format!("{name}: {:?}", response.headers().get(*name)?)))
        .collect();
    let bytes = match status {
        StatusCode::SWITCHING_PROTOCOLS => {
            let upgraded = hyper::upgrade::on(response).await.expect("an upgrade");
            rest(&mut TokioIo::new(upgraded)).await
        }
        _ => {
            let body = response.into_body().collect().await;
            body.expect("a body").to_bytes().to_vec()
        }
    };
    format!("{status} {shown:?}\n{}", bytes.escape_ascii())
}

/// Reads all bytes until the server closes the connection.
async fn rest(socket: &mut TokioIo<Upgraded>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error is ignored, because a TLS connection may end without close_notify.
    let _ = socket.read_to_end(&mut bytes).await;
    bytes
}

async fn open(client: &Client, path: &str) -> TokioIo<Upgraded> {
    let headers = handshake(client, &[]);
    let response = client.open(Method::GET, path, &headers, Bytes::new()).await;
    let response = response.expect("an answer");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(hyper::upgrade::on(response).await.expect("an upgrade"))
}

async fn reads(socket: &mut TokioIo<Upgraded>, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    let read = within("bytes", STEP, socket.read_exact(&mut bytes)).await;
    read.expect("a frame");
    assert_eq!(
        bytes.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

struct Setting {
    kubefan: Kubefan,
    /// The collection of ConfigMaps of a namespace.
    path: String,
    namespace: String,
    /// The resourceVersion before the ConfigMaps were created.
    version: String,
}

/// Starts a kubefan, and creates three ConfigMaps. Then changes one of them, and deletes another
/// one. kubefan's caches have all these changes.
async fn setting(server: &ApiServer, flags: &[&str]) -> Setting {
    let kubefan = Kubefan::start(server, flags).await;
    let namespace = server.namespace("websocket").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let direct = server.client();
    let mut version = String::new();
    for format in [Format::Json, Format::Protobuf] {
        let query = format!("{path}?resourceVersion=0");
        let list = kubefan.client().list(&query, format).await;
        version = list.resource_version;
    }
    for name in ["one", "two", "three"] {
        let object = json!({ "metadata": { "name": name }, "data": { "text": "<é&\u{2028}>" } });
        direct.create(&path, &object).await.ok();
    }
    let long = json!({ "data": { "long": "x".repeat(70_000) } });
    direct.merge(&format!("{path}/two"), &long).await.ok();
    direct.delete(&format!("{path}/three")).await.ok();
    let newest = direct.list(&path, Format::Json).await.resource_version;
    for format in [Format::Json, Format::Protobuf] {
        // Wait until the caches have reached the newest version.
        let query = format!("{path}?resourceVersion={newest}");
        kubefan.client().list(&query, format).await;
    }
    Setting {
        kubefan,
        path,
        namespace,
        version,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn handshakes_and_messages_are_alike() {
    let server = shared();
    let setting = setting(server, &[]).await;
    define_widgets(server).await;
    let watch = "watch=true&timeoutSeconds=2";
    let from = format!("{watch}&resourceVersion={}", setting.version);
    let (path, namespace) = (&setting.path, &setting.namespace);
    let configmaps = |query: &str| format!("{path}?{query}");
    let any = configmaps(&format!("{watch}&resourceVersion=0"));
    let deprecated = format!("/api/v1/watch/namespaces/{namespace}/configmaps?timeoutSeconds=1");
    let rows: Vec<(String, Changes)> = vec![
        (any.clone(), &[]),
        (any.clone(), &[("accept", PROTOBUF)]),
        (any.clone(), &[("accept", "")]),
        (any.clone(), &[("connection", "keep-alive, upgrade")]),
        (any.clone(), &[("upgrade", "WebSocket")]),
        (any.clone(), &[("sec-websocket-key", "short")]),
        (
            any.clone(),
            &[("sec-websocket-protocol", "base64.binary.k8s.io")],
        ),
        (any.clone(), &[("sec-websocket-protocol", "chat")]),
        (configmaps(&from), &[]),
        (configmaps(&from), &[("accept", PROTOBUF)]),
        (
            configmaps(&format!("{from}&fieldSelector=metadata.name%3Dtwo")),
            &[],
        ),
        (configmaps(watch), &[]),
        (
            configmaps("watch=true&resourceVersion=0&timeoutSeconds=-1&labelSelector=none"),
            &[],
        ),
        (deprecated.clone(), &[]),
        (deprecated, &[("accept", PROTOBUF)]),
        (
            format!(
                "/apis/example.kubefan.io/v1/namespaces/{namespace}/widgets?{watch}&resourceVersion=0"
            ),
            &[],
        ),
        // Handshakes that are refused.
        (any.clone(), &[("origin", "")]),
        (any.clone(), &[("sec-websocket-version", "8")]),
        (any.clone(), &[("sec-websocket-key", "")]),
        (any.clone(), &[("sec-websocket-protocol", "a, b")]),
        (any.clone(), &[("upgrade", "h2c")]),
        // Requests that are not valid watches.
        (configmaps("watch=true&labelSelector=a%20in"), &[]),
        (
            configmaps("watch=true&resourceVersion=abc"),
            &[("accept", PROTOBUF)],
        ),
        (any, &[("accept", "application/yaml")]),
        (format!("{path}/one"), &[]),
    ];
    let (direct, through) = (server.client(), setting.kubefan.client());
    for (path, changes) in rows {
        let what = format!("{path} {changes:?}");
        let both = async {
            tokio::join!(
                exchange(&direct, &path, changes),
                exchange(&through, &path, changes)
            )
        };
        let (wanted, got) = within(&what, STEP, both).await;
        assert!(
            wanted == got,
            "{what}\n--- directly\n{wanted:.2000}\n--- through kubefan\n{got:.2000}"
        );
    }
    let metrics = setting.kubefan.metrics().await;
    let counted = metrics.lines().find(|line| {
        line.starts_with("kubefan_requests_total{")
            && [
                r#"code="101""#,
                r#"outcome="cache""#,
                r#"resource="configmaps""#,
                r#"verb="watch""#,
            ]
            .iter()
            .all(|label| line.contains(label))
    });
    assert!(
        counted.is_some_and(|line| line.ends_with(" 13")),
        "{counted:?}"
    );
}

/// The representations of a watch that a cache answers.
const REPRESENTATIONS: [Changes; 6] = [
    &[],
    &[("accept", PROTOBUF)],
    &[(
        "accept",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )],
    &[(
        "accept",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )],
    &[("accept", TABLE)],
    &[(
        "accept",
        "application/json;as=Table;g=meta.k8s.io;v=v1beta1",
    )],
];

/// The API server is this test's own, because a write to any resource changes the version of the
/// bookmark at the end of the initial events.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watch_lists_and_tables_are_alike() {
    let server = private().await;
    let setting = setting(&server, &[]).await;
    let (direct, through) = (server.client(), setting.kubefan.client());
    let table = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(TABLE))]);
    eventually("Tables of kubefan", STEP, async || {
        let list = through.send(Method::GET, &setting.path, &table, Bytes::new());
        match list.await.headers.contains_key("x-kubefan-proof") {
            true => Ok(()),
            false => Err("they are forwarded"),
        }
    })
    .await;
    let watch = "watch=true&timeoutSeconds=1";
    let initial = format!(
        "{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    for query in [
        initial.clone(),
        format!("{initial}&limit=1"),
        format!("{initial}&fieldSelector=metadata.name%3Dtwo"),
        format!("{initial}&labelSelector=none"),
        format!("{initial}&includeObject=None"),
        format!("{watch}&resourceVersion={}", setting.version),
        format!(
            "{watch}&resourceVersion={}&includeObject=Object",
            setting.version
        ),
    ] {
        let path = format!("{}?{query}", setting.path);
        let compare = async |changes| {
            // Ages, and the newest version, may change between the two answers.
            eventually(&format!("{path} {changes:?}"), STEP, async || {
                let (wanted, got) = tokio::join!(
                    exchange(&direct, &path, changes),
                    exchange(&through, &path, changes)
                );
                let has_end = !query.contains("allowWatchBookmarks")
                    || wanted.contains("k8s.io/initial-events-end");
                match wanted == got && wanted.starts_with("101") && has_end {
                    true => Ok(()),
                    false => Err(format!(
                        "--- directly\n{wanted}\n--- through kubefan\n{got}"
                    )),
                }
            })
            .await;
        };
        join_all(REPRESENTATIONS.map(compare)).await;
    }
    let metrics = setting.kubefan.metrics().await;
    let forwarded = metrics
        .lines()
        .find(|line| line.contains(r#"code="101""#) && line.contains(r#"outcome="forwarded""#));
    assert_eq!(forwarded, None);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn client_messages_are_ignored_except_pings_and_close() {
    let server = shared();
    let setting = setting(server, &[]).await;
    let path = format!(
        "{}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dnone",
        setting.path
    );
    for client in [server.client(), setting.kubefan.client()] {
        let mut socket = open(&client, &path).await;
        socket
            .write_all(&[TEXT, PING].concat())
            .await
            .expect("sent");
        reads(&mut socket, PONG).await;
        socket
            .write_all(&[TEXT, CLOSE].concat())
            .await
            .expect("sent");
        assert_eq!(within("the end", STEP, rest(&mut socket)).await, CLOSED);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_ends_with_its_client_and_with_kubefan() {
    let server = shared();
    let mut setting = setting(server, &["--shutdown-grace-period", "5s"]).await;
    let path = format!(
        "{}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dnone",
        setting.path
    );
    let watchers = async |kubefan: &Kubefan| -> f64 {
        let metrics = kubefan.metrics().await;
        let lines = metrics.lines().filter(|line| {
            line.starts_with("kubefan_watchers{") && line.contains(r#"resource="configmaps""#)
        });
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    let client = setting.kubefan.client();
    let gone = open(&client, &path).await;
    let mut stays = open(&client, &path).await;
    assert_eq!(watchers(&setting.kubefan).await, 2.0);
    drop(gone);
    eventually("one watcher", STEP, async || {
        match watchers(&setting.kubefan).await {
            1.0 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    setting.kubefan.terminate();
    assert_eq!(within("the end", STEP, rest(&mut stays)).await, CLOSED);
    let ended = setting.kubefan.wait_for_exit();
    assert_eq!(ended.code(), Some(0), "{}", setting.kubefan.log());
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn http2_has_no_websockets() {
    let server = shared();
    let setting = setting(server, &[]).await;
    // WebSockets over HTTP/2 need extended CONNECT, which kubefan does not offer.
    let http2 = Client::http2(setting.kubefan.url(), Connector::plain());
    let path = format!(
        "{}?watch=true&resourceVersion=0&timeoutSeconds=1",
        setting.path
    );
    let mut headers = handshake(&http2, &[("connection", ""), ("upgrade", "")]);
    let watched = http2.open(Method::GET, &path, &headers, Bytes::new()).await;
    assert_eq!(watched.expect("an answer").status(), StatusCode::OK);
    headers.insert("upgrade", HeaderValue::from_static("websocket"));
    let refused = http2.open(Method::GET, &path, &headers, Bytes::new()).await;
    // hyper removes the header or kubefan refuses the request; in both cases there is no upgrade.
    let upgraded = refused.is_ok_and(|response| response.status() == 101);
    assert!(!upgraded);
}
