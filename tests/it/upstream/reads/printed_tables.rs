//! kubefan prints a Table only from a filled cache, and only after it has compared its own with the
//! API server's.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::clients::client::{Answer, Client};
use crate::support::normalise::mask_ages;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy, SeenRequest};

/// Further attempts of a read, because kubefan forwards what it cannot prove in time, and the API
/// server changes some objects after they were created.
pub(super) const RETRIES: usize = 2;
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// The header of the API server's own answers that names the flow schema of the request. kubefan's
/// answers from a cache have none.
pub(super) const SCHEDULED_BY: &str = "x-kubernetes-pf-flowschema-uid";
pub(super) const TABLE: HeaderValue =
    HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");

pub(super) async fn table(client: &Client, path: &str) -> Answer {
    let accept = HeaderMap::from_iter([(ACCEPT, TABLE)]);
    let answer = client.send(Method::GET, path, &accept, Bytes::new());
    answer.await.ok()
}

/// Reads a Table like [`table`], from the cache or from the API server, as `cached` says.
pub(super) async fn table_from(client: &Client, path: &str, cached: bool) -> Answer {
    let answer = answered_from(cached, async || table(client, path).await).await;
    assert_eq!(is_cached(&answer), cached, "{path}");
    answer
}

/// Returns the answer to `read`. Repeats the read while the answer is not from the cache, or not
/// from the API server, as `cached` says.
pub(super) async fn answered_from(cached: bool, read: impl AsyncFn() -> Answer) -> Answer {
    let mut answer = read().await;
    for _ in 0..RETRIES {
        if is_cached(&answer) != cached {
            answer = read().await;
        }
    }
    answer
}

/// Reads the answer to a watch-list until its initial events have ended. There
/// are no other bookmarks before.
pub(super) async fn initial_events(client: &Client, path: &str) -> Answer {
    let accept = HeaderMap::from_iter([(ACCEPT, TABLE)]);
    let opened = client.open(Method::GET, path, &accept, Bytes::new()).await;
    let (parts, mut body) = opened.expect("a watch").into_parts();
    let mut lines = Vec::new();
    let read = async {
        while !has_bookmark(&lines) {
            let frame = body.frame().await;
            let frame = frame.unwrap_or_else(|| panic!("{path} has ended"));
            let frame = frame.expect("the connection lasts");
            lines.extend(frame.into_data().expect("no trailers"));
        }
    };
    within(path, LIMIT, read).await;
    let answer = Answer {
        status: parts.status,
        headers: parts.headers,
        body: lines.into(),
    };
    answer.ok()
}

/// Returns true if a stream of complete events ends with a bookmark.
fn has_bookmark(stream: &[u8]) -> bool {
    let Some(lines) = stream.strip_suffix(b"\n") else {
        return false;
    };
    let last = lines.rsplit(|byte| *byte == b'\n').next();
    let event: Value = serde_json::from_slice(last.unwrap_or_default()).expect("an event");
    event["type"] == "BOOKMARK"
}

/// Reads Tables until kubefan answers one from its cache, which a proof shows.
pub(super) async fn printed(client: &Client, path: &str) -> Answer {
    eventually(path, LIMIT, async || {
        let answer = table(client, path).await;
        match answer.header("x-kubefan-proof") {
            Some(_) => Ok(answer),
            None => Err("forwarded"),
        }
    })
    .await
}

/// Returns true if an answer comes from kubefan's cache.
pub(super) fn is_cached(answer: &Answer) -> bool {
    answer.header(SCHEDULED_BY).is_none()
}

/// Returns true for a bookmark, except the bookmark that ends the initial events.
pub(super) fn is_later_bookmark(event: &Value) -> bool {
    let metadata = &event["object"]["rows"][0]["object"]["metadata"];
    event["type"] == "BOOKMARK" && metadata["annotations"].is_null()
}

/// Returns the number of requests that were forwarded for this reason.
pub(super) async fn forwarded(kubefan: &Kubefan, reason: &str) -> f64 {
    metric(
        kubefan,
        "kubefan_requests_total",
        &format!("reason=\"{reason}\""),
    )
    .await
}

/// Returns the sum of a metric over all its labels that contain `label`.
pub(super) async fn metric(kubefan: &Kubefan, name: &str, label: &str) -> f64 {
    let metrics = kubefan.metrics().await;
    let lines = metrics.lines().filter(|line| line.contains(label));
    let values = lines.filter_map(|line| {
        let labels_and_value = line.strip_prefix(name)?.strip_prefix('{')?;
        labels_and_value.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.sum()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_second_table_starts_the_cache_and_none_waits_for_it() {
    let server = shared();
    let namespace = server.namespace("tables").await;
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let service = json!({ "metadata": { "name": "a" }, "spec": { "ports": [{ "port": 80 }] } });
    server.client().create(&path, &service).await.ok();
    let kubefan = Kubefan::start(server, &[]).await;
    let client = kubefan.client();
    // Before kubefan has read the API server's version, even the second Table starts nothing.
    eventually("an informer", LIMIT, async || {
        table(&client, &path).await;
        let informers = metric(&kubefan, "kubefan_cache_objects", "\"services\"").await;
        if informers > 0.0 { Ok(()) } else { Err("none") }
    })
    .await;
    assert!(forwarded(&kubefan, "not_cached").await >= 2.0);
    let got = printed(&client, &path).await;
    let wanted = table(&server.client(), &path).await;
    let rows = |answer: &Answer| mask_ages(&answer.json()["rows"].to_string());
    assert_eq!(rows(&got), rows(&wanted));
    assert_eq!(
        got.json()["columnDefinitions"],
        wanted.json()["columnDefinitions"]
    );
    let checks = metric(&kubefan, "kubefan_table_checks_total", "equal").await;
    assert!(checks >= 1.0, "{checks}");
    assert!(is_cached(&got) && !is_cached(&wanted));
    // A kind that kubefan does not print starts no cache.
    for _ in 0..3 {
        let classes = table(&client, "/apis/storage.k8s.io/v1/storageclasses").await;
        assert!(!is_cached(&classes));
    }
    let classes = metric(&kubefan, "kubefan_cache_objects", "storageclasses").await;
    assert_eq!(classes, 0.0);
}

/// Changes the API server's Tables, if kubefan asks for them itself: other cells of pods,
/// and other columns of ConfigMaps.
fn with_other_cells(seen: &SeenRequest) -> RequestAction {
    let is_check = seen.query("fieldSelector").starts_with("metadata.name=")
        && seen.query("includeObject") == "Object";
    let replace = |from: &'static str, to: &'static str| {
        RequestAction::ChangeFrames(Box::new(move |line| {
            let text = String::from_utf8(line).expect("JSON is UTF-8");
            assert_eq!(from.len(), to.len(), "the length is in a header");
            Some(vec![text.replace(from, to).into_bytes()])
        }))
    };
    match seen.path.rsplit('/').next() {
        Some("pods") if is_check => replace("\"0/1\"", "\"1/1\""),
        Some("configmaps") if is_check => replace("\"name\":\"Age\"", "\"name\":\"Old\""),
        _ => RequestAction::Forward,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_resource_is_forwarded_if_its_table_differs() {
    let server = shared();
    let namespace = server.namespace("tables").await;
    let path = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let pod = json!({
        "metadata": { "name": "a" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/web" }] },
    });
    let direct = server.client();
    direct.create(&path("pods"), &pod).await.ok();
    let map = json!({ "metadata": { "name": "a" } });
    direct.create(&path("configmaps"), &map).await.ok();
    direct.create(&path("secrets"), &map).await.ok();
    let proxy = ScriptedProxy::start(direct.clone(), with_other_cells).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let flags = ["-r", "pods", "-r", "configmaps", "-r", "secrets"];
    let kubefan = Kubefan::start_with(&config, &flags).await;
    let client = kubefan.client();
    for resource in ["pods", "configmaps"] {
        eventually(resource, LIMIT, async || {
            let answer = table(&client, &path(resource)).await;
            assert_eq!(answer.header("x-kubefan-proof"), None, "{resource}");
            let label = format!("resource=\"{resource}\",result=\"different\"");
            let different = metric(&kubefan, "kubefan_table_checks_total", &label).await;
            if different >= 1.0 {
                Ok(())
            } else {
                Err("not compared yet")
            }
        })
        .await;
        let before = forwarded(&kubefan, "table_differs").await;
        let got = table(&client, &path(resource)).await;
        let wanted = table(&direct, &path(resource)).await;
        assert_eq!(
            mask_ages(&got.json()["rows"].to_string()),
            mask_ages(&wanted.json()["rows"].to_string())
        );
        assert_eq!(forwarded(&kubefan, "table_differs").await, before + 1.0);
        let log = kubefan.log();
        assert!(
            log.lines()
                .any(|line| line.contains(&format!("{resource}.v1"))
                    && line.contains("differs from the API server's")),
            "{log}"
        );
    }
    printed(&client, &path("secrets")).await;
}
