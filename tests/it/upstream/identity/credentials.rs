//! Credentials that end, or are refused, while their watches are open, and users without tokens.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::identities::{grant, signed_token};
use super::observed::{LIMIT, Observed, websocket, websocket_ended};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, metric, private_with_tokens};
use crate::support::programs::certificates::{Authority, Identity};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy, SeenRequest};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Lets a user or a service account watch ConfigMaps.
async fn allow(server: &ApiServer, name: &str, subject: &Value) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
    grant(&server.client(), None, name, &rules, subject).await;
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

/// Creates a namespace with one ConfigMap. Returns the paths of two watches of it: a cache answers
/// the first, and the second is forwarded.
async fn maps(server: &ApiServer) -> [String; 2] {
    let namespace = server.namespace("credentials").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({"metadata": {"name": "first"}});
    server.client().create(&maps, &map).await.ok();
    [
        format!("{maps}?watch=1&resourceVersion=0"),
        // The API server answers deprecated paths.
        format!("/api/v1/watch/namespaces/{namespace}/configmaps?resourceVersion=0"),
    ]
}

/// Clients of `kubefan`, which serves TLS, with a certificate, over both protocols.
fn certified(kubefan: &Kubefan, certificate: &Identity) -> [Client; 2] {
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connector = |protocol| Connector::tls(&authority, Some(certificate), &[protocol]);
    [
        Client::new(kubefan.url(), connector("http/1.1")),
        Client::http2(kubefan.url(), connector("h2")),
    ]
}

async fn open(clients: &[Client], paths: &[String]) -> Vec<Observed> {
    let mut open = Vec::new();
    for client in clients {
        for path in paths {
            open.push(Observed::open(client, path, 1).await);
        }
    }
    open
}

/// Waits until kubefan watches roles and bindings, and has this many open watches.
async fn is_ready(kubefan: &Kubefan, watches: usize) {
    for (name, expected) in [
        ("kubefan_role_watches_alive", 4.0),
        ("kubefan_open_watches", watches as f64),
    ] {
        eventually(name, LIMIT, async || {
            match metric(&kubefan.admin(), name, &[]).await {
                found if found == expected => Ok(()),
                found => Err(format!("{found}, not {expected}")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_ends_when_its_client_certificate_expires() {
    let server = private_with_tokens("", &[]).await;
    for name in ["short", "long"] {
        allow(&server, name, &user(name)).await;
    }
    let paths = maps(&server).await;
    let kubefan = Kubefan::start(&server, &["--tls-self-signed"]).await;
    let long = certified(&kubefan, &server.certificate("long", "any"));
    let long = open(&long, &paths).await;
    let expiry = SystemTime::now() + Duration::from_secs(8);
    let short = server.certificate_until("short", "any", expiry);
    let clients = certified(&kubefan, &short);
    let short = open(&clients, &paths).await;
    let left = expiry.duration_since(SystemTime::now());
    // The end of a certificate has a resolution of a second, and the last second counts.
    let earliest = Instant::now() + left.expect("it is valid") - Duration::from_secs(1);
    for watch in short {
        let ended = watch.ended().await;
        assert!(ended >= earliest, "{:?} early", earliest - ended);
        let late = ended - earliest;
        assert!(late < Duration::from_secs(4), "{late:?} late");
    }
    assert!(long.iter().all(Observed::is_open));
    for client in clients {
        assert_eq!(client.get(&paths[0]).await.status, 401);
    }
    is_ready(&kubefan, long.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn impersonated_users_lose_their_watches_with_their_rights() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let proxies = Authority::new();
    let file = directory.path().join("proxies.pem");
    fs::write(&file, &proxies.certificate).expect("room");
    let server = private_with_tokens("", &[]).await;
    let names = ["certified", "proxied", "kept"];
    for name in names {
        allow(&server, name, &user(name)).await;
    }
    let paths = maps(&server).await;
    let file = file.display().to_string();
    let flags = [
        "--tls-self-signed",
        "--requestheader-client-ca-file",
        &file,
        "--requestheader-allowed-names",
        "front",
    ];
    let kubefan = Kubefan::start(&server, &flags).await;
    let of_certificate = |name| certified(&kubefan, &server.certificate(name, "any"));
    let front = certified(&kubefan, &proxies.client("front", "any"));
    let proxied = front.map(|client| client.with("x-remote-user", "proxied"));
    let concerned = [of_certificate("certified"), proxied];
    let mut open_of = Vec::new();
    for clients in &concerned {
        open_of.push(open(clients, &paths).await);
    }
    let kept = open(&of_certificate("kept"), &paths).await;
    is_ready(&kubefan, 12).await;
    for (number, watches) in open_of.into_iter().enumerate() {
        let binding = format!("{BINDINGS}/{}", names[number]);
        server.client().delete(&binding).await.ok();
        let lost = Instant::now();
        for watch in watches {
            let took = watch.ended().await - lost;
            assert!(took < Duration::from_secs(2), "{}: {took:?}", names[number]);
        }
        for client in &concerned[number] {
            assert_eq!(client.get(&paths[0]).await.status, 403, "{}", names[number]);
        }
    }
    assert!(kept.iter().all(Observed::is_open));
    is_ready(&kubefan, kept.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watches_end_when_the_authority_of_their_certificates_is_replaced() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [users, proxies] = ["users.pem", "proxies.pem"].map(|name| directory.path().join(name));
    let (of_users, of_proxies, new) = (Authority::new(), Authority::new(), Authority::new());
    fs::write(&users, &of_users.certificate).expect("room");
    fs::write(&proxies, &of_proxies.certificate).expect("room");
    let server = private_with_tokens("kept-token,kept,1\n", &[]).await;
    for name in ["certified", "proxied", "kept"] {
        allow(&server, name, &user(name)).await;
    }
    let paths = maps(&server).await;
    let files = [&users, &proxies].map(|file| file.display().to_string());
    let flags = [
        "--tls-self-signed",
        "--client-ca-file",
        &files[0],
        "--requestheader-client-ca-file",
        &files[1],
    ];
    let kubefan = Kubefan::start(&server, &flags).await;
    let of_user = certified(&kubefan, &of_users.client("certified", "any"));
    let front = certified(&kubefan, &of_proxies.client("front", "any"));
    let proxied = front.map(|client| client.with("x-remote-user", "proxied"));
    let without = certified(&kubefan, &new.client("unused", "any"));
    let by_token = without.map(|client| client.as_token("kept-token"));
    let kept = open(&by_token, &paths).await;
    for (file, clients) in [(&users, &of_user), (&proxies, &proxied)] {
        let watches = open(clients, &paths).await;
        let written = file.with_extension("new");
        fs::write(&written, &new.certificate).expect("room");
        fs::rename(&written, file).expect("the same directory");
        let replaced = Instant::now();
        for watch in watches {
            let took = watch.ended().await - replaced;
            println!("{}: a watch ended after {took:?}", file.display());
            // The files are read every ten seconds.
            assert!(took < Duration::from_secs(20), "{took:?}");
        }
        for client in clients {
            assert_eq!(client.get(&paths[0]).await.status, 401);
        }
    }
    assert!(kept.iter().all(Observed::is_open));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watches_of_which_only_the_token_is_known_end_with_it() {
    let server = private_with_tokens("", &[]).await;
    let admin = server.client();
    let paths = maps(&server).await;
    allow(&server, "acted", &user("acted")).await;
    let flags = ["--auth", "caller", "--authentication-reauthenticate", "2s"];
    let kubefan = Kubefan::start(&server, &flags).await;
    let rules = json!([{
        "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
        "resourceNames": ["acted"],
    }]);
    let mut opened = Vec::new();
    for name in ["revoked", "kept"] {
        let metadata = account(&server, "default", name).await;
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
        grant(&admin, None, &format!("{name}-acts"), &rules, &subject).await;
        let expiry = SystemTime::now() + Duration::from_secs(600);
        let token = signed_token(&server, "default", &metadata, expiry);
        let acting = kubefan.client().as_token(&token);
        let acting = acting.with("impersonate-user", "acted");
        let watches = open(&[acting], &paths).await;
        let encoded = URL_SAFE_NO_PAD.encode(&token);
        let protocols = format!("base64url.bearer.authorization.k8s.io.{encoded}, binary.k8s.io");
        let client = kubefan.client().with("sec-websocket-protocol", &protocols);
        opened.push((watches, websocket(&client, &paths[0]).await));
    }
    is_ready(&kubefan, 6).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/revoked";
    admin.delete(path).await.ok();
    let deleted = Instant::now();
    let (watches, socket) = opened.remove(0);
    for watch in watches {
        let took = watch.ended().await - deleted;
        println!("a watch ended {took:?} after the account");
    }
    websocket_ended("the token in a subprotocol", socket).await;
    assert!(opened[0].0.iter().all(Observed::is_open));
    is_ready(&kubefan, 3).await;
}

/// Creates a service account that may watch ConfigMaps, and returns its metadata.
async fn account(server: &ApiServer, namespace: &str, name: &str) -> Value {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account = json!({"metadata": {"name": name}});
    let account = server
        .client()
        .create(&accounts, &account)
        .await
        .ok()
        .json();
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    allow(server, name, &subject).await;
    account["metadata"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_ends_when_its_token_expires() {
    let server = private_with_tokens("", &[]).await;
    let paths = maps(&server).await;
    let account = account(&server, "default", "expiring").await;
    let flags = ["--auth", "caller"];
    let kubefan = Kubefan::start(&server, &flags).await;
    // The API server accepts a token of an account for a minute after its end.
    let now = SystemTime::now();
    let expiry = now - Duration::from_secs(50);
    let short = signed_token(&server, "default", &account, expiry);
    let long = signed_token(&server, "default", &account, now + Duration::from_secs(300));
    let refused_at = Instant::now() + Duration::from_secs(10);
    let short = kubefan.client().as_token(&short);
    let expiring = open(std::slice::from_ref(&short), &paths).await;
    let long = open(&[kubefan.client().as_token(&long)], &paths).await;
    for watch in expiring {
        let ended = watch.ended_within(Duration::from_secs(60)).await;
        assert!(ended + Duration::from_secs(1) > refused_at);
        // The API server remembers for 10 s that it has accepted a token. kubefan asks every 10 s
        // after the expiry, and a second time 2 s later.
        let late = ended.saturating_duration_since(refused_at);
        println!("a watch ended {late:?} after the token");
        assert!(late < Duration::from_secs(25), "{late:?} late");
    }
    assert_eq!(short.get(&paths[0]).await.status, 401);
    assert!(long.iter().all(Observed::is_open));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_ends_when_the_pod_of_its_token_is_deleted() {
    let server = private_with_tokens("", &[]).await;
    let paths = maps(&server).await;
    account(&server, "default", "runner").await;
    let admin = server.client();
    let flags = ["--auth", "caller", "-r", "pods"];
    let kubefan = Kubefan::start(&server, &flags).await;
    let mut watches = Vec::new();
    for name in ["deleted", "kept"] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"serviceAccountName": "runner", "containers": [{"name": "c", "image": "i"}]},
        });
        let pods = "/api/v1/namespaces/default/pods";
        let pod = admin.create(pods, &pod).await.ok().json();
        let bound = json!({
            "kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"],
        });
        let request = json!({"spec": {"boundObjectRef": bound}});
        let path = "/api/v1/namespaces/default/serviceaccounts/runner/token";
        let issued = admin.create(path, &request).await.ok().json();
        let token = issued["status"]["token"].as_str().expect("a token");
        let client = kubefan.client().as_token(token);
        watches.push((open(std::slice::from_ref(&client), &paths).await, client));
    }
    eventually("the cache of pods", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_account_caches", &[]).await {
            found if found >= 1.0 => Ok(()),
            found => Err(format!("{found} caches")),
        }
    })
    .await;
    let pod = "/api/v1/namespaces/default/pods/deleted?gracePeriodSeconds=0";
    admin.delete(pod).await.ok();
    let deleted = Instant::now();
    let (concerned, client) = watches.remove(0);
    for watch in concerned {
        let took = watch.ended().await - deleted;
        println!("a watch ended {took:?} after the pod");
        // The API server remembers for ten seconds that it has accepted a token.
        assert!(took < Duration::from_secs(15), "{took:?}");
    }
    assert_eq!(client.get(&paths[0]).await.status, 401);
    assert!(watches[0].0.iter().all(Observed::is_open));
}

/// Starts kubefan behind a proxy to the API server. The proxy does with requests
/// of callers what `choose` says.
async fn behind_proxy(
    server: &ApiServer,
    choose: impl Fn(&SeenRequest) -> RequestAction + Send + Sync + 'static,
) -> (Kubefan, ScriptedProxy, TempDir) {
    let is_own =
        |request: &SeenRequest| request.header("authorization") == format!("Bearer {ADMIN}");
    let proxy = ScriptedProxy::start(server.anonymous(), move |request| match is_own(request) {
        true => RequestAction::Forward,
        false => choose(request),
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Token(ADMIN));
    let flags = ["--auth", "caller", "--authorization-reauthorize", "2s"];
    let kubefan = Kubefan::start_with(&config, &flags).await;
    (kubefan, proxy, directory)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn two_refusals_that_end_a_watch_come_over_two_connections() {
    let server = private_with_tokens("caller-token,caller,1\n", &[]).await;
    allow(&server, "caller", &user("caller")).await;
    let [path, _] = maps(&server).await;
    let is_refused = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&is_refused);
    let choose = move |_: &SeenRequest| match refuses.load(Ordering::SeqCst) {
        true => RequestAction::Refuse,
        false => RequestAction::Forward,
    };
    let (kubefan, proxy, _directory) = behind_proxy(&server, choose).await;
    let client = kubefan.client().as_token("caller-token");
    let watch = Observed::open(&client, &path, 1).await;
    let before = proxy.seen().len();
    is_refused.store(true, Ordering::SeqCst);
    watch.ended().await;
    let seen = proxy.seen().split_off(before);
    let is_about_token = |request: &&SeenRequest| request.path.ends_with("/selfsubjectreviews");
    let about_token: Vec<_> = seen.iter().filter(is_about_token).collect();
    let [first, .., last] = &about_token[..] else {
        panic!("{seen:?}");
    };
    assert_ne!(first.connection, last.connection, "{about_token:?}");
    let apart = last.at - first.at;
    assert!(apart >= Duration::from_millis(1_950), "{apart:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_flood_of_a_user_saves_none_of_its_watches() {
    let server = private_with_tokens("lost-token,lost,1\nkept-token,kept,2\n", &[]).await;
    for name in ["lost", "kept"] {
        allow(&server, name, &user(name)).await;
    }
    let [path, _] = maps(&server).await;
    let is_flooded = Arc::new(AtomicBool::new(false));
    let floods = Arc::clone(&is_flooded);
    // The API server has no seats for the requests of the two users.
    let choose = move |request: &SeenRequest| {
        let is_review = request.path.ends_with("reviews");
        match is_review && floods.load(Ordering::SeqCst) {
            true => RequestAction::Throttle,
            false => RequestAction::Forward,
        }
    };
    let (kubefan, _proxy, _directory) = behind_proxy(&server, choose).await;
    let open = async |token: &str| {
        let client = kubefan.client().as_token(token);
        Observed::open(&client, &path, 1).await
    };
    let (lost, kept) = (open("lost-token").await, open("kept-token").await);
    is_flooded.store(true, Ordering::SeqCst);
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/lost";
    server.client().delete(binding).await.ok();
    let revoked = Instant::now();
    let took = lost.ended().await - revoked;
    println!("the watch ended after {took:?}");
    assert!(kept.is_open());
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_failure_of_the_authenticators_limits_no_address_after_its_end() {
    const NEW: usize = 20;
    let tokens: String = (0..NEW)
        .map(|number| format!("new-{number},new-{number},{}\n", 10 + number))
        .collect();
    let tokens = format!("known-token,known,1\n{tokens}");
    let server = private_with_tokens(&tokens, &[]).await;
    allow(&server, "known", &user("known")).await;
    let is_refused = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&is_refused);
    let choose = move |_: &SeenRequest| match refuses.load(Ordering::SeqCst) {
        true => RequestAction::Refuse,
        false => RequestAction::Forward,
    };
    let (kubefan, _proxy, _directory) = behind_proxy(&server, choose).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1";
    let client = kubefan.client();
    let known = client.as_token("known-token");
    assert_eq!(known.get(path).await.status, 200);
    let count = async |token: &dyn Fn(usize) -> String, times: usize| {
        let requests = (0..times).map(|number| {
            let client = client.as_token(&token(number));
            async move { client.get(path).await.status.as_u16() }
        });
        let statuses = futures::stream::iter(requests).buffer_unordered(32);
        let statuses: Vec<u16> = statuses.collect().await;
        [401, 403, 429].map(|status| statuses.iter().filter(|found| **found == status).count())
    };
    // Each request with a wrong token counts once.
    is_refused.store(true, Ordering::SeqCst);
    let [refused, _, limited] = count(&|number| format!("wrong-{number}"), 900).await;
    assert_eq!((refused, limited), (900, 0));
    // Tokens that were good do not count, and are not limited. At first a cache still answers.
    let [refused, _, limited] = count(&|_| "known-token".to_owned(), 3_000).await;
    assert!(refused > 2_000 && limited == 0, "{refused} {limited}");
    let [_, _, limited] = count(&|number| format!("new-{}", number % NEW), 6_000).await;
    assert!(limited > 1_000, "{limited}");
    is_refused.store(false, Ordering::SeqCst);
    eventually("the known token", LIMIT, async || {
        known.get(path).await.is(200)
    })
    .await;
    let began = Instant::now();
    let [refused, forbidden, limited] = count(&|number| format!("new-{number}"), NEW).await;
    // The API server knows the users, but they have no rights. Some may have been refused a moment
    // ago, which kubefan remembers.
    println!("after {:?}: {refused} were refused", began.elapsed());
    assert_eq!(limited, 0);
    assert_eq!(refused + forbidden, NEW);
}
