//! `kubefan why`: what it predicts is what the request then does, and nothing is done for it.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::support::clients::client::{Answer, Client};
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, READER, metric, shared};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubectl::Kubectl;
use crate::support::programs::kubefan::{Kubefan, binary};
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy};

const STEP: Duration = Duration::from_secs(30);
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A request, as its sender describes it.
struct Described<'a> {
    method: &'a str,
    path: &'a str,
    accept: &'a str,
}

/// Returns a GET of JSON.
fn get(path: &str) -> Described<'_> {
    Described {
        method: "GET",
        path,
        accept: "application/json",
    }
}

/// Returns the path of the question about a request.
fn question(request: &Described<'_>, more: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("method", request.method);
    query.append_pair("path", request.path);
    query.append_pair("header", &format!("Accept: {}", request.accept));
    query.extend_pairs(more);
    format!("/admin/v1/why?{}", query.finish())
}

/// Asks, and waits if ten questions a second are not enough.
async fn ask(admin: &Client, request: &Described<'_>, more: &[(&str, &str)]) -> Value {
    let path = question(request, more);
    eventually(&path, STEP, async || admin.get(&path).await.is(200))
        .await
        .json()
}

/// Returns the outcome and the reason of an explanation, such as `forward consistent`.
fn predicted(explanation: &Value) -> String {
    let part = |key: &str| explanation[key].as_str().unwrap_or_default().to_owned();
    let (outcome, reason) = (part("outcome"), part("reason"));
    let is_forwarded = outcome == "forward";
    if is_forwarded {
        format!("{outcome} {reason}")
    } else {
        outcome
    }
}

/// Returns what the header `Cache-Status` of the answer says, in the same words.
fn made(answer: &Answer) -> String {
    let member = answer.header("cache-status").unwrap_or_default();
    if member.starts_with("kubefan; hit") {
        return "hit".to_owned();
    }
    match member.split_once("detail=") {
        Some((_, reason)) => format!("forward {reason}"),
        None => "refuse".to_owned(),
    }
}

async fn send(client: &Client, request: &Described<'_>) -> Answer {
    let method = request.method.parse::<Method>().expect("a method");
    let client = client.with("accept", request.accept);
    let none = HeaderMap::new();
    client.send(method, request.path, &none, Bytes::new()).await
}

/// Asks about a request, sends it, and checks that both say `expected`.
async fn both(kubefan: &Kubefan, request: &Described<'_>, expected: &str) {
    let explanation = ask(&kubefan.admin(), request, &[]).await;
    let answer = send(&kubefan.client(), request).await;
    let found = [predicted(&explanation), made(&answer)];
    let path = request.path;
    assert_eq!(found, [expected, expected], "{path}: {explanation:#}");
    let has_change = explanation["changes"]
        .as_array()
        .is_some_and(|changes| !changes.is_empty());
    assert!(!expected.starts_with("forward") || has_change, "{path}");
}

/// Creates a namespace with a ConfigMap, and returns the path of the ConfigMaps.
async fn maps(prefix: &str) -> String {
    let server = shared();
    let namespace = server.namespace(prefix).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({ "metadata": { "name": "there" } });
    server.client().create(&path, &object).await.ok();
    path
}

/// Waits until the cache of kubefan has the ConfigMap.
async fn cached(client: &Client, path: &str) {
    let list = format!("{path}?resourceVersion=0");
    eventually("the object in the cache", STEP, async || {
        let answer = client.get(&list).await;
        let is_there = made(&answer) == "hit" && answer.to_string().contains("there");
        is_there.then_some(()).ok_or(answer.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn what_is_predicted_happens() {
    let path = maps("why").await;
    let kubefan = Kubefan::start(shared(), &[]).await;
    cached(&kubefan.client(), &path).await;
    let namespace = path.strip_suffix("/configmaps").expect("ConfigMaps");
    let below = |rest: &str| format!("{namespace}/{rest}");
    let json = "application/json";
    for (method, path, accept, expected) in [
        ("GET", below("configmaps?resourceVersion=0"), json, "hit"),
        ("GET", below("configmaps"), json, "hit"),
        (
            "GET",
            below("configmaps/there?resourceVersion=0"),
            json,
            "hit",
        ),
        (
            "GET",
            below("configmaps/none?resourceVersion=0"),
            json,
            "hit",
        ),
        (
            "GET",
            below("configmaps?watch=1&resourceVersion=0&timeoutSeconds=1"),
            json,
            "hit",
        ),
        ("GET", below("configmaps/there"), json, "forward consistent"),
        (
            "GET",
            below("configmaps?resourceVersion=0"),
            "application/cbor",
            "forward media_type",
        ),
        (
            "GET",
            below("configmaps?resourceVersion=1&resourceVersionMatch=Exact"),
            json,
            "forward past_state",
        ),
        (
            "GET",
            below("configmaps?limit=x"),
            json,
            "forward malformed",
        ),
        (
            "GET",
            below("configmaps?fieldSelector=data.a%3Db"),
            json,
            "forward unknown_field",
        ),
        ("GET", below("status"), json, "forward subresource"),
        ("GET", below("nothings"), json, "forward unknown"),
        (
            "GET",
            below("podtemplates/none?resourceVersion=0"),
            json,
            "forward not_cached",
        ),
        ("DELETE", below("configmaps/none"), json, "forward not_get"),
        ("GET", "/version".to_owned(), json, "forward non_resource"),
        ("GET", "/api/v1/namespaces/a%2Fb".to_owned(), json, "refuse"),
        // This starts a cache, and waits for it.
        ("GET", below("podtemplates"), json, "hit"),
    ] {
        let request = Described {
            method,
            path: &path,
            accept,
        };
        both(&kubefan, &request, expected).await;
    }
    let request = Described {
        method: "GET",
        path: &path,
        accept: TABLE,
    };
    let first = ask(&kubefan.admin(), &request, &[]).await;
    assert_eq!(predicted(&first), "forward table_unchecked", "{first:#}");
    eventually("a printed Table", STEP, async || {
        let table = send(&kubefan.client(), &request).await;
        (made(&table) == "hit").then_some(()).ok_or(made(&table))
    })
    .await;
    both(&kubefan, &request, "hit").await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn sessions_and_rules_are_predicted() {
    let path = maps("why-policies").await;
    let kubefan = Kubefan::start(shared(), &["--freshness", "session"]).await;
    cached(&kubefan.client(), &path).await;
    let there = format!("{path}/there");
    for path in [&path, &there] {
        both(&kubefan, &get(path), "hit").await;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("kubefan.yaml");
    let text = "cache:\n  resources:\n    - {resource: configmaps, labelSelector: a=b}\n";
    fs::write(&config, text).expect("a written file");
    let flags = ["--config", config.to_str().expect("UTF-8")];
    let kubefan = Kubefan::start(shared(), &flags).await;
    for (query, expected) in [
        ("labelSelector=a%3Db&resourceVersion=0", "hit"),
        ("resourceVersion=0", "forward out_of_scope"),
    ] {
        let path = format!("{path}?{query}");
        both(&kubefan, &get(&path), expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_question_sends_nothing_and_starts_no_cache() {
    let path = maps("why-silent").await;
    let proxy = ScriptedProxy::start(shared().client(), |_| RequestAction::Forward).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let kubefan = Kubefan::start_with(&config, &["-r", "configmaps"]).await;
    let namespace = path.strip_suffix("/configmaps").expect("ConfigMaps");
    let sent = |about: &str| {
        let seen = proxy.seen();
        let seen = seen.iter().filter(|request| request.path.contains(about));
        seen.count()
    };
    let lists = sent("/configmaps");
    for (rest, accept) in [
        ("configmaps", "application/json"),
        ("configmaps", TABLE),
        ("configmaps/there", "application/json"),
        ("podtemplates", "application/json"),
        ("podtemplates?watch=1", "application/json"),
        ("nothings", "application/json"),
    ] {
        let path = format!("{namespace}/{rest}");
        let request = Described {
            method: "GET",
            path: &path,
            accept,
        };
        ask(&kubefan.admin(), &request, &[]).await;
    }
    assert_eq!(sent("/configmaps"), lists, "{:?}", proxy.seen());
    for about in [namespace, "podtemplates", "reviews"] {
        assert_eq!(sent(about), 0, "{about}: {:?}", proxy.seen());
    }
    let caches = kubefan.admin().get("/readyz?verbose").await.ok();
    assert!(!caches.to_string().contains("podtemplates"), "{caches}");
    let metrics = kubefan.metrics().await;
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("kubefan_requests_total{") && line.contains("podtemplates"));
    assert_eq!(counted, None);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_caller_asks_about_itself_or_whom_it_may_impersonate() {
    let server = shared();
    let path = maps("why-rights").await;
    let namespace = path.strip_suffix("/configmaps").expect("ConfigMaps");
    let name = namespace.rsplit('/').next().expect("a name");
    let verbs = ["get", "list", "watch"];
    server.allow_reader(name, &verbs, &["configmaps"]).await;
    let kubefan = Kubefan::start(server, &["--auth", "caller"]).await;
    let (reader, admin) = (kubefan.client().as_token(READER), kubefan.admin());
    cached(&reader, &path).await;
    let (allowed, denied) = (
        format!("{path}?resourceVersion=0"),
        format!("{namespace}/podtemplates?resourceVersion=0"),
    );
    let as_reader = [("as", "reader")];
    for (path, expected) in [(&allowed, "hit"), (&denied, "forward not_authorized")] {
        let request = get(path);
        let own = ask(&admin.as_token(READER), &request, &[]).await;
        let answer = send(&reader, &request).await;
        assert_eq!(
            [predicted(&own), made(&answer)],
            [expected, expected],
            "{own:#}"
        );
        let acting = ask(&admin.as_token(ADMIN), &request, &as_reader).await;
        assert_eq!(predicted(&acting), expected, "{acting:#}");
        assert_eq!(acting["user"], "reader", "{acting:#}");
    }
    // The API server itself refuses the impersonation.
    let request = get(&allowed);
    let header = [("header", "Impersonate-User: jane")];
    let other = ask(&admin.as_token(READER), &request, &header).await;
    assert_eq!(predicted(&other), "forward caller_identity", "{other:#}");
    // Claims that only a proxy or a WebSocket client may send do not count.
    for secret in [
        "X-Remote-User: jane",
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA",
        "Authorization: Bearer wrong",
    ] {
        let own = ask(&admin.as_token(READER), &request, &[("header", secret)]).await;
        assert_eq!(predicted(&own), "hit", "{secret}: {own:#}");
    }
    let jane = question(&request, &[("as", "jane")]);
    let plain = question(&request, &[]);
    for (client, path, status) in [
        (admin.as_token(READER), &jane, 403),
        (admin.as_token("wrong"), &plain, 401),
        (admin.clone(), &plain, 401),
        (admin.as_token(READER), &"/admin/v1/why".to_owned(), 400),
    ] {
        eventually(path, STEP, async || client.get(path).await.is(status)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn many_questions_of_one_user_are_refused() {
    let kubefan = Kubefan::start(shared(), &["--auth", "caller"]).await;
    let path = question(&get("/version"), &[]);
    let reader = kubefan.admin().as_token(READER);
    // More than a burst, and than what is answered while they arrive.
    let answers = join_all((0..40).map(|_| reader.get(&path))).await;
    let refused = answers.iter().find(|answer| answer.status == 429);
    let refused = refused.expect("too many questions");
    assert!(refused.retry_seconds().is_some(), "{refused}");
    assert!(answers.iter().any(|answer| answer.status == 200));
    let refusals = answers.iter().filter(|answer| answer.status == 429).count();
    let labels = [("limit", "questions")];
    let counted = metric(
        &kubefan.admin(),
        "kubefan_user_limit_rejected_total",
        &labels,
    )
    .await;
    assert_eq!(counted, refusals as f64);
    let other = kubefan.admin().as_token(ADMIN).get(&path).await;
    assert_eq!(other.status, 200, "{other}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_command_sends_a_token_over_tls() {
    let flags = ["--tls-self-signed", "--admin-listen", "0.0.0.0:0"];
    let kubefan = Kubefan::start(shared(), &flags).await;
    let url = kubefan.admin_url().replace("0.0.0.0", "127.0.0.1");
    let [authority, token] = ["authority.pem", "token"].map(|name| kubefan.file(name));
    let certificate = kubefan.authority().expect("kubefan serves TLS");
    fs::write(&authority, certificate).expect("a written file");
    fs::write(&token, READER).expect("a written file");
    let run = |token: &Path| {
        let mut command = Command::new(binary());
        command.args(["why", "--json", "--admin-url", &url, "/version"]);
        command.arg("--certificate-authority").arg(&authority);
        command.arg("--token-file").arg(token);
        command.output().expect("kubefan runs")
    };
    let output = run(&token);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let explanation: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(explanation["user"], "reader", "{explanation:#}");
    assert_eq!(explanation["reason"], "non_resource", "{explanation:#}");
    fs::write(&token, "wrong").expect("a written file");
    let output = run(&token);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("kubefan answered 401"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_command_explains_the_requests_of_kubectl() {
    let server = shared();
    let path = maps("why-kubectl").await;
    let namespace = path.trim_end_matches("/configmaps");
    let namespace = namespace.rsplit('/').next().expect("a name");
    let kubefan = Kubefan::start(server, &[]).await;
    cached(&kubefan.client(), &path).await;
    let config = kubefan.kubeconfig(&User::Anonymous);
    let kubectl = Kubectl::new(server.assets(), &config, namespace);
    let arguments = ["-v=8", "get", "configmap", "there"].map(str::to_owned);
    let logged = kubectl.run(&arguments).await;
    assert_eq!(logged.code, Some(0), "{}", logged.stderr);
    let log = kubefan.file("kubectl.log");
    fs::write(&log, &logged.stderr).expect("a written file");
    let run = |arguments: &[&str], log: Option<File>| {
        let mut command = Command::new(binary());
        command.args(["why", "--admin-url", kubefan.admin_url()]);
        command.args(arguments);
        if let Some(log) = log {
            command.stdin(log);
        }
        let output = command.output().expect("kubefan runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let open = || File::open(&log).expect("the log");
    let text = run(&["-"], Some(open()));
    let block = text
        .split("\n\n")
        .find(|block| block.starts_with(&format!("GET {path}/there\n")));
    let block = block.unwrap_or_else(|| panic!("no block of the object: {text}"));
    assert!(block.contains("what to do:"), "{block}");
    // Without a path, standard input is read, too.
    let json = run(&["--json"], Some(open()));
    let lines = json.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<_> = lines.map(|line| line.expect("JSON")).collect();
    let is_of_object = |line: &&Value| line["path"] == format!("{path}/there");
    let explanation = lines.iter().find(is_of_object).expect("the object");
    assert_eq!(explanation["outcome"], "forward", "{explanation:#}");
    let list = format!("{path}?resourceVersion=0");
    let header = ["-H", "Accept: application/json", "--json", &list];
    let one: Value = serde_json::from_str(&run(&header, None)).expect("JSON");
    assert_eq!(one["outcome"], "hit", "{one:#}");
    let header = [
        "-X",
        "POST",
        "-H",
        "Accept: application/json",
        "--json",
        &path,
    ];
    let one: Value = serde_json::from_str(&run(&header, None)).expect("JSON");
    assert_eq!(one["reason"], "not_get", "{one:#}");
}
