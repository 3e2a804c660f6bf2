//! Discovery and OpenAPI documents: confirmed by the API server, or from memory in an outage.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::printed_tables::{is_cached, printed, table};
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, READER, metric, private, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::{CommandOutput, Kubectl};
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::scripted_proxy::{
    RequestAction, ScriptedProxy, SeenRequest, forward_all,
};

const SOON: Duration = Duration::from_secs(30);
/// How long kubefan may take to fetch all documents of OpenAPI v3.
const PREFETCH: Duration = Duration::from_secs(10);
/// How fast a command fails that the API server would have to answer.
const FAST: Duration = Duration::from_secs(5);
/// The number of concurrent requests for one document.
const AT_ONCE: usize = 50;
/// The number of concurrent calls for one document that kubefan makes.
const IN_FLIGHT: usize = 2;
/// The `User-Agent` of this test's requests, which the proxy counts separately from kubefan's own.
const PROBE: &str = "kubefan-it-probe";
const UNREACHABLE: &str = "cannot reach the API server";
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

/// Returns the parts of an answer that do not differ from request to request.
fn shown(answer: &Answer) -> (u16, Vec<(String, String)>, Bytes) {
    let varying = |name: &str| {
        ["audit-id", "cache-status", "date"].contains(&name)
            || ["expires", "last-modified"].contains(&name)
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

/// Runs a command that needs the API server, which does not answer. `message` is what kubectl says.
async fn fails_fast(kubectl: &Kubectl, command: &str, message: &str) {
    let started = Instant::now();
    let output = run(kubectl, command).await;
    // client-go would repeat the request for ten seconds.
    let took = started.elapsed();
    assert!(took < FAST, "{command}: {took:?}");
    assert_eq!(output.code, Some(1), "{command}: {}", output.stdout);
    let is_clear = output.stderr.contains(message);
    assert!(is_clear, "{command}: {}", output.stderr);
}

/// Waits until kubefan gives no advice any more to repeat a request that needs the API server.
async fn outage_is_noticed(client: &Client) {
    eventually("no advice to repeat a request", SOON, async || {
        let answer = client.get(STORAGE_CLASSES).await;
        let says_later = answer.header("retry-after").is_some();
        (answer.status == 503 && !says_later)
            .then_some(())
            .ok_or(answer)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn documents_are_confirmed_by_the_api_server() {
    let server = private().await;
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
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn kubectl_starts_while_the_api_server_is_away() {
    let server = private().await;
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
    eventually("all schemas", PREFETCH, async || {
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
    outage_is_noticed(&kubefan.client()).await;
    // This kubectl has cached no documents.
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
        fails_fast(&offline, command, UNREACHABLE).await;
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

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn authenticated_callers_use_kubectl_while_the_api_server_is_away() {
    let server = private().await;
    // Before kubefan starts: it does not rely on decisions that are as old as a change of rights.
    let verbs = ["get", "list", "watch", "create", "delete"];
    server.allow_reader("default", &verbs, &["pods"]).await;
    let flags = [
        // Over plain HTTP, kubectl sends no credentials.
        &["--tls-self-signed", "--auth", "caller"][..],
        &["--freshness", "any", "--authorization-stale", "10m"],
    ];
    let kubefan = Kubefan::start(&server, &flags.concat()).await;
    eventually("the watches of roles", SOON, async || {
        match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            4.0 => Ok(()),
            found => Err(format!("{found} of 4")),
        }
    })
    .await;
    let authority = kubefan.authority().expect("a CA");
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let as_reader = Client::new(kubefan.url(), connector).as_token(READER);
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": "main", "image": "example.com/web" }] },
    });
    let pods = "/api/v1/namespaces/default/pods";
    server.client().create(pods, &pod).await.ok();
    eventually("a cached Table", SOON, async || {
        let answer = table(&as_reader, pods).await;
        is_cached(&answer).then_some(()).ok_or("forwarded")
    })
    .await;
    let of_reader = kubefan.kubeconfig_named("reader", &User::Token(READER));
    let of_admin = kubefan.kubeconfig_named("admin", &User::Token(ADMIN));
    let kubectl = |config| Kubectl::new(server.assets(), config, "default");
    let commands = [
        ("api-resources", "deployments"),
        ("explain pods.spec", "nodeName"),
        ("version", "Server Version"),
        ("get pods", "Pending"),
        ("get pods -o wide", "NOMINATED NODE"),
        ("get pod web", "Pending"),
        ("get pods -l app!=other -o name", "pod/web"),
    ];
    let online = kubectl(&of_reader);
    for (command, expected) in commands {
        let output = run(&online, command).await;
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
        assert!(output.stdout.contains(expected), "{command}: {output:?}");
    }
    server.stop();
    outage_is_noticed(&as_reader).await;
    // This kubectl has cached no documents.
    let offline = kubectl(&of_reader);
    for (command, expected) in commands {
        let output = run(&offline, command).await;
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
        assert!(output.stdout.contains(expected), "{command}: {output:?}");
    }
    for command in [
        "get storageclasses",
        "get configmaps",
        "create configmap new",
        "logs web",
        "delete pod web",
    ] {
        fails_fast(&offline, command, UNREACHABLE).await;
    }
    // Another user has read nothing before, whatever its rights are. kubectl shows no server's
    // reason why there is no discovery.
    let message = "unable to handle the request";
    fails_fast(&kubectl(&of_admin), "get pods", message).await;
}

/// Starts a kubefan behind a proxy.
async fn behind(proxy: &ScriptedProxy, directory: &TempDir) -> Kubefan {
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    Kubefan::start_with(&config, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn concurrent_requests_for_a_document_share_those_to_the_api_server() {
    let server = shared();
    let releases = [(); IN_FLIGHT].map(|()| Arc::new(Notify::new()));
    let to_hold = Arc::new(Mutex::new(Vec::new()));
    let held = Arc::clone(&to_hold);
    let proxy = ScriptedProxy::start(server.client(), move |seen| {
        let is_probe = seen.path == "/apis" && seen.header("user-agent") == PROBE;
        let hold = is_probe.then(|| held.lock().pop()).flatten();
        hold.map_or(RequestAction::Forward, RequestAction::Wait)
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubefan = behind(&proxy, &directory).await;
    let client = kubefan.client().with("user-agent", PROBE);
    let lines = [("accept", AGGREGATED), ("accept-encoding", "gzip")];
    let known = get(&client, "/apis", &lines).await.ok();
    let seen = || {
        let seen = proxy.seen();
        let is_probe = |seen: &&SeenRequest| seen.header("user-agent") == PROBE;
        seen.iter().filter(is_probe).cloned().collect::<Vec<_>>()
    };
    assert_eq!(seen().len(), 1);
    *to_hold.lock() = releases.to_vec();
    let mut first = Vec::new();
    for number in 0..IN_FLIGHT {
        let client = client.clone();
        first.push(tokio::spawn(
            async move { get(&client, "/apis", &lines).await },
        ));
        eventually("a request to the API server", SOON, async || {
            let count = seen().len();
            (count == number + 2).then_some(()).ok_or(count)
        })
        .await;
    }
    let others = join_all((IN_FLIGHT..AT_ONCE).map(|_| get(&client, "/apis", &lines)));
    let all_wait = eventually("waiting requests", SOON, async || {
        let metrics = kubefan.metrics().await;
        let seats = "kubefan_inflight_requests ";
        let waiting = metrics.lines().find_map(|line| line.strip_prefix(seats));
        let waiting: usize = waiting.map_or(0, |value| value.parse().expect("a number"));
        let is_all = waiting >= AT_ONCE;
        is_all.then_some(()).ok_or(waiting)
    });
    let release = async {
        all_wait.await;
        for release in &releases {
            release.notify_one();
        }
    };
    let (mut all, ()) = tokio::join!(others, release);
    for first in first {
        all.push(first.await.expect("an answer"));
    }
    for answer in &all {
        assert_eq!(answer.status, 200, "{answer}");
        assert!(answer.body == known.body, "another body");
    }
    // The calls that were held, and one call for all requests after them. The last request may have
    // come when that call was sent already.
    let seen = seen();
    let expected = IN_FLIGHT + 2..=IN_FLIGHT + 3;
    assert!(expected.contains(&seen.len()), "{seen:?}");
    let is_conditional = |seen: &SeenRequest| !seen.header("if-none-match").is_empty();
    assert!(seen[1..].iter().all(is_conditional), "{seen:?}");
    assert!(answers(&kubefan, "confirmed").await >= AT_ONCE as u64);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn schemas_are_fetched_in_the_format_that_clients_read() {
    let server = private().await;
    let proxy = ScriptedProxy::start(server.client(), forward_all).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubefan = behind(&proxy, &directory).await;
    let client = kubefan.client();
    let lines = [("accept", OPENAPI_V3), ("accept-encoding", "gzip")];
    get(&client, "/openapi/v3", &lines).await.ok();
    let index: Value = server.client().get("/openapi/v3").await.ok().json();
    let paths = index["paths"].as_object().expect("paths").values();
    let urls = paths.map(|entry| entry["serverRelativeURL"].as_str().expect("a URL"));
    let is_of_discovery = |url: &&str| url.starts_with("/openapi/v3/api");
    let urls: Vec<_> = urls.filter(is_of_discovery).collect();
    assert!(urls.len() > 20, "{urls:?}");
    get(&client, urls[0], &lines).await.ok();
    let fetched = || {
        let mut paths = HashSet::new();
        for seen in proxy.seen() {
            if seen.header("accept") == OPENAPI_V3 {
                paths.insert(seen.path);
            }
        }
        paths
    };
    eventually("all schemas", PREFETCH, async || {
        let fetched = fetched();
        let path = |url: &str| url.split('?').next().unwrap_or_default().to_owned();
        let missing = urls.iter().find(|url| !fetched.contains(&path(url)));
        missing.map_or(Ok(()), Err)
    })
    .await;
}
