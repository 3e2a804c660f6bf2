//! Reads that wait for a slow cache while their users lose the right to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::identities::grant;
use super::observed::LIMIT;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, metric, private_with_tokens};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy, SeenRequest};

/// How long a read waits: longer than a removed right counts, and
/// shorter than reads wait for a cache.
const WAIT: Duration = Duration::from_millis(1_200);
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/reader";

fn is_of_cache(request: &SeenRequest) -> bool {
    let is_own = request.header("authorization") == format!("Bearer {ADMIN}");
    is_own && request.path.ends_with("/configmaps")
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_read_that_waits_for_a_cache_is_judged_again() {
    let server = private_with_tokens("reader-token,reader,1\n", &[]).await;
    let verbs = ["get", "list", "watch"];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    let subject =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"});
    grant(&server.client(), None, "reader", &rules, &subject).await;
    let (is_slow, released) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
    let (slow, waits) = (Arc::clone(&is_slow), Arc::clone(&released));
    let proxy = ScriptedProxy::start(server.anonymous(), move |request| {
        match is_of_cache(request) && slow.load(Ordering::SeqCst) {
            true => RequestAction::Wait(Arc::clone(&waits)),
            false => RequestAction::Forward,
        }
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Token(ADMIN));
    let kubefan = Kubefan::start_with(&config, &["--auth", "caller"]).await;
    eventually("the watches of roles", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            4.0 => Ok(()),
            found => Err(format!("{found} of 4")),
        }
    })
    .await;
    let reader = kubefan.client().as_token("reader-token");
    let read = reader.get("/api/v1/namespaces/default/configmaps");
    let revoke = async {
        eventually(
            "the request that fills the cache",
            LIMIT,
            async || match proxy.seen().iter().any(is_of_cache) {
                true => Ok(()),
                false => Err("none"),
            },
        )
        .await;
        let began = Instant::now();
        server.client().delete(BINDING).await.ok();
        let forwarded = kubefan.client().as_token("reader-token");
        eventually("the new rights", LIMIT, async || {
            let path = "/api/v1/namespaces/kube-system/configmaps/none";
            forwarded.get(path).await.is(403).map(drop)
        })
        .await;
        sleep_until(began + WAIT).await;
        is_slow.store(false, Ordering::SeqCst);
        released.notify_waiters();
    };
    let (answer, ()) = tokio::join!(read, revoke);
    assert_eq!(answer.status, 403, "{answer}");
}
