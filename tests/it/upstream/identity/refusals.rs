//! The answers to refused callers: they are the API server's answers.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use super::identities::{TOKENS, grant};
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::certificates::Authority;
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(20);
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

async fn kubefan(server: &ApiServer, flags: &[&str]) -> (Kubefan, String) {
    let mut all = vec![
        "--auth",
        "caller",
        "--tls-self-signed",
        "--all",
        "--cache-secrets",
    ];
    all.extend(flags);
    let kubefan = Kubefan::start(server, &all).await;
    let authority = fs::read_to_string(kubefan.file(".local/state/kubefan/tls/ca.crt"));
    (kubefan, authority.expect("kubefan's CA"))
}

/// Returns the parts of an answer that must be the API server's: all but the headers that the API
/// server makes anew for each request.
fn own(answer: &Answer) -> (StatusCode, Bytes, Vec<(String, String)>) {
    let headers = answer.headers.iter();
    let headers = headers.map(|(name, value)| {
        let value = value.to_str().expect("text").to_owned();
        (name.as_str().to_owned(), value)
    });
    let is_own = |(name, _): &(String, String)| {
        !["audit-id", "cache-status", "date"].contains(&name.as_str())
            && !name.starts_with("x-kubernetes-pf-")
    };
    let mut headers: Vec<_> = headers.filter(is_own).collect();
    headers.sort();
    (answer.status, answer.body.clone(), headers)
}

async fn forwarded(kubefan: &Kubefan) -> f64 {
    let labels = [("outcome", "forwarded")];
    metric(&kubefan.admin(), "kubefan_requests_total", &labels).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn refusals_are_the_api_servers_own_and_cost_it_one_call() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let (kubefan, authority) = kubefan(&server, &[]).await;
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let ours = Client::new(kubefan.url(), connector);
    let (reader, direct) = (
        ours.as_token("ns-reader-token"),
        server.anonymous().as_token("ns-reader-token"),
    );
    let header = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a header value"));
        headers
    };
    let get = async |client: &Client, path: &str, headers: &HeaderMap| {
        let answer = client.send(http::Method::GET, path, headers, Bytes::new());
        answer.await
    };
    for path in [
        "/api/v1/secrets?resourceVersion=0",
        "/api/v1/namespaces/default/secrets/a?resourceVersion=0",
        "/api/v1/namespaces/default/secrets?watch=1",
        "/apis/apps/v1/deployments?labelSelector=a%3Db",
    ] {
        for headers in [
            HeaderMap::new(),
            header("accept", "application/vnd.kubernetes.protobuf"),
            header("user-agent", "curl/8"),
        ] {
            let expected = get(&direct, path, &headers).await;
            assert_eq!(expected.status, 403, "{expected}");
            let mut audit_ids = Vec::new();
            let before = forwarded(&kubefan).await;
            for _ in 0..10 {
                let found = get(&reader, path, &headers).await;
                assert_eq!(own(&found), own(&expected), "{path} {headers:?}");
                audit_ids.push(found.header("audit-id").expect("an ID").to_owned());
            }
            audit_ids.sort();
            audit_ids.dedup();
            assert_eq!(audit_ids.len(), 10, "each answer has an ID of its own");
            // More than one only if the machine was so slow that the first was forgotten.
            let cost = forwarded(&kubefan).await - before;
            assert!(
                cost <= 3.0,
                "{path} {headers:?}: {cost} calls for 10 answers"
            );
            let admin = ours.as_token("admin-token");
            let others = get(&admin, path.trim_end_matches("?watch=1"), &headers).await;
            assert_ne!(others.status, 403, "{others}");
        }
    }
    // A right that was granted is seen after the denial is forgotten.
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let subject = json!({"apiGroup": RBAC_GROUP, "kind": "User", "name": "ns-reader"});
    grant(&server.client(), None, "all", &rules, &subject).await;
    eventually("the granted right", LIMIT, async || {
        let answer = reader.get("/api/v1/secrets?resourceVersion=0").await;
        answer.is(200).map(|_| ())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_401_for_a_token_ends_its_reads_from_the_cache() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let admin = server.client();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"metadata": {"name": "agent"}});
    admin.create(accounts, &account).await.ok();
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let subject = json!({"kind": "ServiceAccount", "name": "agent", "namespace": "default"});
    grant(&admin, None, "agents", &rules, &subject).await;
    let path = format!("{accounts}/agent/token");
    let token = admin.create(&path, &json!({"spec": {}})).await.ok().json();
    let token = token["status"]["token"].as_str().expect("a token");
    // Longer than this test: only the 401 can end what is remembered.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let ttl = "authentication:\n  tokenTtl: 10m\nauthorization:\n  allowedTtl: 10m\n";
    fs::write(&file, ttl).expect("room");
    let file = file.path().to_str().expect("a path").to_owned();
    let (kubefan, authority) = kubefan(&server, &["--config", &file]).await;
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let agent = Client::new(kubefan.url(), connector).as_token(token);
    let cached = "/api/v1/namespaces/default/pods?resourceVersion=0";
    agent.get(cached).await.ok();
    admin.delete(&format!("{accounts}/agent")).await.ok();
    // The API server itself remembers tokens for some seconds.
    eventually("the 401", LIMIT, async || {
        agent
            .get("/api/v1/namespaces/default/pods/a/log")
            .await
            .is(401)
            .map(|_| ())
    })
    .await;
    assert_eq!(agent.get(cached).await.status, 401);
}

/// What happened on an HTTP/2 connection of a watch when another stream read something.
#[derive(Debug, PartialEq)]
struct Beside {
    /// The status of the other stream.
    status: u16,
    does_watch_go_on: bool,
    /// Whether the connection took a further request.
    is_next_answered: bool,
}

/// Reads `path` with `token`, or without credentials, on the HTTP/2 connection of a watch.
async fn beside_a_watch(
    server: &ApiServer,
    (url, authority): (&str, &str),
    (path, token): (&str, Option<&str>),
    name: &str,
) -> Beside {
    let connector = Connector::tls(authority, None, &["h2"]);
    let stream = connector.dial(url, std::net::Ipv4Addr::LOCALHOST).await;
    let stream = TokioIo::new(stream.expect("a connection"));
    let (mut requests, connection) =
        http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), stream)
            .await
            .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let request = |path: &str, token: Option<&str>| {
        let mut request = Request::get(format!("{url}{path}"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Empty::new()).expect("a request")
    };
    let admin = Some("admin-token");
    let watched = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=60";
    let watch = requests.send_request(request(watched, admin)).await;
    let mut watch = watch.expect("a watch").into_body();
    let answer = requests.send_request(request(path, token)).await;
    let answer = answer.expect("an answer");
    let status = answer.status().as_u16();
    answer.into_body().collect().await.expect("a body");
    let object = json!({"metadata": {"name": name}});
    let path = "/api/v1/namespaces/default/configmaps";
    server.client().create(path, &object).await.ok();
    let seen = async {
        loop {
            let frame = watch.frame().await.expect("an event").expect("an event");
            let data = frame.into_data().unwrap_or_default();
            let events = serde_json::Deserializer::from_slice(&data).into_iter::<Value>();
            for event in events {
                let event = event.expect("whole events in a frame");
                if event["object"]["metadata"]["name"] == name {
                    return true;
                }
            }
        }
    };
    let does_watch_go_on = within("the event", LIMIT, seen).await;
    let next = requests.send_request(request("/version", admin));
    let is_next_answered = within("the next request", LIMIT, next).await.is_ok();
    drop((requests, watch));
    connection.abort();
    Beside {
        status,
        does_watch_go_on,
        is_next_answered,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn bad_and_missing_credentials_end_their_http2_connection_after_the_other_streams() {
    let map = "/api/v1/namespaces/default/configmaps/a";
    let maps = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
    let (wrong, weak) = (Some("wrong-token"), Some("ns-reader-token"));
    // What is read, the status, and whether the connection takes further requests.
    let with_anonymous = [
        (map, wrong, 401, false),
        ("/version", None, 200, false),
        (map, None, 403, false),
        (maps, None, 403, false),
        (map, weak, 403, true),
        (map, Some("admin-token"), 404, true),
    ];
    let without_anonymous = [("/version", None, 401, false), (maps, None, 401, false)];
    for (flag, rows) in [
        ("--anonymous-auth=true", &with_anonymous[..]),
        ("--anonymous-auth=false", &without_anonymous),
    ] {
        let server = private_with_tokens(TOKENS, &[flag]).await;
        let (kubefan, authority) = kubefan(&server, &[]).await;
        let both = [
            (server.url(), server.authority()),
            (kubefan.url().to_owned(), authority.as_str()),
        ];
        for (number, (path, token, status, is_next_answered)) in rows.iter().enumerate() {
            for (at, (url, authority)) in both.iter().enumerate() {
                let name = format!("map-{number}-{at}");
                let read = (*path, *token);
                let found = beside_a_watch(&server, (url, authority), read, &name).await;
                let expected = Beside {
                    status: *status,
                    does_watch_go_on: true,
                    is_next_answered: *is_next_answered,
                };
                assert_eq!(found, expected, "{url} {path} {token:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_anonymous_read_of_a_cache_ends_its_http2_connection() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let subject = json!({"apiGroup": RBAC_GROUP, "kind": "User", "name": "system:anonymous"});
    grant(&server.client(), None, "anyone", &rules, &subject).await;
    let (kubefan, authority) = kubefan(&server, &["--anonymous-auth"]).await;
    let at = (kubefan.url(), authority.as_str());
    let maps = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
    let found = beside_a_watch(&server, at, (maps, None), "cached").await;
    let expected = Beside {
        status: 200,
        does_watch_go_on: true,
        is_next_answered: false,
    };
    assert_eq!(found, expected);
    let labels = [("outcome", "cache"), ("verb", "list")];
    let cached = metric(&kubefan.admin(), "kubefan_requests_total", &labels).await;
    assert_eq!(cached, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_front_proxy_names_users_in_the_headers_that_the_api_server_publishes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxies = Authority::new();
    let file = directory.path().join("proxies.pem");
    fs::write(&file, &proxies.certificate).expect("room");
    let flags = [
        format!("--requestheader-client-ca-file={}", file.display()),
        "--requestheader-allowed-names=front".to_owned(),
        "--requestheader-username-headers=X-Custom-User".to_owned(),
        "--requestheader-group-headers=X-Custom-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Custom-Extra-".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = private_with_tokens(TOKENS, &flags).await;
    let admin = server.client();
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let group = |name: &str| json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": name});
    grant(
        &admin,
        None,
        "accounts",
        &rules,
        &group("system:serviceaccounts"),
    )
    .await;
    grant(&admin, None, "readers", &rules, &group("readers")).await;
    eventually("the published headers", LIMIT, async || {
        let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let published = admin.get(path).await.is(200)?.json();
        let headers = &published["data"]["requestheader-username-headers"];
        let headers = headers.as_str().unwrap_or_default();
        headers
            .contains("X-Custom-User")
            .then_some(())
            .ok_or_else(|| published.to_string())
    })
    .await;
    let (kubefan, authority) = kubefan(&server, &[]).await;
    let front = proxies.client("front", "any");
    let both = [
        (kubefan.url(), authority.as_str()),
        (&server.url(), server.authority()),
    ]
    .map(|(url, authority)| {
        Client::new(url, Connector::tls(authority, Some(&front), &["http/1.1"]))
    });
    let account = "system:serviceaccount:default:builder";
    let rows: &[(&[(&'static str, &str)], u16)] = &[
        (
            &[("x-custom-user", "jane"), ("x-custom-group", "readers")],
            200,
        ),
        (&[("x-custom-user", "jane")], 403),
        // The usual names mean nothing here.
        (
            &[("x-remote-user", "jane"), ("x-remote-group", "readers")],
            401,
        ),
        (
            &[("x-custom-user", "jane"), ("x-remote-group", "readers")],
            403,
        ),
        // The proxy names the account without its groups, so it does not have them.
        (&[("x-custom-user", account)], 403),
        (
            &[
                ("x-custom-user", account),
                ("x-custom-group", "system:serviceaccounts"),
            ],
            200,
        ),
    ];
    for path in [
        "/api/v1/namespaces/default/secrets?resourceVersion=0",
        // Forwarded, so the user is impersonated.
        "/api/v1/namespaces/default/secrets?resourceVersion=0&limit=1&continue=",
        "/apis/authorization.k8s.io/v1",
    ] {
        for (headers, expected) in rows {
            let mut statuses = Vec::new();
            for client in &both {
                let client = headers
                    .iter()
                    .fold(client.clone(), |client, (name, value)| {
                        client.with(name, value)
                    });
                statuses.push(client.get(path).await.status.as_u16());
            }
            assert_eq!(statuses[0], statuses[1], "{path} {headers:?}");
            if path.contains("secrets") && *expected != 401 {
                assert_eq!(statuses[0], *expected, "{path} {headers:?}");
            }
        }
    }
    // A write is always forwarded.
    let [through, directly] = both.map(|client| client.with("x-custom-user", account));
    for client in [&directly, &through] {
        let object = json!({"metadata": {"name": "by-account"}});
        let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
        assert_eq!(client.create(path, &object).await.status, 403, "{client:?}");
    }
}
