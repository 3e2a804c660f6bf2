//! The admin API in front of a real API server: what it shows, and for whom.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use serde_json::Value;

use super::admin::account;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::faulty::{FaultyUpstream, RECOVERY, open};
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::{metric, shared};
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::fault_proxy::{CutPoint, RequestKind};

const LIMIT: Duration = Duration::from_secs(20);

/// Returns the page `name` of the admin API.
async fn page(client: &Client, name: &str) -> Value {
    client.get(&format!("/admin/v1/{name}")).await.ok().json()
}

/// Returns the first item of `list` that is about the cache of ConfigMaps in JSON.
fn of_config_maps(list: &Value) -> Option<&Value> {
    let mut items = list.as_array().expect("a list").iter();
    items.find(|item| {
        let cache = &item["cache"];
        cache["resource"] == "configmaps" && cache["format"] == "json"
    })
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn caches_clients_and_the_cause_of_a_relist_are_shown() {
    let faulty = FaultyUpstream::start(shared()).await;
    let version = faulty.create("one").await;
    let client = faulty.kubefan.client();
    let watch = open(&client, &faulty.path, &version, Format::Json).await;
    let admin = faulty.kubefan.admin();

    eventually("a live cache", LIMIT, async || {
        let page = page(&admin, "caches").await;
        let cache = of_config_maps(&page["items"]).ok_or("no cache")?;
        let is_live = cache["state"] == "live" && cache["watchers"] == 1;
        is_live.then_some(()).ok_or_else(|| cache.to_string())
    })
    .await;
    let clients = page(&admin, "clients").await;
    let watches = clients["watches"].as_u64();
    assert_eq!(watches, Some(1), "{clients}");
    let freshness = page(&admin, "freshness").await;
    let of_cache = of_config_maps(&freshness["items"]).expect("a cache");
    assert_eq!(of_cache["policy"], "strict", "{of_cache}");
    let memory = page(&admin, "memory").await;
    assert!(memory["caches"]["objects"].as_u64() >= Some(1), "{memory}");
    let config = page(&admin, "config").await;
    let settings = config["settings"].as_array().expect("settings");
    let listen = settings.iter().find(|one| one["key"] == "listen.address");
    assert_eq!(listen.expect("the setting")["origin"], "flag");

    faulty.proxy.expire(RequestKind::Watch, "/configmaps", 1);
    faulty.proxy.cut_watches(CutPoint::Now);
    let relisted = eventually("the relist", RECOVERY, async || {
        let page = page(&admin, "relists").await;
        let relist = of_config_maps(&page["relists"]).cloned();
        relist.ok_or_else(|| page.to_string())
    });
    let relist = relisted.await;
    assert_eq!(relist["result"], "relisted", "{relist}");
    assert_eq!(relist["causes"], serde_json::json!(["expired"]), "{relist}");
    assert_eq!(relist["endedWatches"], 0, "{relist}");
    let resumes = page(&admin, "relists").await["resumes"].take();
    assert!(of_config_maps(&resumes).is_some(), "{resumes}");

    let snapshot = first_snapshot(&admin).await;
    for name in ["caches", "clients", "freshness", "memory", "relists"] {
        assert!(snapshot[name].is_object(), "{name}: {snapshot}");
    }
    drop(watch);
}

/// Returns the first snapshot of a new stream.
async fn first_snapshot(admin: &Client) -> Value {
    let none = HeaderMap::new();
    let stream = admin.open(Method::GET, "/admin/v1/events", &none, Bytes::new());
    let stream = stream.await.expect("an answer");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut body = stream.into_body();
    let mut text = String::new();
    while !text.ends_with("\n\n") {
        let frame = within("a frame", LIMIT, body.frame()).await;
        let data = frame.expect("no end").expect("no error").into_data();
        text += &String::from_utf8_lossy(&data.expect("data"));
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str(data.expect("data")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn a_stream_beyond_the_limit_is_refused_and_counted() {
    let kubefan = Kubefan::start(shared(), &[]).await;
    let (admin, none) = (kubefan.admin(), HeaderMap::new());
    let mut open = Vec::new();
    for _ in 0..16 {
        let stream = admin.open(Method::GET, "/admin/v1/events", &none, Bytes::new());
        let stream = stream.await.expect("an answer");
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    let refused = admin.get("/admin/v1/events").await;
    assert_eq!(refused.status, 429, "{refused}");
    let counted = metric(&admin, "kubefan_admin_streams_rejected_total", &[]).await;
    assert_eq!(counted, 1.0);
    drop(open);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn names_of_users_need_a_right_of_their_own() {
    let server = shared();
    let namespace = server.namespace("names").await;
    let metrics = account(server, &namespace, "metrics", &["/metrics"]).await;
    let names = account(server, &namespace, "names", &["/admin/v1/users"]).await;
    let flags = ["--tls-self-signed", "--admin-listen", "0.0.0.0:0"];
    let kubefan = Kubefan::start(server, &flags).await;
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connect = |url: &str| {
        let connector = Connector::tls(&authority, None, &["http/1.1"]);
        Client::new(url, connector)
    };
    // A user whose connection stays open.
    let user = connect(kubefan.url()).as_token(&metrics);
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    assert_eq!(user.get(&config_maps).await.status, 403);

    let admin = connect(&kubefan.admin_url().replace("0.0.0.0", "127.0.0.1"));
    let (metrics, names) = (admin.as_token(&metrics), admin.as_token(&names));
    let name = format!("system:serviceaccount:{namespace}:metrics");
    let shown = eventually("the name", LIMIT, async || {
        let users = names.get("/admin/v1/users").await.is(200)?.json();
        let mut items = users["items"].as_array().expect("a list").iter();
        let user = items.find(|user| user["name"] == name.as_str()).cloned();
        user.ok_or_else(|| users.to_string())
    })
    .await;
    let clients = eventually("the clients", LIMIT, async || {
        metrics.get("/admin/v1/clients").await.is(200)
    })
    .await;
    assert!(!clients.to_string().contains(&name), "{clients}");
    let clients = clients.json();
    let mut items = clients["items"].as_array().expect("a list").iter();
    let has_number = |item: &Value| item["userNumber"] == shown["number"];
    assert!(items.any(has_number), "{clients} {shown}");

    for (caller, path, right) in [
        (&metrics, "/admin/v1/users", "/admin/v1/users"),
        (&names, "/admin/v1/clients", "/metrics"),
        (&names, "/admin/v1/events", "/metrics"),
    ] {
        let refused = caller.get(path).await;
        assert_eq!(refused.status, 403, "{path}: {refused}");
        let message = refused.json()["message"].take();
        let message = message.as_str().expect("a message");
        assert!(message.contains(&format!("{right:?}")), "{path}: {message}");
    }
    for path in ["/admin/v1/users", "/admin/v1/clients", "/admin/v1/none"] {
        assert_eq!(admin.get(path).await.status, 401, "{path}");
    }
}
