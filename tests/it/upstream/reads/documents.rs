//! Discovery and OpenAPI documents: confirmed by the API server, or from memory in an outage.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::support::clients::client::Answer;
use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::CommandOutput;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::Kubefan;

use super::printed_tables::printed;

const SOON: Duration = Duration::from_secs(30);
/// How fast a command fails that the API server would have to answer.
const FAST: Duration = Duration::from_secs(5);
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const OPENAPI_V3: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
/// Documents, their media types, and whether the API server gives them an `ETag`.
const DOCUMENTS: [(&str, &str, bool); 12] = [
    ("/api", AGGREGATED, true),
    ("/apis", AGGREGATED, true),
    ("/apis", "application/json", false),
    ("/apis", PROTOBUF, false),
    ("/apis/apps", "application/json", false),
    ("/apis/apps/v1", "application/json", false),
    ("/api/v1", PROTOBUF, false),
    ("/version", "application/json", false),
    ("/openapi/v2", "application/json", true),
    ("/openapi/v2", OPENAPI_V2, true),
    ("/openapi/v3", "application/json", false),
    ("/openapi/v3/apis/apps/v1", OPENAPI_V3, true),
];

async fn get(client: &Client, path: &str, lines: &[(&'static str, &str)]) -> Answer {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.insert(*name, HeaderValue::from_str(value).expect("a value"));
    }
    client.send(Method::GET, path, &headers, Bytes::new()).await
}

/// The parts of an answer that do not differ from request to request.
fn shown(answer: &Answer) -> (u16, Vec<(String, String)>, Bytes) {
    let varying = |name: &str| {
        ["audit-id", "date", "expires", "last-modified"].contains(&name)
            || name.starts_with("x-kubernetes-pf")
            // Chunks or a length: the library decides.
            || name == "content-length"
            || name == "transfer-encoding"
    };
    let headers = answer.headers.iter();
    let headers = headers.filter(|(name, _)| !varying(name.as_str()));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    headers.sort();
    (answer.status.as_u16(), headers, answer.body.clone())
}

async fn answers(kubefan: &Kubefan, source: &str) -> u64 {
    let line = format!("kubefan_api_documents_total{{source=\"{source}\"}} ");
    let metrics = kubefan.metrics().await;
    let value = metrics.lines().find_map(|found| found.strip_prefix(&line));
    value.map_or(0, |value| value.parse().expect("a number"))
}

fn kubectl(server: &ApiServer, kubefan: &Kubefan) -> Kubectl {
    let config = kubefan.kubeconfig(&User::Anonymous);
    Kubectl::new(server.assets(), &config, "default")
}

async fn run(kubectl: &Kubectl, command: &str) -> CommandOutput {
    let arguments: Vec<_> = command.split(' ').map(str::to_owned).collect();
    kubectl.run(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_confirmed_by_the_api_server() {
    let Some(server) = private().await else {
        return;
    };
    let kubefan = Kubefan::start(&server, &[]).await;
    let (direct, client) = (server.client(), kubefan.client());
    for (path, accept, has_etag) in DOCUMENTS {
        for encoding in ["identity", "gzip"] {
            let case = format!("{path} as {accept} in {encoding}");
            let lines = [("accept", accept), ("accept-encoding", encoding)];
            let before = answers(&kubefan, "confirmed").await;
            let expected = get(&direct, path, &lines).await.ok();
            for _ in 0..2 {
                let answer = get(&client, path, &lines).await;
                let ((status, headers, body), expected) = (shown(&answer), shown(&expected));
                assert_eq!((status, headers), (expected.0, expected.1), "{case}");
                assert!(body == expected.2, "{case}: another body");
            }
            assert_eq!(expected.header("etag").is_some(), has_etag, "{case}");
            let confirmed = answers(&kubefan, "confirmed").await - before;
            assert_eq!(confirmed, u64::from(has_etag), "{case}");
            if let Some(etag) = expected.header("etag") {
                let lines = [lines[0], lines[1], ("if-none-match", etag)];
                let answer = get(&client, path, &lines).await;
                assert_eq!(answer.status, 304, "{case}");
                assert!(answer.body.is_empty(), "{case}");
            }
        }
    }
    let ids = async || {
        let answer = get(&client, "/apis", &[("accept", AGGREGATED)]).await;
        answer.header("audit-id").map(str::to_owned)
    };
    let (first, second) = (ids().await, ids().await);
    assert!(first.is_some() && first != second, "{first:?} {second:?}");
    let stale = get(&client, "/openapi/v3/apis/apps/v1?hash=00", &[]).await;
    assert_eq!(stale.status, 301, "{stale}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_starts_while_the_api_server_is_away() {
    let Some(server) = private().await else {
        return;
    };
    let kubefan = Kubefan::start(&server, &["--freshness", "any"]).await;
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/web" }] },
    });
    let pods = "/api/v1/namespaces/default/pods";
    server.client().create(pods, &pod).await.ok();
    let online = kubectl(&server, &kubefan);
    for command in [
        "api-resources",
        "explain pods.spec",
        "version",
        "get namespaces -o name",
    ] {
        let output = run(&online, command).await;
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
    }
    // Not through kubefan, which would then fetch them in another format too.
    let index = server.client().get("/openapi/v3").await.ok().json();
    let index = index["paths"].as_object().expect("paths").len();
    eventually("all schemas", SOON, async || {
        let metrics = kubefan.metrics().await;
        let count = "kubefan_api_documents_fetched_total ";
        let fetched = metrics.lines().find_map(|line| line.strip_prefix(count));
        let fetched: usize = fetched.map_or(0, |value| value.parse().expect("a number"));
        // A client has read two of them. Some are no documents of a group.
        (fetched + 4 >= index)
            .then_some(())
            .ok_or_else(|| format!("{fetched} of {index}"))
    })
    .await;
    for path in ["/api/v1/namespaces", pods] {
        printed(&kubefan.client(), path).await;
    }
    server.stop();
    eventually("no advice to repeat a request", SOON, async || {
        let answer = kubefan.client().get(STORAGE_CLASSES).await;
        let says_later = answer.header("retry-after").is_some();
        (answer.status == 503 && !says_later)
            .then_some(())
            .ok_or(answer)
    })
    .await;
    // It has no documents of its own.
    let offline = kubectl(&server, &kubefan);
    for (command, expected) in [
        ("api-resources", "deployments"),
        ("explain pods.spec", "nodeName"),
        ("explain deployments.spec", "replicas"),
        ("version", "Server Version"),
        ("get namespaces -o name", "namespace/default"),
        ("get namespaces", "Active"),
        ("get pods", "Pending"),
        ("get pod web", "Pending"),
    ] {
        let output = run(&offline, command).await;
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
        assert!(
            output.stdout.contains(expected),
            "{command}: {}",
            output.stdout
        );
        let is_warned = output.stderr.contains("the API server does not answer");
        assert!(
            is_warned || command.starts_with("get"),
            "{command}: {}",
            output.stderr
        );
    }
    for command in [
        "create configmap new",
        "logs web",
        "get storageclasses",
        "delete pod web",
    ] {
        let started = Instant::now();
        let output = run(&offline, command).await;
        // client-go would repeat the request for ten seconds.
        assert!(
            started.elapsed() < FAST,
            "{command}: {:?}",
            started.elapsed()
        );
        assert_eq!(output.code, Some(1), "{command}");
        let is_clear = output.stderr.contains("cannot reach the API server");
        assert!(is_clear, "{command}: {}", output.stderr);
    }
    server.start_again().await;
    eventually("a new answer", SOON, async || {
        let before = answers(&kubefan, "outage").await;
        let answer = get(&kubefan.client(), "/apis", &[("accept", AGGREGATED)]).await;
        let after = answers(&kubefan, "outage").await;
        (answer.status == 200 && before == after)
            .then_some(())
            .ok_or(after)
    })
    .await;
}
