//! Many callers at once: what they cost the API server, and what honest clients notice.
//!
//! The costs at full size, by hand: `KUBEFAN_SCALE=1 cargo test --release --test it -- storms`, and
//! with `KUBEFAN_SCALE=3.4` more than 10,000 pods of one service account.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::identities::{TOKENS, grant};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::within;
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;
use crate::support::settings::setting;

const LIMIT: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods?resourceVersion=0";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

async fn kubefan(server: &ApiServer, flags: &[&str]) -> (Kubefan, String) {
    let mut all = vec!["--auth", "caller", "--tls-self-signed", "--all"];
    all.extend(flags);
    let kubefan = Kubefan::start(server, &all).await;
    let authority = fs::read_to_string(kubefan.file(".local/state/kubefan/tls/ca.crt"));
    (kubefan, authority.expect("kubefan's CA"))
}

async fn reviews(kubefan: &Kubefan, kind: &str) -> f64 {
    let labels = [("kind", kind)];
    metric(&kubefan.admin(), "kubefan_reviews_total", &labels).await
}

/// A separate connection from a local address.
struct Connection {
    requests: http1::SendRequest<Empty<Bytes>>,
}

impl Connection {
    async fn open(url: &str, connector: &Connector, from: Ipv4Addr) -> Self {
        let stream = connector.dial(url, from).await.expect("a connection");
        let (requests, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/1.1");
        // It ends with an error if the server is stopped first.
        tokio::spawn(connection);
        Self { requests }
    }

    async fn get(&mut self, path: &str, token: &str) -> u16 {
        let request = Request::get(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {token}"))
            .body(Empty::new())
            .expect("a request");
        self.requests.ready().await.expect("an open connection");
        let answer = self.requests.send_request(request).await;
        let answer = answer.expect("an answer");
        let status = answer.status().as_u16();
        answer.into_body().collect().await.expect("a body");
        status
    }
}

/// Scales a number by `KUBEFAN_SCALE`, with 0.1 as its default here; returns at least 1.
fn scaled(number: usize) -> usize {
    let scale: f64 = setting("KUBEFAN_SCALE", 0.1);
    ((number as f64 * scale) as usize).max(1)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn ten_thousand_wrong_tokens_delay_no_honest_client() {
    const ATTACKERS: usize = 32;
    const TOKENS_EACH: usize = 10_000 / ATTACKERS + 1;
    let server = private_with_tokens(TOKENS, &[]).await;
    let (kubefan, authority) = kubefan(&server, &[]).await;
    let connector = Connector::tls(&authority, None, &["http/1.1"]);
    let (url, local) = (kubefan.url(), Ipv4Addr::LOCALHOST);
    let mut honest = Connection::open(url, &connector, local).await;
    assert_eq!(honest.get(PODS, "admin-token").await, 200);
    let is_over = AtomicBool::new(false);
    let (refused, limited) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let attack = async {
        let attackers = (0..ATTACKERS).map(async |attacker| {
            let mut connection = Connection::open(url, &connector, local).await;
            for number in 0..TOKENS_EACH {
                let token = format!("wrong-{attacker}-{number}");
                match connection.get(PODS, &token).await {
                    401 => refused.fetch_add(1, Ordering::Relaxed),
                    429 => limited.fetch_add(1, Ordering::Relaxed),
                    other => panic!("{other} for a wrong token"),
                };
            }
        });
        join_all(attackers).await;
        is_over.store(true, Ordering::Relaxed);
    };
    // These requests come from the attackers' address, as if behind one load balancer with them.
    let known = async {
        let mut slowest = Duration::ZERO;
        let mut answers = 0;
        while !is_over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            assert_eq!(honest.get(PODS, "admin-token").await, 200);
            slowest = slowest.max(asked.elapsed());
            answers += 1;
            sleep(Duration::from_millis(20)).await;
        }
        (slowest, answers)
    };
    // From another address, with tokens that kubefan does not know yet.
    let new = async {
        let from = Ipv4Addr::new(127, 0, 0, 2);
        let mut connection = Connection::open(url, &connector, from).await;
        let mut slowest = Duration::ZERO;
        for token in [
            "getter-token",
            "lister-token",
            "watcher-token",
            "grouped-token",
        ] {
            sleep(Duration::from_millis(100)).await;
            let asked = Instant::now();
            // The API server knows the users, but they have no rights.
            assert_eq!(connection.get(PODS, token).await, 403, "{token}");
            slowest = slowest.max(asked.elapsed());
        }
        slowest
    };
    let (_, (slowest, answers), new) = within("the attack", LIMIT, async {
        tokio::join!(attack, known, new)
    })
    .await;
    let seconds = began.elapsed().as_secs_f64();
    let asked = reviews(&kubefan, "SelfSubjectReview").await;
    println!(
        "{} tokens in {seconds:.1} s: {} were refused, {} got 429, {asked} reviews; {answers} honest \
         answers within {slowest:?}, new tokens within {new:?}",
        ATTACKERS * TOKENS_EACH,
        refused.load(Ordering::Relaxed),
        limited.load(Ordering::Relaxed),
    );
    // 1,000 and 100 more each second fail, and 64 reviews may be in flight. The honest clients ask
    // about five tokens.
    let bound = 1_000.0 + 100.0 * seconds + 64.0 + 5.0;
    assert!(asked <= bound, "{asked} reviews, at most {bound}");
    assert!(limited.load(Ordering::Relaxed) > 5_000);
    assert!(answers > 10 && slowest < Duration::from_secs(3) && new < Duration::from_secs(3));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn many_requests_of_few_users_cost_few_reviews() {
    const USERS: usize = 100;
    const CONCURRENT: usize = 1_000;
    let requests: usize = scaled(100_000);
    let connections = scaled(1_000).max(USERS);
    let tokens: String = (0..USERS)
        .map(|user| format!("many-{user}-token,many-{user},{},many\n", 1_000 + user))
        .collect();
    let server = private_with_tokens(&tokens, &[]).await;
    let rules = json!([{"apiGroups": ["*"], "resources": ["pods"], "verbs": ["*"]}]);
    let subject = json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": "many"});
    grant(&server.client(), None, "many", &rules, &subject).await;
    // Without an end, so that the machine's speed does not matter.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let ttl = "authentication:\n  tokenTtl: 10m\nauthorization:\n  allowedTtl: 10m\n";
    fs::write(&file, ttl).expect("room");
    let file = file.path().to_str().expect("a path").to_owned();
    let (kubefan, authority) = kubefan(&server, &["--config", &file]).await;
    let connector = Connector::tls(&authority, None, &["h2"]);
    let clients: Vec<Client> = (0..connections)
        .map(|number| {
            let client = Client::http2(kubefan.url(), connector.clone());
            client.as_token(&format!("many-{}-token", number % USERS))
        })
        .collect();
    let began = Instant::now();
    let answers = (0..requests).map(|number| {
        let client = clients[number % connections].clone();
        async move { client.get(PODS).await.status.as_u16() }
    });
    let statuses: Vec<u16> = stream::iter(answers)
        .buffer_unordered(CONCURRENT)
        .collect()
        .await;
    assert!(statuses.iter().all(|status| *status == 200));
    let identities = reviews(&kubefan, "SelfSubjectReview").await;
    let decisions = reviews(&kubefan, "SelfSubjectAccessReview").await;
    println!(
        "{requests} requests of {connections} clients in {:.1} s: {identities} questions about tokens, {decisions} about rights",
        began.elapsed().as_secs_f64()
    );
    assert_eq!(identities, USERS as f64);
    assert_eq!(decisions, USERS as f64);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn pods_of_one_service_account_share_decisions() {
    let pods: usize = scaled(3_000);
    let server = private_with_tokens("", &[]).await;
    let admin = server.client();
    let base = "/api/v1/namespaces/default";
    let account = json!({"metadata": {"name": "agent"}});
    admin
        .create(&format!("{base}/serviceaccounts"), &account)
        .await
        .ok();
    let rules = json!([{"apiGroups": ["*"], "resources": ["pods"], "verbs": ["list", "watch"]}]);
    let subject = json!({"kind": "ServiceAccount", "name": "agent", "namespace": "default"});
    grant(&admin, None, "agents", &rules, &subject).await;
    // Tokens that are bound to pods differ in the user's extra.
    let issued = (0..pods).map(|number| {
        let admin = admin.clone();
        async move {
            let pod = json!({
                "metadata": {"name": format!("agent-{number}")},
                "spec": {
                    "serviceAccountName": "agent",
                    "nodeName": format!("node-{number}"),
                    "containers": [{"name": "c", "image": "i"}],
                },
            });
            let pod = admin
                .create(&format!("{base}/pods"), &pod)
                .await
                .ok()
                .json();
            let bound = json!({
                "kind": "Pod", "apiVersion": "v1",
                "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
            });
            let request = json!({"spec": {"boundObjectRef": bound}});
            let path = format!("{base}/serviceaccounts/agent/token");
            let token = admin.create(&path, &request).await.ok().json();
            token["status"]["token"]
                .as_str()
                .expect("a token")
                .to_owned()
        }
    });
    let tokens: Vec<String> = stream::iter(issued).buffered(32).collect().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let config = "authentication:\n  tokenTtl: 10m\nauthorization:\n  allowedTtl: 10m\n  ignoreExtra:\n\
                  \x20   - authentication.kubernetes.io/pod-name\n\
                  \x20   - authentication.kubernetes.io/pod-uid\n\
                  \x20   - authentication.kubernetes.io/node-name\n\
                  \x20   - authentication.kubernetes.io/node-uid\n\
                  \x20   - authentication.kubernetes.io/credential-id\n";
    fs::write(&file, config).expect("room");
    let file = file.path().to_str().expect("a path").to_owned();
    let (kubefan, authority) = kubefan(&server, &["--config", &file]).await;
    let connector = Connector::tls(&authority, None, &["h2"]);
    let client = Client::http2(kubefan.url(), connector);
    for round in 0..2 {
        let reads = tokens.iter().enumerate().map(|(number, token)| {
            let client = client.as_token(token);
            let selector = format!("fieldSelector=spec.nodeName%3Dnode-{number}&resourceVersion=0");
            async move {
                let list = client.get(&format!("/api/v1/pods?{selector}")).await.ok();
                assert_eq!(list.json()["items"].as_array().map(Vec::len), Some(1));
                let watch = format!("/api/v1/pods?{selector}&watch=1&timeoutSeconds=1");
                client.get(&watch).await.ok();
            }
        });
        stream::iter(reads)
            .buffer_unordered(pods)
            .collect::<Vec<()>>()
            .await;
        let identities = reviews(&kubefan, "SelfSubjectReview").await;
        let decisions = reviews(&kubefan, "SelfSubjectAccessReview").await;
        println!("round {round}: {identities} questions about tokens, {decisions} about rights");
        assert_eq!(identities, pods as f64);
        assert!(decisions <= 20.0, "{decisions} questions about rights");
    }
}
