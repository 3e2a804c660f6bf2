//! Many users with many open watches. One of these users loses its right.
//!
//! The outage of a minute is run by hand, in each mode:
//!
//! ```sh
//! KUBEFAN_OUTAGE_SECONDS=60 KUBEFAN_OUTAGE_MODE=caller \
//!     cargo test --test it an_outage_of_etcd_ends_no_watch -- --nocapture
//! ```
//!
//! The test of a silent watch of roles is run by hand too, and takes a minute:
//!
//! ```sh
//! cargo test --test it silent_watches_of_roles -- --ignored --nocapture
//! ```
//!
//! The measurement of 10,000 watches without events is run by hand too, and takes four minutes:
//!
//! ```sh
//! cargo test --release --test it ten_thousand_idle_watches -- --ignored --nocapture
//! ```

use std::env;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use http::Response;
use hyper::body::Incoming;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::identities::grant;
use super::observed::{LIMIT, Observed, unread};
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, metric, private_with_tokens};
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::programs::sibling::Sibling;
use crate::support::proxies::balancer::Balancer;
use crate::support::proxies::fault_proxy::FaultProxy;
use crate::support::proxies::lagging_etcd::LaggingEtcd;
use crate::support::settings::setting;

const USERS: usize = 10;
/// Watches of each user. Half of them are of one object each, so that their questions differ. Half
/// of the others have a label selector, so that kubefan asks about them again with the selector.
const WATCHES: usize = 100;
/// Watches of the first user with clients that read nothing.
const UNREAD: usize = 5;
/// How long a watch may go on after the API server has learnt that its user lost the right.
const MOST: Duration = Duration::from_secs(2);
const LAG: Duration = Duration::from_secs(3);

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn tokens() -> String {
    let line = |user: usize| format!("token-{user},user-{user},{user}\n");
    (0..USERS).map(line).collect()
}

/// An API server with users that may watch ConfigMaps, and two namespaces of ConfigMaps.
struct Scene {
    server: ApiServer,
    /// The ConfigMaps that most watches are of; one object at first.
    maps: String,
    /// Longer ConfigMaps, which fill a client's window.
    long: String,
}

/// The open watches of all users, by user.
struct Watches {
    read: Vec<Vec<Observed>>,
    unread: Vec<Response<Incoming>>,
}

impl Scene {
    async fn new() -> Self {
        let server = private_with_tokens(&tokens(), &[]).await;
        let admin = server.client();
        for user in 0..USERS {
            let name = format!("user-{user}");
            let rules =
                json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
            let subject = json!({"kind": "User", "name": name});
            grant(&admin, None, &name, &rules, &subject).await;
        }
        let path = |namespace| format!("/api/v1/namespaces/{namespace}/configmaps");
        let scene = Self {
            maps: path(server.namespace("many").await),
            long: path(server.namespace("long").await),
            server,
        };
        scene.create(&scene.maps, "first", 10).await;
        for name in ["a", "b", "c"] {
            scene.create(&scene.long, name, 100_000).await;
        }
        scene
    }

    async fn create(&self, path: &str, name: &str, length: usize) {
        let map = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(length)}});
        self.server.client().create(path, &map).await.ok();
    }

    /// Takes the right from a user, and returns when the API server has confirmed it.
    async fn revoke(&self, user: usize) -> Instant {
        let path = format!("{BINDINGS}/user-{user}");
        self.server.client().delete(&path).await.ok();
        Instant::now()
    }

    async fn open(&self, kubefan: &Kubefan, users: usize, watches: usize) -> Watches {
        let of_user = async |user: usize| {
            let client = Client::http2(kubefan.url(), Connector::plain());
            let client = client.as_token(&format!("token-{user}"));
            let open = async |number: usize| {
                let path = format!("{}?watch=1&resourceVersion=0", self.maps);
                let (selector, objects) = match number % 4 {
                    0 => (String::new(), 1),
                    2 => ("&labelSelector=app%21%3Dnone".to_owned(), 1),
                    _ => (format!("&fieldSelector=metadata.name%3Dm{number}"), 0),
                };
                Observed::open(&client, &format!("{path}{selector}"), objects).await
            };
            join_all((0..watches).map(open)).await
        };
        let read = join_all((0..users).map(of_user)).await;
        let path = format!("{}?watch=1&resourceVersion=0", self.long);
        let unread = (0..UNREAD).map(|_| unread(kubefan.url(), "token-0", &path, 1_000));
        Watches {
            read,
            unread: join_all(unread).await,
        }
    }
}

/// Waits until kubefan has this many open watches of authenticated callers.
async fn has_open(kubefan: &Kubefan, expected: usize) {
    eventually("the open watches", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_open_watches", &[]).await {
            found if found == expected as f64 => Ok(()),
            found => Err(format!("{found}, not {expected}")),
        }
    })
    .await;
}

/// Waits until kubefan watches roles and bindings.
async fn watches_roles(kubefan: &Kubefan) {
    eventually("the watches of roles", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            4.0 => Ok(()),
            found => Err(format!("{found} of 4")),
        }
    })
    .await;
}

/// Takes the right from the first user. All watches of this user end, and no others. Returns the
/// time until the last watch that is read has ended, and the time until all watches have ended.
async fn revoke(scene: &Scene, kubefan: &Kubefan, mut watches: Watches) -> [Duration; 2] {
    let all = USERS * WATCHES + UNREAD;
    has_open(kubefan, all).await;
    let revoked = scene.revoke(0).await;
    let concerned = watches.read.remove(0);
    let ended = join_all(concerned.into_iter().map(Observed::ended)).await;
    let last = ended.into_iter().max().expect("watches") - revoked;
    has_open(kubefan, all - WATCHES - UNREAD).await;
    let unread = revoked.elapsed();
    drop(watches.unread);
    scene.create(&scene.maps, "second", 10).await;
    for (number, watch) in watches.read.iter().flat_map(|of| of.iter().enumerate()) {
        assert!(watch.is_open(), "a watch of another user ended");
        if number.is_multiple_of(2) {
            watch.has(2).await;
        }
    }
    [last, unread]
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn one_of_ten_users_loses_its_right_to_a_hundred_watches() {
    let scene = Scene::new().await;
    let kubefan = Kubefan::start(&scene.server, &["--auth", "caller"]).await;
    watches_roles(&kubefan).await;
    let watches = scene.open(&kubefan, USERS, WATCHES).await;
    let [read, all] = revoke(&scene, &kubefan, watches).await;
    println!("{WATCHES} watches ended within {read:?}, those not read within {all:?}");
    assert!(read < MOST && all < MOST, "{read:?}, {all:?}");
}

/// Writes a kubeconfig of the admin for a server at `url`.
fn kubeconfig_of(scene: &Scene, url: &str, directory: &TempDir) -> std::path::PathBuf {
    let path = directory.path().join("config");
    let authority = Some(scene.server.authority());
    kubeconfig::write(&path, url, authority, &User::Token(ADMIN));
    path
}

async fn start(config: &Path) -> Kubefan {
    let kubefan = Kubefan::start_with(config, &["--auth", "delegated"]).await;
    watches_roles(&kubefan).await;
    kubefan
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn watches_end_although_the_reviewing_api_server_lags() {
    let scene = Scene::new().await;
    let lagging = LaggingEtcd::start(scene.server.etcd_port()).await;
    let sibling = Sibling::start(&scene.server, &lagging.url(), &[]).await;
    let balancer = Balancer::start(&[scene.server.port(), sibling.port()]).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Roles are watched at the first server, and reviews are answered by the second.
    balancer.prefer(Some(0));
    let kubefan = start(&kubeconfig_of(&scene, &balancer.url(), &directory)).await;
    balancer.prefer(Some(1));
    let watches = scene.open(&kubefan, USERS, WATCHES).await;
    lagging.lag(LAG);
    let [read, all] = revoke(&scene, &kubefan, watches).await;
    println!("behind a lag of {LAG:?}: {read:?}, those not read {all:?}");
    assert!(read < LAG + MOST && all < LAG + MOST, "{read:?}, {all:?}");
    drop(sibling);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn an_outage_of_etcd_ends_no_watch() {
    let scene = Scene::new().await;
    let mode = env::var("KUBEFAN_OUTAGE_MODE").unwrap_or_else(|_| "caller".to_owned());
    let flags = [
        "--auth",
        &mode,
        "--authorization-reauthorize",
        "1s",
        "--authorization-max-reviews",
        "1000",
        "--authorization-names-covered=false",
    ];
    let kubefan = Kubefan::start(&scene.server, &flags).await;
    watches_roles(&kubefan).await;
    let (users, count) = (3, 10);
    let watches = scene.open(&kubefan, users, count).await;
    has_open(&kubefan, users * count + UNREAD).await;
    let reviews = async || {
        let mut reviews = 0.0;
        for result in ["allowed", "unclear", "refused"] {
            let name = "kubefan_open_watch_reviews_total";
            reviews += metric(&kubefan.admin(), name, &[("result", result)]).await;
        }
        reviews
    };
    scene.server.stop_etcd();
    let (began, before) = (Instant::now(), reviews().await);
    let outage = Duration::from_secs(setting("KUBEFAN_OUTAGE_SECONDS", 5));
    // Each user has six questions.
    let asked = before + (users * 6 * 3) as f64;
    eventually("questions in the outage", outage + LIMIT, async || {
        let reviews = reviews().await;
        match reviews >= asked && began.elapsed() >= outage {
            true => Ok(()),
            false => Err(format!("{reviews} of {asked} questions")),
        }
    })
    .await;
    println!(
        "{mode}: {} questions in {:?}",
        reviews().await - before,
        began.elapsed()
    );
    scene.server.start_etcd_again().await;
    has_open(&kubefan, users * count + UNREAD).await;
    let mut all = watches.read.iter().flatten();
    assert!(all.all(Observed::is_open));
    let ended = metric(&kubefan.admin(), "kubefan_open_watches_ended_total", &[]).await;
    assert_eq!(ended, 0.0);
    // Rights that are lost after the outage are noticed.
    let revoked = scene.revoke(0).await;
    let mut read = watches.read;
    for watch in read.remove(0) {
        watch.ended().await;
    }
    println!("after the outage: {:?}", revoked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute"]
async fn silent_watches_of_roles_count_as_absent_and_end_nothing() {
    let scene = Scene::new().await;
    // Over HTTP/1.1 there are no pings, so only events and bookmarks prove that a watch is alive.
    let proxy = FaultProxy::start(&scene.server).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kubefan = start(&kubeconfig_of(&scene, proxy.url(), &directory)).await;
    let (users, count) = (2, 4);
    let watches = scene.open(&kubefan, users, count).await;
    has_open(&kubefan, users * count + UNREAD).await;
    proxy.silence(true);
    let silent = Instant::now();
    eventually(
        "silent watches",
        Duration::from_secs(60),
        async || match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            found if found < 4.0 => Ok(()),
            found => Err(format!("{found} are alive")),
        },
    )
    .await;
    println!(
        "a silent watch counts as absent after {:?}",
        silent.elapsed()
    );
    assert!(watches.read.iter().flatten().all(Observed::is_open));
    has_open(&kubefan, users * count + UNREAD).await;
    let ended = metric(&kubefan.admin(), "kubefan_open_watches_ended_total", &[]).await;
    assert_eq!(ended, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes four minutes"]
async fn ten_thousand_idle_watches_cost_few_reviews() {
    const USERS: usize = 100;
    const NAMESPACES: usize = 10;
    const WATCHES: usize = 10_000;
    const OBSERVED: Duration = Duration::from_secs(180);
    let line = |user: usize| format!("token-{user},user-{user},{},idle\n", 100 + user);
    let tokens: String = (0..USERS).map(line).collect();
    let server = private_with_tokens(&tokens, &[]).await;
    let admin = server.client();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
    let group = "rbac.authorization.k8s.io";
    let subject = json!({"apiGroup": group, "kind": "Group", "name": "idle"});
    grant(&admin, None, "idle", &rules, &subject).await;
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(server.namespace("idle").await);
    }
    let kubefan = Kubefan::start(&server, &["--auth", "caller"]).await;
    watches_roles(&kubefan).await;
    let of_user = async |user: usize| {
        let client = Client::http2(kubefan.url(), Connector::plain());
        let client = client.as_token(&format!("token-{user}"));
        let mut open = Vec::new();
        for number in 0..WATCHES / USERS {
            let namespace = &namespaces[number % NAMESPACES];
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            // The watches of a namespace have different selectors, which need no question.
            let selector = format!("labelSelector=app%3D{}", number / NAMESPACES);
            let path = format!("{path}?watch=1&resourceVersion=0&{selector}");
            open.push(Observed::open(&client, &path, 0).await);
        }
        open
    };
    let open = join_all((0..USERS).map(of_user)).await;
    has_open(&kubefan, WATCHES).await;
    let questions = metric(&kubefan.admin(), "kubefan_open_watch_questions", &[]).await;
    assert_eq!(questions, (USERS * NAMESPACES + USERS) as f64);
    let reviews = async || {
        let sent = metric(&kubefan.admin(), "kubefan_reviews_total", &[]).await;
        (sent, kubefan.cpu(), Instant::now())
    };
    let (before, cpu_before, began) = reviews().await;
    tokio::time::sleep_until(began + OBSERVED).await;
    let (after, cpu_after, ended) = reviews().await;
    let seconds = (ended - began).as_secs_f64();
    let rate = (after - before) / seconds;
    let cpu = (cpu_after - cpu_before) / seconds * 100.0;
    let age = "kubefan_open_watch_review_age_seconds";
    let age = metric(&kubefan.admin(), age, &[]).await;
    println!(
        "{WATCHES} idle watches of {USERS} users: {rate:.1} reviews/s, {cpu:.1} % of a CPU, the \
         oldest judgement is {age:.0} s old",
    );
    assert!(rate > 5.0 && rate <= 20.0, "{rate} reviews/s");
    assert!(age <= 65.0, "{age} s");
    assert!(open.iter().flatten().all(Observed::is_open));
}
