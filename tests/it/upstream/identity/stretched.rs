//! Attacks on bounds: a tenant opens very many watches, or has very many users. So it tries to read
//! on after it has lost its right, or to take resources that others need. Beside the tenant, an
//! honest client reads through kubefan, and a twin of that client reads directly.
//!
//! The long forms take minutes. They hold as much as was needed to keep
//! a watch open for two minutes:
//!
//! ```sh
//! cargo test --release --test it -- stretched --ignored --nocapture --test-threads 1
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::identities::grant;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::{Event, Format};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{ApiServer, metric, private_with_tokens};
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(120);
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long events may reach a watch after its right was removed.
const MOST: Duration = Duration::from_secs(2);
/// How long events may reach such a watch beside other tests.
const GENEROUS: Duration = Duration::from_secs(8);

/// Users that read ConfigMaps.
const TOKENS: &str = "many-token,many,1\nother-token,other,2\nhonest-token,honest,3\n";

async fn allow(server: &ApiServer, name: &str, kind: &str) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let subject = json!({"kind": kind, "name": name});
    grant(&server.client(), None, name, &rules, &subject).await;
}

async fn watches_roles(kubefan: &Kubefan) {
    eventually("the watches of roles", LIMIT, async || {
        match metric(&kubefan.admin(), "kubefan_role_watches_alive", &[]).await {
            4.0 => Ok(()),
            found => Err(format!("{found} of 4")),
        }
    })
    .await;
}

async fn started(tokens: &str) -> (ApiServer, Kubefan) {
    let server = private_with_tokens(tokens, &[]).await;
    for user in ["many", "other", "honest"] {
        allow(&server, user, "User").await;
    }
    let map = json!({"metadata": {"name": "first"}});
    server.client().create(MAPS, &map).await.ok();
    // So that each watch of one object is a question.
    let names = "--authorization-names-covered=false";
    let flags = ["--auth", "caller", "-r", "configmaps", names];
    let kubefan = Kubefan::start(&server, &flags).await;
    watches_roles(&kubefan).await;
    (server, kubefan)
}

fn through(kubefan: &Kubefan, token: &str) -> Client {
    Client::http2_unshared(kubefan.url(), Connector::plain()).as_token(token)
}

/// Opens a watch of `path`, and returns when the last event has reached it, and when it has ended;
/// it need not end within the time of the test.
async fn last_event(client: Client, path: String, is_over: &AtomicBool) -> (Option<Instant>, bool) {
    let opened = within(&path, LIMIT, client.watch(&path, Format::Json)).await;
    let mut reader = opened.unwrap_or_else(|error| panic!("{error}"));
    let mut last = None;
    loop {
        let over = async {
            while !is_over.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            next = reader.next() => match next.unwrap_or_else(|error| panic!("{path}: {error}")) {
                Some(Event::Bookmark { .. }) => {}
                Some(_) => last = Some(Instant::now()),
                None => return (last, true),
            },
            () = over => return (last, false),
        }
    }
}

/// Changes an object all the time until `is_over`.
async fn change(admin: &Client, is_over: &AtomicBool) {
    let path = format!("{MAPS}/first");
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let change = json!({"data": {"number": number.to_string()}});
        admin.merge(&path, &change).await.ok();
        sleep(Duration::from_millis(20)).await;
    }
}

/// Measures the 99th percentile of the times that reads take until `is_over`.
async fn p99(client: &Client, is_over: &AtomicBool) -> Duration {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) || times.is_empty() {
        let began = Instant::now();
        client.get(MAPS).await.ok();
        times.push(began.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    times.sort_unstable();
    times[(times.len() * 99 / 100).min(times.len() - 1)]
}

/// Opens watches of one object each by the user `many`, on few connections, and leaves them open.
async fn single_watches(kubefan: &Kubefan, count: usize) -> Vec<impl Sized> {
    let clients: Vec<Client> = (0..8).map(|_| through(kubefan, "many-token")).collect();
    let opened = (0..count).map(|number| {
        let client = clients[number % clients.len()].clone();
        async move {
            let path = format!(
                "{MAPS}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dzz{number}"
            );
            client.watch(&path, Format::Json).await.expect("a watch")
        }
    });
    stream::iter(opened).buffer_unordered(64).collect().await
}

/// Lets a user hold `count` watches of one object each and one watch of the
/// namespace, and takes the user's right.
async fn many_watches(count: usize, most: Duration) {
    let (server, kubefan) = started(TOKENS).await;
    let held = single_watches(&kubefan, count).await;
    let is_over = AtomicBool::new(false);
    let admin = server.client();
    let path = format!("{MAPS}?watch=1&resourceVersion=0");
    let honest = through(&kubefan, "honest-token");
    let twin = Client::http2(
        &server.url(),
        Connector::tls(server.authority(), None, &["h2"]),
    );
    let twin = twin.as_token("honest-token");
    let attack = async {
        sleep(Duration::from_secs(1)).await;
        admin.delete(&format!("{BINDINGS}/many")).await.ok();
        let revoked = Instant::now();
        sleep(most + Duration::from_secs(2)).await;
        is_over.store(true, Ordering::Relaxed);
        revoked
    };
    let watch = last_event(through(&kubefan, "many-token"), path, &is_over);
    let (revoked, (last, has_ended), (), honest, twin) = tokio::join!(
        attack,
        watch,
        change(&admin, &is_over),
        p99(&honest, &is_over),
        p99(&twin, &is_over),
    );
    let last = last.expect("an event").saturating_duration_since(revoked);
    println!(
        "{count} other watches: the last event {last:.2?} after the right was removed; honest p99 \
         {honest:.1?}, directly {twin:.1?}"
    );
    assert!(last < most, "{last:?}");
    assert!(has_ended, "the watch of all objects is not judged first");
    // Consistent reads through kubefan cost a call to the API server, as the twin's do.
    let twin = twin.max(Duration::from_millis(50));
    assert!(
        honest <= 2 * twin || most == GENEROUS,
        "{honest:?} {twin:?}"
    );
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_user_with_many_watches_keeps_none_of_a_right_that_it_lost() {
    many_watches(400, GENEROUS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: opens 5,657 watches"]
async fn a_user_with_thousands_of_watches_keeps_none_of_a_right_that_it_lost() {
    many_watches(5_657, MOST).await;
}

/// Takes the right of a tenant's group of `count` users, and then the right of another user.
async fn many_accounts(count: usize, most: Duration) {
    let mut tokens = TOKENS.to_owned();
    for number in 0..count {
        let account = format!("system:serviceaccount:tenant:a{number}");
        tokens += &format!("tenant-{number},{account},t{number},tenant\n");
    }
    let (server, kubefan) = started(&tokens).await;
    allow(&server, "tenant", "Group").await;
    let admin = server.client();
    // A connection has at most 1,000 streams.
    let connections =
        (0..count.div_ceil(500)).map(|_| Client::http2(kubefan.url(), Connector::plain()));
    let connections: Vec<_> = connections.collect();
    let path = format!("{MAPS}?watch=1&resourceVersion=0");
    eventually("the right of the group", LIMIT, async || {
        let reads = connections[0].as_token("tenant-0");
        reads
            .get(&format!("{MAPS}?resourceVersion=0"))
            .await
            .is(200)
            .map(|_| ())
    })
    .await;
    let opened = (0..count).map(|number| {
        let connection = &connections[number / 500];
        let client = connection.as_token(&format!("tenant-{number}"));
        let path = path.clone();
        async move { client.watch(&path, Format::Json).await.expect("a watch") }
    });
    let held: Vec<_> = stream::iter(opened).buffer_unordered(32).collect().await;
    let is_over = AtomicBool::new(false);
    let attack = async {
        sleep(Duration::from_secs(1)).await;
        admin.delete(&format!("{BINDINGS}/tenant")).await.ok();
        admin.delete(&format!("{BINDINGS}/other")).await.ok();
        let revoked = Instant::now();
        sleep(most + Duration::from_secs(2)).await;
        is_over.store(true, Ordering::Relaxed);
        revoked
    };
    let watch = last_event(through(&kubefan, "other-token"), path.clone(), &is_over);
    let (revoked, (last, has_ended), ()) = tokio::join!(attack, watch, change(&admin, &is_over));
    let last = last.expect("an event").saturating_duration_since(revoked);
    println!("{count} accounts: the last event {last:.2?} after the right was removed");
    assert!(last < most && has_ended, "{last:?} {has_ended}");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_tenant_with_many_accounts_does_not_keep_the_watch_of_another_open() {
    many_accounts(200, GENEROUS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "by hand: opens watches of 1,500 users"]
async fn a_tenant_with_thousands_of_accounts_does_not_keep_the_watch_of_another_open() {
    many_accounts(1_500, MOST).await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_user_with_many_old_watches_does_not_take_the_places_of_bridges() {
    let server = private_with_tokens(TOKENS, &[]).await;
    for user in ["many", "other"] {
        allow(&server, user, "User").await;
    }
    let admin = server.client();
    let create = async |name: &str| {
        let map = json!({"metadata": {"name": name}});
        let created = admin.create(MAPS, &map).await.ok().json();
        created["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version")
            .to_owned()
    };
    let old = create("first").await;
    create("second").await;
    // It begins after both, so its log does not have them.
    let kubefan = Kubefan::start(&server, &["--auth", "caller", "-r", "configmaps"]).await;
    watches_roles(&kubefan).await;
    let is_over = AtomicBool::new(false);
    let clients: Vec<Client> = (0..3).map(|_| through(&kubefan, "many-token")).collect();
    let attack = async {
        let attackers = (0..150).map(async |attacker: usize| {
            let client = &clients[attacker % clients.len()];
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let name = format!("z{attacker}-{number}");
                let path = format!(
                    "{MAPS}?watch=1&resourceVersion={old}&fieldSelector=metadata.name%3D{name}"
                );
                // A bridge needs a second or two for its place.
                let Ok(mut watch) = client.watch(&path, Format::Json).await else {
                    continue;
                };
                let _ = tokio::time::timeout(Duration::from_secs(3), watch.next()).await;
            }
        });
        join_all(attackers).await;
    };
    let honest = async {
        let client = through(&kubefan, "other-token");
        let mut slowest = Duration::ZERO;
        for round in 0..5 {
            sleep(Duration::from_secs(1)).await;
            // A new selection each time, so that no bridge has its events.
            let path =
                format!("{MAPS}?watch=1&resourceVersion={old}&labelSelector=round%21%3Dr{round}");
            let began = Instant::now();
            let watch = within(&path, LIMIT, client.watch(&path, Format::Json)).await;
            let mut watch = watch.unwrap_or_else(|error| panic!("{error}"));
            let first = within(&path, LIMIT, watch.next()).await;
            match first.unwrap_or_else(|error| panic!("{error}")) {
                Some(Event::Error { code, message }) => panic!("{code} {message}"),
                event => assert!(event.is_some(), "the watch ended"),
            }
            slowest = slowest.max(began.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
        slowest
    };
    let (slowest, ()) = within("the attack", LIMIT, async { tokio::join!(honest, attack) }).await;
    println!("the first event of another user's watch within {slowest:.2?}");
}

/// Creates a token of the service account `agent` that is valid as long as a new secret exists.
async fn token_of_secret(admin: &Client, secret: &str) -> String {
    let base = "/api/v1/namespaces/default";
    let object = json!({"metadata": {"name": secret}});
    let secrets = format!("{base}/secrets");
    let created = admin.create(&secrets, &object).await.ok().json();
    let bound = json!({
        "kind": "Secret", "apiVersion": "v1",
        "name": secret, "uid": created["metadata"]["uid"],
    });
    let request = json!({"spec": {"boundObjectRef": bound}});
    let path = format!("{base}/serviceaccounts/agent/token");
    let token = admin.create(&path, &request).await.ok().json();
    let token = token["status"]["token"].as_str().expect("a token");
    token.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_revoked_token_lives_no_longer_because_its_user_has_another() {
    let server = private_with_tokens(TOKENS, &[]).await;
    let admin = server.client();
    let account = json!({"metadata": {"name": "agent"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.create(accounts, &account).await.ok();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let subject = json!({"kind": "ServiceAccount", "name": "agent", "namespace": "default"});
    grant(&admin, None, "agent", &rules, &subject).await;
    let tokens = [
        token_of_secret(&admin, "revoked").await,
        token_of_secret(&admin, "live").await,
    ];
    // Both tokens share their decisions, as old tokens of a Secret do by default.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let config =
        "authorization:\n  ignoreExtra:\n    - authentication.kubernetes.io/credential-id\n";
    std::fs::write(&file, config).expect("room");
    let file = file.path().to_str().expect("a path").to_owned();
    let flags = ["--auth", "caller", "-r", "configmaps", "--config", &file];
    let kubefan = Kubefan::start(&server, &flags).await;
    let [revoked, live] = tokens.each_ref().map(|token| through(&kubefan, token));
    let read = format!("{MAPS}?resourceVersion=0");
    for client in [&revoked, &live] {
        client.get(&read).await.ok();
    }
    let is_over = AtomicBool::new(false);
    let watch = async {
        let path = format!("{MAPS}?watch=1&resourceVersion=0");
        let (_, has_ended) = last_event(revoked.clone(), path, &is_over).await;
        (Instant::now(), has_ended)
    };
    let keeps_warm = async {
        while !is_over.load(Ordering::Relaxed) {
            live.get(&read).await.ok();
            sleep(Duration::from_millis(50)).await;
        }
    };
    let attack = async {
        sleep(Duration::from_secs(1)).await;
        admin
            .delete("/api/v1/namespaces/default/secrets/revoked")
            .await
            .ok();
        let began = Instant::now();
        while revoked.get(&read).await.status == 200 {
            sleep(Duration::from_millis(100)).await;
            assert!(began.elapsed() < LIMIT, "the reads go on");
        }
        let refused = Instant::now();
        // The API server must refuse it twice, two seconds apart.
        sleep(GENEROUS).await;
        is_over.store(true, Ordering::Relaxed);
        (refused - began, refused)
    };
    let ((read_for, refused), (ended, has_ended), ()) = tokio::join!(attack, watch, keeps_warm);
    let after = ended.saturating_duration_since(refused);
    println!("a revoked token read for {read_for:.1?}; its watch ended {after:.1?} later");
    // The API server remembers the token for 10 s, and a yes counts for 10 s.
    assert!(read_for < Duration::from_secs(20) + MOST, "{read_for:?}");
    assert!(has_ended, "the watch goes on");
}
