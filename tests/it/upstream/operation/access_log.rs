//! The access log: a line for each request, with the bytes that its client received.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::support::poll::eventually;
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubefan::Kubefan;

const STEP: Duration = Duration::from_secs(30);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Returns the lines of the request with this audit ID.
fn lines(path: &Path, audit_id: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("a line"));
    lines.filter(|line| line["auditID"] == audit_id).collect()
}

async fn line(path: &Path, audit_id: &str) -> Value {
    eventually(audit_id, STEP, async || {
        let mut lines = lines(path, audit_id);
        assert!(lines.len() <= 1, "{lines:?}");
        lines.pop().ok_or("no line")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_request_has_a_line_with_the_bytes_of_its_answer() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("access");
    let flags = ["--access-log-path", log.to_str().expect("text")];
    let kubefan = Kubefan::start(server, &flags).await;
    let namespace = format!(
        "/api/v1/namespaces/{}",
        server.namespace("access-log").await
    );
    let path = format!("{namespace}/configmaps");
    let data = json!({ "text": "long ".repeat(40_000) });
    let object = json!({ "metadata": { "name": "long" }, "data": data });
    server.client().create(&path, &object).await.ok();
    let cached = format!("{path}?resourceVersion=0");
    let client = kubefan.client().with("user-agent", "a \"quoted\" agent");
    eventually("the object in the cache", STEP, async || {
        let list = client.get(&cached).await.ok().to_string();
        list.contains("long long").then_some(()).ok_or(list)
    })
    .await;
    // Each row: the name, the path, whether gzip is accepted, and the outcome and its reason.
    for (name, path, is_gzip, outcome, reason) in [
        ("list", cached.clone(), false, "cache", None),
        ("gzip", cached.clone(), true, "cache", None),
        (
            "get",
            format!("{path}/long?resourceVersion=0"),
            false,
            "cache",
            None,
        ),
        (
            "watch",
            format!("{cached}&watch=1&timeoutSeconds=1"),
            false,
            "cache",
            None,
        ),
        (
            "forwarded",
            format!("{path}/long"),
            false,
            "forwarded",
            Some("consistent"),
        ),
        (
            "a name with escapes",
            format!("{path}/a%0A%22b?resourceVersion=0"),
            false,
            "forwarded",
            Some("wrong_path"),
        ),
        (
            "refused",
            "/api/v1/namespaces/a%2Fb".to_owned(),
            false,
            "rejected",
            None,
        ),
    ] {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let mut client = client.with("audit-id", name).with("traceparent", &parent);
        if is_gzip {
            client = client.with("accept-encoding", "gzip");
        }
        let answer = client.get(&path).await;
        assert_eq!(
            answer.header("content-encoding").is_some(),
            is_gzip,
            "{name}"
        );
        let line = line(&log, name).await;
        let (shown, query) = path.split_once('?').unwrap_or((&path, ""));
        assert_eq!(line["path"], shown, "{line}");
        assert_eq!(line["query"].as_str().unwrap_or_default(), query, "{line}");
        assert_eq!(line["status"], answer.status.as_u16(), "{line}");
        assert_eq!(line["bytes"], answer.body.len(), "{line}");
        assert_eq!(line["outcome"], outcome, "{line}");
        assert_eq!(line["reason"].as_str(), reason, "{line}");
        assert_eq!(line["end"], "complete", "{line}");
        assert_eq!(line["traceID"], TRACE, "{line}");
        assert_eq!(line["userAgent"], "a \"quoted\" agent", "{line}");
        let [head, whole] = ["timeToHead", "duration"].map(|key| line[key].as_f64());
        assert!(head.is_some() && head <= whole, "{line}");
    }
    let none = HeaderMap::new();
    let leaving = client.with("audit-id", "left");
    let watch = format!("{cached}&watch=1");
    let answer = leaving.open(Method::GET, &watch, &none, Bytes::new()).await;
    drop(answer.expect("a watch"));
    let line = line(&log, "left").await;
    assert_eq!(line["end"], "client_gone", "{line}");
    assert_eq!(line["verb"], "watch", "{line}");
}
