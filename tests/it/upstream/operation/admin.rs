//! The admin listener beyond loopback: probes need no credentials, and metrics need a token of a
//! user that may get the API server's own.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(20);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WHY: &str = "/admin/v1/why?path=/version";
const DETAILS: [&str; 2] = ["/metrics", "/readyz?verbose"];

/// Creates a service account that may get the paths `may_get`, and returns a token of it.
pub(super) async fn account(
    server: &ApiServer,
    namespace: &str,
    name: &str,
    may_get: &[&str],
) -> String {
    let admin = server.client();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let metadata = json!({"metadata": {"name": name}});
    admin.create(&accounts, &metadata).await.ok();
    if !may_get.is_empty() {
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        allow_paths(server, &format!("{namespace}-{name}"), may_get, &subject).await;
    }
    let token = format!("{accounts}/{name}/token");
    let answer = admin.create(&token, &json!({"spec": {}})).await.ok();
    let token = answer.json()["status"]["token"].take();
    token.as_str().expect("a token").to_owned()
}

/// Lets `subject` get the paths `may_get`, by a new role and a new binding, both with this name.
pub(super) async fn allow_paths(server: &ApiServer, name: &str, may_get: &[&str], subject: &Value) {
    let metadata = json!({"name": name});
    let role = json!({
        "metadata": metadata,
        "rules": [{"nonResourceURLs": may_get, "verbs": ["get"]}],
    });
    let binding = json!({
        "metadata": metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": name,
        },
        "subjects": [subject],
    });
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("{RBAC}/{kind}");
        server.client().create(&path, &object).await.ok();
    }
}

/// Writes a kubeconfig with a token of a service account that has only the rights of all users.
async fn without_rights(server: &ApiServer, namespace: &str) -> PathBuf {
    let token = account(server, namespace, "kubefan", &[]).await;
    let path = server.directory().join(format!("{namespace}-kubefan"));
    let authority = Some(server.authority());
    kubeconfig::write(&path, &server.url(), authority, &User::Token(&token));
    path
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn metrics_need_a_token_with_the_right_and_probes_need_none() {
    let server = shared();
    let namespace = server.namespace("scraped").await;
    let scraper = account(server, &namespace, "scraper", &["/metrics"]).await;
    let stranger = account(server, &namespace, "stranger", &[]).await;
    let admin = server.kubeconfig("admin");
    // With the callers' own tokens kubefan needs no right to review them.
    let powerless = without_rights(server, &namespace).await;
    let everywhere = ["--admin-listen", "0.0.0.0:0"];
    for (kubeconfig, flags) in [
        (&powerless, &["--admin-tls-self-signed"][..]),
        (&powerless, &["--tls-self-signed"]),
        (&admin, &["--tls-self-signed", "--auth", "delegated"]),
        (&powerless, &["--tls-self-signed", "--auth", "none"]),
    ] {
        let flags = [flags, &everywhere].concat();
        let kubefan = Kubefan::start_with(kubeconfig, &flags).await;
        let connector = match kubefan.authority() {
            // The certificate for clients.
            Some(authority) => Connector::tls(&authority, None, &["h2", "http/1.1"]),
            None => Connector::unverified(),
        };
        let url = kubefan.admin_url().replace("0.0.0.0", "127.0.0.1");
        assert!(url.starts_with("https:"), "{flags:?}: {url}");
        let caller = Client::new(&url, connector);
        let index = caller.get("/").await.ok();
        let index = String::from_utf8_lossy(&index.body).into_owned();
        let paths = index
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let paths: Vec<_> = paths.collect();
        let expected = [
            "/livez",
            "/readyz",
            "/readyz?verbose",
            "/metrics",
            "/admin/v1/openapi.json",
            "/",
        ];
        assert_eq!(paths, expected);
        for probe in ["/livez", "/healthz", "/readyz", "/dashboard/main.js"] {
            for caller in [&caller, &caller.as_token(&stranger)] {
                let answer = caller.get(probe).await;
                assert_eq!(answer.status, 200, "{flags:?} {probe}: {answer}");
            }
        }
        for path in DETAILS {
            for refused in [&caller, &caller.as_token("wrong")] {
                let answer = refused.get(path).await;
                assert_eq!(answer.status, 401, "{flags:?} {path}: {answer}");
            }
            let answer = caller.as_token(&stranger).get(path).await;
            assert_eq!(answer.status, 403, "{flags:?} {path}: {answer}");
            // The API server refuses its own metrics in these words.
            let direct = server.anonymous().as_token(&stranger).get("/metrics").await;
            let words = direct.json()["message"].take();
            let words = words.as_str().expect("a message");
            assert!(answer.to_string().contains(words), "{answer}, not {words}");
            // The API server's authorizer learns of a new role through a separate cache.
            eventually("the right", LIMIT, async || {
                let answer = caller.as_token(&scraper).get(path).await.is(200)?;
                match answer.to_string().contains("serving") || path == "/metrics" {
                    true => Ok(()),
                    false => Err(answer.to_string()),
                }
            })
            .await;
        }
        let metrics = caller.as_token(&scraper).get("/metrics").await.ok();
        let reviews = "kubefan_reviews_total{";
        assert!(metrics.to_string().contains(reviews), "{metrics}");
        let end = "kubefan_serving_certificate_expiration_timestamp_seconds{listener=\"admin\"} ";
        assert!(metrics.to_string().contains(end), "{metrics}");
        assert!(
            metrics.to_string().contains("\nkubefan_ready 1\n"),
            "{metrics}"
        );
        assert_eq!(caller.as_token(&scraper).get("/nosuch").await.status, 404);
        let memory = caller.as_token(&scraper).get("/admin/v1/memory").await;
        assert_eq!(memory.status, 200, "{flags:?}: {memory}");
        let why = caller.as_token(&scraper).get(WHY).await;
        let are_authenticated = flags.contains(&"--tls-self-signed") && !flags.contains(&"none");
        let expected = if are_authenticated { 200 } else { 403 };
        assert_eq!(why.status, expected, "{flags:?}: {why}");
        assert!(plain_http(&url).await.starts_with("HTTP/1.0 400 "));
    }
}

/// Sends a request without TLS, and returns the answer.
async fn plain_http(url: &str) -> String {
    let address = url.strip_prefix("https://").expect("a URL");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.expect("it is sent");
    let mut answer = String::new();
    let read = within("the answer", LIMIT, stream.read_to_string(&mut answer));
    read.await.expect("text");
    answer
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_operator_may_let_everyone_read_the_metrics() {
    let server = shared();
    let exposed = "--admin-insecure-expose-to-network";
    let flags = ["--tls-self-signed", "--admin-listen", "0.0.0.0:0", exposed];
    let kubefan = Kubefan::start(server, &flags).await;
    assert!(kubefan.admin_url().starts_with("http:"), "{kubefan:?}");
    for path in DETAILS {
        kubefan.admin().get(path).await.ok();
    }
    for name in ["clients", "users", "config", "bill", "why?path=/version"] {
        let answer = kubefan.admin().get(&format!("/admin/v1/{name}")).await;
        assert_eq!(answer.status, 403, "{name}: {answer}");
        assert!(
            answer.to_string().contains("insecureExposeToNetwork"),
            "{answer}"
        );
    }
    let warning = "anyone who reaches this address reads the metrics";
    assert!(kubefan.log().contains(warning), "{}", kubefan.log());
}

/// Checks a scraper with a client certificate, which kubefan asks for on this listener too.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_client_certificate_may_have_the_right_too() {
    let server = shared();
    let flags = ["--tls-self-signed", "--admin-listen", "0.0.0.0:0"];
    let kubefan = Kubefan::start(server, &flags).await;
    let url = kubefan.admin_url().replace("0.0.0.0", "127.0.0.1");
    let authority = kubefan.authority().expect("kubefan serves TLS");
    for (group, expected) in [("system:masters", 200), ("none", 403)] {
        let identity = server.certificate("scraper", group);
        let connector = Connector::tls(&authority, Some(&identity), &["http/1.1"]);
        let client = Client::new(&url, connector);
        let answer = client.get("/metrics").await;
        assert_eq!(answer.status, expected, "{group}: {answer}");
    }
}
