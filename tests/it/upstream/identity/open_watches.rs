//! Watches that are open when their users lose the right to them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::identities::grant;
use super::observed::{LIMIT, Observed, unread, websocket, websocket_ended};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;

const TOKENS: &str = "loser-token,loser,1\nkeeper-token,keeper,2\n";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

async fn allow(server: &ApiServer, user: &str) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
    let subject = json!({"kind": "User", "name": user});
    grant(&server.client(), None, user, &rules, &subject).await;
}

/// How long a watch may go on after its user has lost the right to it.
const MOST: Duration = Duration::from_secs(2);

/// Waits until kubefan has this many open watches of authenticated callers.
async fn open_watches(kubefan: &Kubefan, expected: f64) {
    eventually("the open watches", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_open_watches", &[]).await {
            found if found == expected => Ok(()),
            found => Err(format!("{found}, not {expected}")),
        }
    })
    .await;
}

/// How kubefan learns that a right was lost.
#[derive(Clone, Copy, Debug)]
enum Notice {
    /// kubefan may not watch roles, so it asks again regularly.
    Timer,
    /// kubefan watches roles and bindings.
    Event,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_ends_when_its_user_loses_the_right() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let namespace = server.namespace("open").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let verbs = ["get", "list", "watch"];
    server
        .allow_reader(&namespace, &verbs, &["configmaps"])
        .await;
    allow(&server, "keeper").await;
    for (mode, notice) in [("caller", Notice::Timer), ("delegated", Notice::Event)] {
        allow(&server, "loser").await;
        ends_in_mode(&server, mode, notice, &namespace).await;
        let admin = server.client();
        let role = BINDINGS.replace("bindings", "s");
        admin.delete(&format!("{role}/loser")).await.ok();
        admin.delete(&maps).await.ok();
    }
}

async fn start(server: &ApiServer, mode: &str, notice: Notice) -> Kubefan {
    let auth = ["--auth", mode];
    let often = ["--authorization-reauthorize", "1s"];
    let kubefan = match notice {
        Notice::Timer => {
            let flags = [auth, often].concat();
            Kubefan::start_with(&server.kubeconfig("reader"), &flags).await
        }
        Notice::Event => Kubefan::start(server, &auth).await,
    };
    let expected = match notice {
        Notice::Timer => 0.0,
        Notice::Event => 4.0,
    };
    eventually("the watches of roles", LIMIT, async || {
        let alive = metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await;
        match alive == expected {
            true => Ok(()),
            false => Err(format!("{alive}, not {expected}")),
        }
    })
    .await;
    kubefan
}

/// Opens watches of all kinds, takes the right from one of the two users, and sees which end.
async fn ends_in_mode(server: &ApiServer, mode: &str, notice: Notice, namespace: &str) {
    let kubefan = start(server, mode, notice).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let create = async |name: &str, length: usize| {
        let map = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(length)}});
        server.client().create(&maps, &map).await.ok();
    };
    // Several events, so that the later events wait for a closed window.
    for name in ["a", "b", "c"] {
        create(name, 100_000).await;
    }
    let watch = format!("{maps}?watch=1&resourceVersion=0");
    // The API server answers deprecated paths.
    let forwarded = format!("/api/v1/watch/namespaces/{namespace}/configmaps?resourceVersion=0");
    let http1 = kubefan.client();
    let http2 = Client::http2(kubefan.url(), Connector::plain());
    let (loser, keeper) = ("loser-token", "keeper-token");
    let mut ending = Vec::new();
    for client in [&http1, &http2] {
        for path in [&watch, &forwarded] {
            ending.push(Observed::open(&client.as_token(loser), path, 3).await);
        }
    }
    let sockets = [
        websocket(&http1.as_token(loser), &watch).await,
        websocket(&http1.as_token(loser), &forwarded).await,
    ];
    let mut closed_windows = Vec::new();
    for path in [&watch, &forwarded] {
        closed_windows.push(unread(kubefan.url(), loser, path, 1_000).await);
    }
    let staying = [
        Observed::open(&http1.as_token(keeper), &watch, 3).await,
        Observed::open(&http2.as_token(keeper), &watch, 3).await,
        Observed::open(&http2.as_token(keeper), &forwarded, 3).await,
    ];
    open_watches(&kubefan, 11.0).await;
    let labels = [("outcome", "cache"), ("verb", "watch")];
    let cached = metric(&kubefan.admin(), "kubefan_requests_total", &labels).await;
    assert_eq!(cached, 6.0, "{mode}: the WebSocket and the rest");

    server
        .client()
        .delete(&format!("{BINDINGS}/loser"))
        .await
        .ok();
    let lost = Instant::now();
    for watch in ending {
        let took = watch.ended().await - lost;
        assert!(took < MOST, "{mode}: {took:?}");
    }
    for socket in sockets {
        websocket_ended(mode, socket).await;
    }
    open_watches(&kubefan, 3.0).await;
    let broken_off = "kubefan_open_watches_broken_off_total";
    let broken_off = metric(&kubefan.admin(), broken_off, &[]).await;
    assert_eq!(broken_off, 2.0, "{mode}: those with a closed window");
    drop(closed_windows);
    create("d", 10).await;
    for watch in &staying {
        watch.has(4).await;
        assert!(watch.is_open(), "{mode}");
    }
    let refused = kubefan.client().as_token(loser).get(&watch).await;
    assert_eq!(refused.status, 403, "{mode}: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_watch_ends_when_the_account_of_its_token_is_deleted() {
    let server = private_with_tokens("", &[]).await;
    let namespace = server.namespace("accounts").await;
    let admin = server.client();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let flags = ["--auth", "caller", "-r", "serviceaccounts"];
    let kubefan = Kubefan::start(&server, &flags).await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({"metadata": {"name": "first"}});
    admin.create(&maps, &map).await.ok();
    let http2 = Client::http2(kubefan.url(), Connector::plain());
    let mut watches = Vec::new();
    for name in ["deleted", "kept"] {
        let account = json!({"metadata": {"name": name}});
        admin.create(&accounts, &account).await.ok();
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        grant(&admin, None, name, &rules, &subject).await;
        let request = json!({"spec": {"expirationSeconds": 3600}});
        let issued = admin
            .create(&format!("{accounts}/{name}/token"), &request)
            .await;
        let issued = issued.ok().json();
        let token = issued["status"]["token"].as_str().expect("a token");
        let path = format!("{maps}?watch=1&resourceVersion=0");
        let client = http2.as_token(token);
        watches.push((Observed::open(&client, &path, 1).await, client, path));
    }
    open_watches(&kubefan, 2.0).await;
    eventually("the cache of accounts", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_account_caches", &[]).await {
            found if found >= 1.0 => Ok(()),
            found => Err(format!("{found} caches")),
        }
    })
    .await;
    admin.delete(&format!("{accounts}/deleted")).await.ok();
    let deleted = Instant::now();
    let (watch, client, path) = watches.remove(0);
    let took = watch.ended().await - deleted;
    println!("the watch ended after {took:?}");
    // The API server remembers for ten seconds that it has accepted a token.
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(client.get(&path).await.status, 401);
    open_watches(&kubefan, 1.0).await;
    assert!(watches[0].0.is_open());
}
