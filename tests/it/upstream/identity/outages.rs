//! What callers may read while the API server does not answer.

use std::time::Duration;

use serde_json::json;

use super::identities::grant;
use super::observed::LIMIT;
use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;

const TOKENS: &str = "reader-a-token,reader-a,1\nloser-token,loser,2\nnew-token,new,3\n";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

async fn allow(server: &ApiServer, user: &str) {
    let verbs = ["get", "list", "watch"];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    grant(&server.client(), None, user, &rules, &subject).await;
}

async fn start(server: &ApiServer, stale: &str) -> Kubefan {
    let flags = [
        "--auth",
        "caller",
        "--authorization-cache-authorized-ttl",
        "1s",
        "--authentication-token-cache-ttl",
        "1s",
        "--authorization-stale",
        stale,
    ];
    let kubefan = Kubefan::start(server, &flags).await;
    eventually("the watches of roles", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            4.0 => Ok(()),
            found => Err(format!("{found} of 4")),
        }
    })
    .await;
    kubefan
}

/// Reads until the answer has this status, and a warning or none.
async fn is_answered(client: &Client, path: &str, status: u16, warns: bool) {
    eventually(path, LIMIT, async || {
        let answer = client.get(path).await.is(status)?;
        match answer.header("warning") {
            Some(text) if warns && text.contains("older permission") => Ok(()),
            None if !warns => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn permissions_count_in_an_outage_only_as_long_as_the_operator_says() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let namespace = server.namespace("outage").await;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({"metadata": {"name": "first"}});
    server.client().create(&maps, &map).await.ok();
    for user in ["reader-a", "loser", "new"] {
        allow(&server, user).await;
    }
    let (list, get) = (
        format!("{maps}?resourceVersion=0"),
        format!("{maps}/first?resourceVersion=0"),
    );
    let watch = format!("{maps}?watch=1&resourceVersion=0&timeoutSeconds=1");
    let (strict, lenient) = (start(&server, "0s").await, start(&server, "10m").await);
    let as_user =
        |kubefan: &Kubefan, user: &str| kubefan.client().as_token(&format!("{user}-token"));
    for kubefan in [&strict, &lenient] {
        for user in ["reader-a", "loser"] {
            for path in [&list, &get, &watch] {
                is_answered(&as_user(kubefan, user), path, 200, false).await;
            }
        }
    }
    // Everyone may read discovery; what each caller has read before is remembered.
    for kubefan in [&strict, &lenient] {
        let discovery = as_user(kubefan, "reader-a").get("/apis").await;
        assert_eq!(discovery.status, 200, "{discovery}");
    }
    let binding = format!("{BINDINGS}/loser");
    server.client().delete(&binding).await.ok();
    for kubefan in [&strict, &lenient] {
        is_answered(&as_user(kubefan, "loser"), &list, 403, false).await;
    }
    server.stop();
    let reader = as_user(&lenient, "reader-a");
    for path in [&list, &get, &watch] {
        // The decisions may still be fresh.
        is_answered(&reader, path, 200, true).await;
    }
    let discovery = reader.get("/apis").await.ok();
    let warning = discovery.header("warning").unwrap_or_default();
    assert!(warning.contains("the last one that it sent"), "{warning}");
    assert!(discovery.to_string().contains("APIGroup"), "{discovery}");
    for (kubefan, user, path) in [
        (&strict, "reader-a", "/apis"),
        (&lenient, "new", "/apis"),
        (&lenient, "reader-a", "/api"),
    ] {
        is_answered(&as_user(kubefan, user), path, 503, false).await;
    }
    let counted = metric(&lenient.admin(), "kubefan_stale_decisions_total", &[]).await;
    assert!(counted >= 3.0, "{counted}");
    for (kubefan, user) in [
        // The operator did not allow it.
        (&strict, "reader-a"),
        // The last decision about this user was a denial.
        (&lenient, "loser"),
        // There is no decision about this user.
        (&lenient, "new"),
    ] {
        for path in [&list, &get, &watch] {
            is_answered(&as_user(kubefan, user), path, 503, false).await;
        }
    }
    server.start_again().await;
    let fresh = eventually("the API server", Duration::from_secs(60), async || {
        let answer = reader.get(&list).await.is(200)?;
        match answer.header("warning") {
            None => Ok(()),
            Some(warning) => Err(warning.to_owned()),
        }
    });
    fresh.await;
    is_answered(&as_user(&lenient, "new"), &list, 200, false).await;
}
