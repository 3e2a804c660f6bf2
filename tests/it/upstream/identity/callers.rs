//! What kubefan does for callers beside answering them: Secrets, the anonymous user, the audit log,
//! and that their tokens are never shown.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::outcomes::request_count;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, READER, private_with, shared};
use crate::support::programs::certificates::Identity;
use crate::support::programs::kubefan::{Kubefan, run};

const LIMIT: Duration = Duration::from_secs(20);

/// Creates a client of `kubefan` without a token.
fn client(kubefan: &Kubefan, certificate: Option<&Identity>, protocol: &str) -> Client {
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connector = Connector::tls(&authority, certificate, &[protocol]);
    match protocol {
        "h2" => Client::http2(kubefan.url(), connector),
        _ => Client::new(kubefan.url(), connector),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn secrets_are_cached_over_tls_only_if_the_operator_says_so() {
    let server = shared();
    let list = "/api/v1/secrets?resourceVersion=0";
    for (flags, outcome) in [
        (&["--tls-self-signed"][..], "forwarded"),
        (
            &["--tls-self-signed", "--auth", "none", "--all"],
            "forwarded",
        ),
        (&["--tls-self-signed", "--cache-secrets"], "cache"),
        (&[], "cache"),
    ] {
        let kubefan = Kubefan::start(server, flags).await;
        let client = match kubefan.authority() {
            Some(_) => client(&kubefan, None, "http/1.1"),
            None => kubefan.client(),
        };
        let client = match flags.contains(&"none") || flags.is_empty() {
            true => client,
            false => client.as_token(ADMIN),
        };
        for _ in 0..2 {
            client.get(list).await.ok();
        }
        let metrics = kubefan.metrics().await;
        let found = request_count(&metrics, outcome, "list");
        assert_eq!(found, 2.0, "{flags:?}: {metrics}");
        let bytes = metrics.lines().any(|line| {
            line.starts_with("kubefan_cache_bytes{") && line.contains("resource=\"secrets\"")
        });
        assert_eq!(bytes, outcome == "cache", "{flags:?}: {metrics}");
    }
    let config = server.kubeconfig("admin").display().to_string();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tls_dir = directory.path().display().to_string();
    let arguments = [
        &["serve", "--kubeconfig", &config, "--resource", "secret"][..],
        &["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"],
        &["--tls-self-signed", "--tls-dir", &tls_dir],
    ]
    .concat();
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let expected = "--resource secret: it is cached over TLS only with --cache-secrets";
    assert!(ended.stderr.contains(expected), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn requests_without_credentials_read_what_the_anonymous_user_may_read() {
    let server = shared();
    let (open, closed) = (
        server.namespace("open").await,
        server.namespace("closed").await,
    );
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{open}");
    let role = json!({
        "metadata": { "name": "public" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] }],
    });
    let binding = json!({
        "metadata": { "name": "public" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "public" },
        "subjects": [{ "kind": "User", "name": "system:anonymous" }],
    });
    let admin = server.client();
    admin.create(&format!("{rbac}/roles"), &role).await.ok();
    let bindings = format!("{rbac}/rolebindings");
    admin.create(&bindings, &binding).await.ok();
    let path = |namespace| format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0");
    let foreign = crate::support::programs::certificates::Authority::new();
    let foreign = foreign.client("admin", "system:masters");
    for (flags, from_cache) in [
        (&["--tls-self-signed"][..], 0.0),
        (&["--tls-self-signed", "--anonymous-auth"], 2.0),
    ] {
        let kubefan = Kubefan::start(server, flags).await;
        let anonymous = client(&kubefan, None, "http/1.1");
        for _ in 0..2 {
            anonymous.get(&path(&open)).await.ok();
        }
        // The owner of a bad certificate is not the anonymous user, at the API server neither.
        let bad = client(&kubefan, Some(&foreign), "http/1.1");
        assert_eq!(bad.get(&path(&open)).await.status, 401);
        let refused = anonymous.get(&path(&closed)).await;
        let direct = server.anonymous().get(&path(&closed)).await;
        assert_eq!(refused.status, 403);
        assert_eq!(refused.body, direct.body);
        let version = anonymous.get("/version").await;
        assert_eq!(version.status, 200, "{version}");
        let metrics = kubefan.metrics().await;
        let found = request_count(&metrics, "cache", "list");
        assert_eq!(found, from_cache, "{flags:?}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn tokens_are_in_no_log_and_no_metric() {
    let server = shared();
    let namespace = server.namespace("silent").await;
    let verbs = ["get", "list", "watch", "create"];
    let resources = ["configmaps"];
    server.allow_reader(&namespace, &verbs, &resources).await;
    let flags = ["--tls-self-signed", "-vv", "--auth", "caller"];
    // A debug build logs at the level trace, all libraries included.
    let environment = [("RUST_LOG", "trace")];
    let kubefan =
        Kubefan::start_with_environment(&server.kubeconfig("admin"), &flags, &environment).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let encoded = "cmVhZGVyLXRva2Vu";
    for protocol in ["http/1.1", "h2"] {
        let bare = client(&kubefan, None, protocol);
        let reader = bare.as_token(READER);
        for read in [
            format!("{path}?resourceVersion=0"),
            path.clone(),
            format!("{path}/missing"),
            "/api/v1/secrets".to_owned(),
            "/api/v1/namespaces/default/services/none/proxy/?token=reader-token".to_owned(),
        ] {
            reader.get(&read).await;
        }
        let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=1");
        reader.watch(&watch, Format::Json).await.expect("a watch");
        reader
            .create(&path, &json!({ "metadata": { "generateName": "made-" } }))
            .await
            .ok();
        bare.as_token("wrong-reader-token").get(&path).await;
        let protocols =
            format!("base64url.bearer.authorization.k8s.io.{encoded}, v4.channel.k8s.io");
        bare.with("sec-websocket-protocol", &protocols)
            .get(&path)
            .await;
    }
    let log = kubefan.log();
    assert!(
        log.contains("TRACE") && log.contains("h2::"),
        "it is verbose"
    );
    let metrics = kubefan.metrics().await;
    for secret in [READER, ADMIN, encoded] {
        for (name, text) in [("log", &log), ("metrics", &metrics)] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} is in the {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn foreign_web_pages_cannot_use_the_certificates_of_their_readers() {
    let server = shared();
    let flags = ["--tls-self-signed", "--listen", "0.0.0.0:0"];
    let kubefan = Kubefan::start(server, &flags).await;
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let certificate = server.certificate("browser", "system:masters");
    let connector = Connector::tls(&authority, Some(&certificate), &["http/1.1"]);
    let url = kubefan.url().replace("0.0.0.0", "localhost");
    let browser = Client::new(&url, connector);
    let list = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
    let foreign = ("origin", "https://evil.example");
    let own = ("origin", url.as_str());
    let cross_site = ("sec-fetch-site", "cross-site");
    // A page may add this to a WebSocket; a good certificate wins over it.
    let protocol = (
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.eA, v4.channel.k8s.io",
    );
    let token = ("authorization", "Bearer admin-token");
    for (headers, status) in [
        (&[][..], 200),
        (&[own], 200),
        (&[foreign], 403),
        (&[cross_site], 403),
        (&[foreign, protocol], 403),
        // Only a program that knows a token can send it.
        (&[foreign, cross_site, token], 200),
        // The name that clients have for this machine is not checked.
        (&[("host", "kubefan.example")], 200),
    ] {
        let mut client = browser.clone();
        for (name, value) in headers {
            client = client.with(name, value);
        }
        let answer = client.get(list).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer}");
    }
    let log = kubefan.log();
    assert!(!log.contains("WARN"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_exposed_listener_is_warned_of() {
    let server = shared();
    for (auth, warning) in [
        ("none", "callers are not authenticated"),
        ("caller", "TLS is not served"),
    ] {
        let exposed = ["--auth", auth, "--listen", "0.0.0.0:0"];
        let flags = [&exposed[..], &["--insecure-expose-to-network"]].concat();
        let kubefan = Kubefan::start(server, &flags).await;
        let client = kubefan.client().with("host", "machine.example:8001");
        let answer = client.as_token(ADMIN).get("/version").await;
        assert_eq!(answer.status, 200, "{answer}");
        let log = kubefan.log();
        let warned = log
            .lines()
            .any(|line| line.contains("WARN") && line.contains(warning));
        assert!(warned, "{log}");
        assert!(log.contains(&format!("auth={auth} ")), "{log}");
    }
}

// === the audit log ===

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: '', resources: [configmaps]}]
- level: None
";

/// Returns the events of a file by their audit IDs and stages.
fn events(text: &str) -> BTreeMap<(String, String), Value> {
    let lines = text.split_inclusive('\n');
    let whole = lines.filter(|line| line.ends_with('\n'));
    let parsed = whole.map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    let key = |event: &Value| {
        let of = |key: &str| event[key].as_str().expect("text").to_owned();
        (of("auditID"), of("stage"))
    };
    parsed.map(|event| (key(&event), event)).collect()
}

/// Removes from an event what must differ between kubefan's and the API server's events.
fn comparable(mut event: Value) -> Value {
    let fields = event.as_object_mut().expect("an object");
    for name in ["requestReceivedTimestamp", "stageTimestamp"] {
        let time = fields.remove(name).expect(name);
        let time = time.as_str().expect("text");
        assert_eq!(time.len(), "2026-01-01T00:00:00.000000Z".len(), "{time}");
    }
    fields.remove("auditID");
    fields.remove("annotations");
    event.sort_all_objects();
    event
}

async fn send(client: &Client, id: &str, path: &str, more: &[(&'static str, &str)]) -> HeaderMap {
    let mut client = client.with("audit-id", id).with("user-agent", "auditor/1");
    for (name, value) in more {
        client = client.with(name, value);
    }
    let none = HeaderMap::new();
    let answer = client.send(Method::GET, path, &none, Bytes::new()).await;
    assert_eq!(answer.header("audit-id"), Some(id), "{answer}");
    answer.headers
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn audit_events_are_those_of_the_api_server() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (policy, theirs) = (
        directory.path().join("policy.yaml"),
        directory.path().join("theirs"),
    );
    fs::write(&policy, POLICY).expect("a policy");
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", theirs.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = private_with(&flags).await;
    let ours = directory.path().join("ours");
    let ours_flag = ours.display().to_string();
    let flags = ["--tls-self-signed", "--audit-log-path", &ours_flag];
    let denials = ["--authorization-cache-unauthorized-ttl", "60s"];
    let kubefan = Kubefan::start(&server, &[&flags[..], &denials].concat()).await;
    compare_events(&server, &kubefan, |kind| {
        let path = if kind == "ours" { &ours } else { &theirs };
        events(&fs::read_to_string(path).unwrap_or_default())
    })
    .await;
}

async fn compare_events(
    server: &ApiServer,
    kubefan: &Kubefan,
    read: impl Fn(&str) -> BTreeMap<(String, String), Value>,
) {
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let known = "extension-apiserver-authentication";
    let paths = [
        (
            "list",
            format!("{maps}?resourceVersion=0&labelSelector=a%3Db"),
        ),
        (
            "everywhere",
            "/api/v1/configmaps?resourceVersion=0".to_owned(),
        ),
        ("get", format!("{maps}/{known}?resourceVersion=0")),
        (
            "watch",
            format!("{maps}?watch=1&resourceVersion=0&timeoutSeconds=1"),
        ),
    ];
    let through = client(kubefan, None, "http/1.1").as_token(ADMIN);
    let direct = server.client();
    // The decisions are remembered from here on, so that GETs are answered by the cache.
    for warm in [&paths[2].1, &paths[0].1] {
        through.get(warm).await;
    }
    through.get(&paths[2].1).await.ok();
    for (name, path) in &paths {
        send(&direct, &format!("{name}-theirs"), path, &[]).await;
        send(&through, &format!("{name}-ours"), path, &[]).await;
    }
    let proxies = [("x-forwarded-for", "192.0.2.1, 192.0.2.2")];
    send(&through, "proxied-ours", &paths[0].1, &proxies).await;
    send(&direct, "proxied-theirs", &paths[0].1, &proxies).await;
    // The read is forwarded, so it is in the log of the API server only.
    let consistent = format!("{maps}/{known}");
    send(&through, "forwarded", &consistent, &proxies).await;

    let names = paths.iter().map(|(name, _)| *name).chain(["proxied"]);
    for name in names {
        let stages: &[&str] = match name {
            "watch" => &["ResponseStarted", "ResponseComplete"],
            _ => &["ResponseComplete"],
        };
        for stage in stages {
            let find = async |kind: &str| {
                let key = (format!("{name}-{kind}"), (*stage).to_owned());
                let what = format!("{key:?}");
                let event = eventually(&what, LIMIT, async || {
                    read(kind)
                        .remove(&key)
                        .ok_or_else(|| format!("{:?}", read(kind)))
                });
                event.await
            };
            let (ours, theirs) = (find("ours").await, find("theirs").await);
            assert_eq!(ours["annotations"]["kubefan/answered-by"], "cache");
            assert_eq!(comparable(ours), comparable(theirs), "{name} {stage}");
        }
    }
    let forwarded = ("forwarded".to_owned(), "ResponseComplete".to_owned());
    let event = eventually("the forwarded request", LIMIT, async || {
        read("theirs").remove(&forwarded).ok_or("no event")
    });
    let event = event.await;
    // The API server adds kubefan's address only if it is another one.
    let addresses = json!(["192.0.2.1", "192.0.2.2", "127.0.0.1"]);
    assert_eq!(event["sourceIPs"], addresses, "{event}");
    assert!(!read("ours").contains_key(&forwarded));
    // The API server answers the first of two forbidden reads, and kubefan repeats that.
    let reader = client(kubefan, None, "http/1.1").as_token(READER);
    for (id, kind) in [("denied", "theirs"), ("repeated", "ours")] {
        send(&reader, id, &paths[0].1, &[]).await;
        let key = (id.to_owned(), "ResponseComplete".to_owned());
        let event = eventually(id, LIMIT, async || {
            read(kind).remove(&key).ok_or("no event")
        });
        let event = event.await;
        assert_eq!(event["responseStatus"]["code"], 403, "{event}");
        assert_eq!(event["user"]["username"], "reader", "{event}");
        if kind == "ours" {
            let by = &event["annotations"]["kubefan/answered-by"];
            assert_eq!(by, "kept-refusal", "{event}");
        }
    }
    let metrics = kubefan.metrics().await;
    let lost = metrics.lines().filter(|line| {
        line.starts_with("kubefan_audit_events_total{") && !line.contains("written")
    });
    for line in lost {
        assert!(line.ends_with(" 0"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn certificates_with_reserved_names_are_refused() {
    let server = shared();
    let kubefan = Kubefan::start(server, &["--tls-self-signed"]).await;
    for (user, group) in [
        ("system:serviceaccount:default:builder", "any"),
        ("system:serviceaccount:default:builder", "system:masters"),
        ("system:anonymous", "any"),
        ("someone", "system:unauthenticated"),
    ] {
        let certificate = server.certificate(user, group);
        for protocol in ["http/1.1", "h2"] {
            let client = client(&kubefan, Some(&certificate), protocol);
            for path in [
                "/api/v1/namespaces/default/configmaps?resourceVersion=0",
                "/api/v1/namespaces/default/configmaps/any",
                "/version",
            ] {
                let answer = client.get(path).await;
                assert_eq!(answer.status, 403, "{user} {group} {protocol} {path}");
                let reserved = if group == "any" { user } else { group };
                let message = answer.json()["message"].to_string();
                let names_one = message.contains(user) || message.contains(reserved);
                assert!(names_one, "{user} {group}: {message}");
            }
            // A good token counts nevertheless.
            let by_token = client.as_token(ADMIN).get("/version").await;
            assert_eq!(by_token.status, 200, "{user} {group}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_refusal_of_a_certified_user_names_the_right_that_kubefan_lacks() {
    let server = shared();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("ca.pem");
    fs::write(&file, server.authority()).expect("room");
    let file = file.display().to_string();
    let flags = ["--tls-self-signed", "--client-ca-file", &file];
    // This identity may not impersonate, and may not review access.
    let kubefan = Kubefan::start_with(&server.kubeconfig("reader"), &flags).await;
    let certificate = server.certificate("certified", "system:masters");
    for protocol in ["http/1.1", "h2"] {
        let client = client(&kubefan, Some(&certificate), protocol);
        for path in [
            "/api/v1/namespaces/default/configmaps?resourceVersion=0",
            "/api/v1/namespaces/default/configmaps/any",
        ] {
            let answer = client.get(path).await;
            assert_eq!(answer.status, 403, "{answer}");
            let message = answer.json()["message"].to_string();
            let names_right = message.contains("reader") && message.contains("impersonate");
            assert!(names_right, "{message}");
        }
    }
}

/// A certificate of X.509 version 1 is accepted like any other
/// certificate, and never ends a connection.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn certificates_of_version_1_are_accepted_as_by_the_api_server() {
    let server = shared();
    let kubefan = Kubefan::start(server, &["--tls-self-signed"]).await;
    let good = server.certificate_of_version_1("certified", "system:masters");
    let foreign = crate::support::programs::certificates::Authority::new();
    let foreign = foreign.client_of_version_1("admin", "system:masters");
    let path = "/api/v1/namespaces/default/configmaps?resourceVersion=0";
    for protocol in ["http/1.1", "h2"] {
        for (identity, status, with_token) in [(&good, 200, 200), (&foreign, 401, 200)] {
            let connector = Connector::tls(server.authority(), Some(identity), &[protocol]);
            let direct = match protocol {
                "h2" => Client::http2(&server.url(), connector),
                _ => Client::new(&server.url(), connector),
            };
            for client in [direct, client(&kubefan, Some(identity), protocol)] {
                assert_eq!(client.get(path).await.status, status, "{protocol}");
                let answer = client.as_token(ADMIN).get(path).await;
                assert_eq!(answer.status, with_token, "{protocol}");
            }
        }
    }
}

/// Without authentication each client has kubefan's rights, the right to impersonate included; what
/// it reads is never what a cache has.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_plain_kubefan_acts_as_the_user_that_a_client_names() {
    let server = shared();
    let namespace = server.namespace("as-jane").await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0");
    for (identity, token, message) in [
        ("admin", ADMIN, "User \\\"jane\\\" cannot list resource"),
        ("reader", READER, "cannot impersonate"),
    ] {
        let kubefan = Kubefan::start_with(&server.kubeconfig(identity), &[]).await;
        let plain = kubefan.client();
        for (path, status) in [(path.as_str(), 403), ("/api", 200)] {
            let through = plain.with("impersonate-user", "jane").get(path).await;
            let direct = server.client().as_token(token);
            let direct = direct.with("impersonate-user", "jane").get(path).await;
            assert_eq!(through.status, direct.status, "{identity} {path}");
            assert_eq!(through.body, direct.body, "{identity} {path}");
            let is_refused = identity == "reader" || status == 403;
            let body = String::from_utf8_lossy(&through.body);
            assert_eq!(body.contains(message), is_refused, "{body}");
        }
        let metrics = kubefan.metrics().await;
        assert_eq!(request_count(&metrics, "cache", "list"), 0.0, "{metrics}");
    }
}
