//! How long revoked rights and tokens count, with the default settings: the times that SECURITY.md
//! states, measured by hand.

use std::fmt::Display;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::identities::grant;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(120);
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROUNDS: usize = 3;

/// The longest of the times that were measured.
#[derive(Debug, Default)]
struct Longest {
    new: Duration,
    open: Duration,
}

async fn allow(server: &ApiServer, user: &str) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let subject = json!({"kind": "User", "name": user});
    grant(&server.client(), None, user, &rules, &subject).await;
}

/// Reads with `client`, and has a watch open, until both are refused. Returns the times after
/// `revoke`; the watch's is zero unless `has_watch`.
async fn until_refused(
    client: &Client,
    has_watch: bool,
    revoke: impl Future<Output = ()>,
) -> Longest {
    let watch = format!("{MAPS}?watch=1&resourceVersion=0");
    let reader = match has_watch {
        true => Some(client.watch(&watch, Format::Json).await.expect("a watch")),
        false => None,
    };
    revoke.await;
    let began = Instant::now();
    let new = async {
        loop {
            // A cached read, which needs the right and the token.
            let answer = client.get(&format!("{MAPS}?resourceVersion=0")).await;
            if answer.status != 200 {
                return began.elapsed();
            }
            assert!(began.elapsed() < LIMIT, "the reads go on");
            sleep(Duration::from_millis(20)).await;
        }
    };
    let open = async {
        let Some(mut reader) = reader else {
            return Duration::ZERO;
        };
        while let Ok(Some(_)) = reader.next().await {
            assert!(began.elapsed() < LIMIT, "the watch goes on");
        }
        began.elapsed()
    };
    let (new, open) = tokio::join!(new, open);
    Longest { new, open }
}

impl Longest {
    fn add(&mut self, other: &Self) {
        self.new = self.new.max(other.new);
        self.open = self.open.max(other.open);
    }

    fn print(&self, what: &str, stated: impl Display) {
        println!(
            "{what}: new requests {:.1?}, open watches {:.1?}; stated: {stated}",
            self.new, self.open
        );
    }
}

/// Removes a right in each round.
async fn rights(server: &ApiServer, kubefan: &Kubefan, open_too: bool) -> Longest {
    let client = Client::http2(kubefan.url(), Connector::plain()).as_token("loser-token");
    let mut longest = Longest::default();
    for _ in 0..ROUNDS {
        allow(server, "loser").await;
        eventually("the right", LIMIT, async || {
            let path = format!("{MAPS}?resourceVersion=0");
            client.get(&path).await.is(200).map(|_| ())
        })
        .await;
        let remove = async {
            let admin = server.client();
            admin.delete(&format!("{BINDINGS}/loser")).await.ok();
            admin.delete(&format!("{ROLES}/loser")).await.ok();
        };
        longest.add(&until_refused(&client, open_too, remove).await);
    }
    longest
}

/// Deletes a service account in each round.
async fn accounts(server: &ApiServer, kubefan: &Kubefan, open_too: bool) -> Longest {
    let admin = server.client();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let subject = json!({"kind": "Group", "name": "system:serviceaccounts"});
    let _ = admin.delete(&format!("{BINDINGS}/accounts")).await;
    let _ = admin.delete(&format!("{ROLES}/accounts")).await;
    grant(&admin, None, "accounts", &rules, &subject).await;
    let mut longest = Longest::default();
    for round in 0..ROUNDS {
        let name = format!("account-{round}-{open_too}");
        let account = json!({"metadata": {"name": name}});
        admin.create(accounts, &account).await.ok();
        let path = format!("{accounts}/{name}/token");
        let token = admin.create(&path, &json!({"spec": {}})).await.ok().json();
        let token = token["status"]["token"].as_str().expect("a token");
        let client = Client::http2(kubefan.url(), Connector::plain()).as_token(token);
        eventually("the right", LIMIT, async || {
            let path = format!("{MAPS}?resourceVersion=0");
            client.get(&path).await.is(200).map(|_| ())
        })
        .await;
        let delete = async {
            admin.delete(&format!("{accounts}/{name}")).await.ok();
        };
        longest.add(&until_refused(&client, open_too, delete).await);
    }
    longest
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: takes up to ten minutes"]
async fn measure_how_long_revoked_rights_and_tokens_count() {
    let server = private_with_tokens("loser-token,loser,1\n", &[]).await;
    let map = json!({"metadata": {"name": "first"}});
    server.client().create(MAPS, &map).await.ok();
    let flags = ["--auth", "caller", "-r", "configmaps,serviceaccounts"];
    let kubefan = Kubefan::start(&server, &flags).await;
    eventually("the watches of roles", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            4.0 => Ok(()),
            found => Err(format!("{found}")),
        }
    })
    .await;
    let found = rights(&server, &kubefan, true).await;
    found.print("a right is removed, roles are watched", "1 s, 2 s");
    let found = accounts(&server, &kubefan, true).await;
    found.print("an account is deleted, accounts are cached", "10 s, 13 s");
    drop(kubefan);

    // With rights to configmaps only.
    let verbs = ["get", "list", "watch"];
    server
        .allow_reader("default", &verbs, &["configmaps"])
        .await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    let subject = json!({"kind": "User", "name": "reader"});
    grant(&server.client(), None, "kubefan", &rules, &subject).await;
    let kubefan = Kubefan::start_with(
        &server.kubeconfig("reader"),
        &["--auth", "caller", "-r", "configmaps"],
    )
    .await;
    let found = rights(&server, &kubefan, true).await;
    found.print("a right is removed, roles are not watched", "10 s, 60 s");
    let found = accounts(&server, &kubefan, false).await;
    found.print("an account is deleted, accounts are not cached", "20 s");
}
