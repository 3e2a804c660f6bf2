//! The admin listener under all identities: each path, for each kind of caller, on each kind of
//! listener. The paths of the admin API are those of `docs/admin-api.json`, and the files of the
//! dashboard those of its folder, so a new one is checked at once.

mod askers;
mod kinds;
mod rows;
mod target;

use std::time::Duration;

use askers::{Asker, askers};
use futures::future::join_all;
use kinds::{KINDS, Kind};
use rows::{Row, rows};
use target::Target;

use super::admin::account;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, shared};

const LIMIT: Duration = Duration::from_secs(30);

// What another client is and asks for.
const USER: &str = "sentinel-user";
const PROGRAM: &str = "sentinel-program";
const LABEL: &str = "sentinel-label";
const OBJECT: &str = "sentinel-object";

/// The other client: its token, and the path of the ConfigMaps that it may read.
struct OtherClient {
    token: String,
    maps: String,
}

impl OtherClient {
    async fn create(server: &ApiServer, namespace: &str) -> Self {
        let token = account(server, namespace, USER, &[]).await;
        let user = format!("system:serviceaccount:{namespace}:{USER}");
        let verbs = ["get", "list", "watch"];
        let user = ("User", user.as_str());
        server.allow(user, namespace, &verbs, &["configmaps"]).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let direct = server.anonymous().as_token(&token);
        eventually("the right", LIMIT, async || direct.get(&maps).await.is(200)).await;
        Self { token, maps }
    }
}

/// Checks all cells of one kind of listener, and returns their number.
async fn check(
    server: &ApiServer,
    kind: &'static Kind,
    other: &OtherClient,
    (rows, askers): (&[Row], &[Asker]),
) -> usize {
    let target = Target::start(server, kind, other).await;
    let fits = |asker: &Asker| asker.certificate.is_none() || kind.takes_certificates();
    let mut cells = 0;
    for asker in askers.iter().filter(|asker| fits(asker)) {
        cells += target.check(rows, asker).await;
    }
    for admin in [Asker::admin(), Asker::certified_admin(server)] {
        if fits(&admin) {
            cells += target.check_browsers(rows, &admin).await;
        }
    }
    cells + target.check_preflights(rows).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn each_path_shows_each_caller_what_its_rights_allow_and_nothing_of_others() {
    let server = shared();
    let namespace = server.namespace("admin-matrix").await;
    let other = OtherClient::create(server, &namespace).await;
    let (rows, askers) = (rows(), askers(server, &namespace).await);
    let kinds = KINDS.iter();
    let cells = kinds.map(|kind| check(server, kind, &other, (&rows, &askers)));
    let cells: usize = join_all(cells).await.into_iter().sum();
    println!("{} paths, {cells} cells", rows.len());
}
