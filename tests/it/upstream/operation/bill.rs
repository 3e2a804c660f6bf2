//! The bill: it has exactly what its clients have sent and received, and advice for those that cost
//! much without need.

use std::time::Duration;

use serde_json::{Value, json};

use super::admin::account;
use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ApiServer, shared};
use crate::support::programs::kubefan::Kubefan;

const LIMIT: Duration = Duration::from_secs(20);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The lists of the client that should use a watch.
const LISTS: u64 = 100;
const GETS: u64 = 10;
const HTTP1: &str = "http/1.1";
const HTTP2: &str = "h2";

/// A client of kubefan, and what it has sent and received.
struct Counted {
    client: Client,
    /// The program, as the bill shows it.
    program: String,
    requests: u64,
    bytes: u64,
    events: u64,
}

impl Counted {
    async fn get(&mut self, path: &str) -> Answer {
        let answer = self.client.get(path).await.ok();
        self.requests += 1;
        self.bytes += answer.body.len() as u64;
        answer
    }

    /// Watches `path` to its end.
    async fn watch(&mut self, path: &str) {
        let answer = self.get(path).await;
        let lines = answer.body.split(|byte| *byte == b'\n');
        let events = lines.filter(|line| !line.is_empty()).count() as u64;
        assert!(events > 0, "{path}");
        self.events += events;
    }

    /// Returns an error unless the bill `page` has exactly what the client has counted.
    fn check(&self, page: &Value) -> Result<(), String> {
        let row = self.row(page).ok_or_else(|| page.to_string())?;
        let total = &row["total"];
        let number = |name: &str| total[name].as_u64().expect("a number");
        let found = ["requests", "bytes", "events"].map(number);
        let expected = [self.requests, self.bytes, self.events];
        let answered = number("hits") + number("forwards") + number("refusals");
        if found == expected && answered == self.requests {
            return Ok(());
        }
        Err(format!("{}: {expected:?}: {row}", self.program))
    }

    fn row<'a>(&self, page: &'a Value) -> Option<&'a Value> {
        let mut rows = page["clients"].as_array().expect("a list").iter();
        rows.find(|row| row["client"]["userAgent"] == self.program.as_str())
    }
}

/// Lets a service account read the ConfigMaps of its namespace.
async fn permit(server: &ApiServer, namespace: &str, name: &str) {
    let role = json!({
        "metadata": {"name": name},
        "rules": [{
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch"],
        }],
    });
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    });
    for (kind, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{RBAC}/namespaces/{namespace}/{kind}");
        server.client().create(&path, &object).await.ok();
    }
}

/// Returns the program of the first client in this column.
fn first_of(page: &Value, column: &str) -> Value {
    let mut largest = page["largest"].as_array().expect("a list").iter();
    let largest = largest.find(|row| row["column"] == column);
    let first = largest.expect("the column")["clients"][0].as_u64();
    let first = usize::try_from(first.expect("a position")).expect("a position");
    page["clients"][first]["client"]["userAgent"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn the_bill_has_what_its_clients_have_counted_and_names_need_a_right() {
    let server = shared();
    let namespace = server.namespace("bill").await;
    let metrics = account(server, &namespace, "metrics", &["/metrics"]).await;
    let names = account(server, &namespace, "names", &["/admin/v1/users"]).await;
    let flags = ["--tls-self-signed", "--admin-listen", "0.0.0.0:0"];
    let kubefan = Kubefan::start(server, &flags).await;
    let authority = kubefan.authority().expect("kubefan serves TLS");
    let connect = |url: &str, protocol: &str| {
        let connector = Connector::tls(&authority, None, &[protocol]);
        match protocol {
            HTTP2 => Client::http2(url, connector),
            _ => Client::new(url, connector),
        }
    };
    let admin = kubefan.admin_url().replace("0.0.0.0", "127.0.0.1");
    let [metrics, names] = [metrics, names].map(|token| connect(&admin, HTTP1).as_token(&token));
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let create = async |name: &str| {
        let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(1_000)}});
        server.client().create(&config_maps, &object).await.ok();
    };
    create("first").await;
    let from_cache = format!("{config_maps}?resourceVersion=0");
    let mut clients = Vec::new();
    for (name, protocol) in [
        ("lister", HTTP1),
        ("getter", HTTP2),
        ("informer-1", HTTP1),
        ("informer-2", HTTP2),
    ] {
        let token = account(server, &namespace, name, &[]).await;
        permit(server, &namespace, name).await;
        let direct = server.client().as_token(&token);
        eventually("the right", LIMIT, async || {
            direct.get(&config_maps).await.is(200)
        })
        .await;
        let client = connect(kubefan.url(), protocol).as_token(&token);
        // Its requests have another row.
        let starter = client.with("user-agent", "starter/v1.0");
        eventually("the object in the cache", LIMIT, async || {
            let list = starter.get(&from_cache).await.is(200)?.to_string();
            list.contains("\"first\"").then_some(()).ok_or(list)
        })
        .await;
        clients.push(Counted {
            client: client.with("user-agent", &format!("{name}/v1.0.3 (linux/amd64)")),
            program: format!("{name}/v1.0"),
            requests: 0,
            bytes: 0,
            events: 0,
        });
    }

    let [lister, getter, informers @ ..] = &mut clients[..] else {
        panic!("four clients");
    };
    for _ in 0..LISTS {
        lister.get(&config_maps).await;
    }
    for _ in 0..GETS {
        let path = format!("{config_maps}/first?resourceVersion=0");
        getter.get(&path).await;
    }
    let mut open = Vec::new();
    for (number, informer) in informers.iter_mut().enumerate() {
        let list = informer.get(&from_cache).await;
        let version = list.json()["metadata"]["resourceVersion"].take();
        let version = version.as_str().expect("a version").to_owned();
        let watch = format!("{config_maps}?watch=1&resourceVersion={version}");
        let ending = format!("{watch}&timeoutSeconds=2");
        let changes = async {
            for change in 0..5 {
                create(&format!("of-{number}-{change}")).await;
            }
        };
        tokio::join!(informer.watch(&ending), changes);
        let reader = informer.client.watch(&watch, Format::Json).await;
        open.push(reader.expect("a watch"));
        informer.requests += 1;
    }

    let page = eventually("the bill", LIMIT, async || {
        let page = metrics.get("/admin/v1/bill").await.is(200)?.json();
        for client in [&*lister, &*getter] {
            client.check(&page)?;
        }
        for informer in informers.iter() {
            let row = informer.row(&page).ok_or_else(|| page.to_string())?;
            let is_open = row["openWatches"] == 1 && row["total"]["watchesEnded"] == 1;
            is_open.then_some(()).ok_or_else(|| row.to_string())?;
        }
        Ok::<_, String>(page)
    })
    .await;
    let row = |client: &Counted| client.row(&page).expect("a row").clone();
    assert_eq!(first_of(&page, "requests"), lister.program.as_str());
    let advice = row(lister)["advice"].take();
    assert_eq!(advice[0]["kind"], "listLoop", "{advice}");
    for client in informers.iter().chain([&*getter]) {
        assert_eq!(row(client)["advice"], json!([]), "{}", client.program);
    }
    let getter = row(getter);
    // The first GET may be forwarded, because the right to the name is not known yet.
    let hits = getter["total"]["hits"].as_u64();
    assert!(hits >= Some(GETS - 1), "{getter}");
    let saved = getter["total"]["saved"]["requests"].as_u64();
    assert_eq!(saved, hits, "{getter}");
    assert_eq!(getter["operations"][0]["verb"], "get", "{getter}");
    assert_eq!(getter["operations"][0]["selector"], "name", "{getter}");

    // The rest of the events of the open watches are counted when they end.
    for (reader, informer) in open.iter_mut().zip(informers.iter_mut()) {
        let (_, frame) = reader
            .next_frame()
            .await
            .expect("no error")
            .expect("no end");
        assert!(!frame.is_empty(), "{}", informer.program);
    }
    drop(open);
    eventually("the end of the watches", LIMIT, async || {
        let page = metrics.get("/admin/v1/bill").await.is(200)?.json();
        for informer in informers.iter() {
            let row = informer.row(&page).ok_or_else(|| page.to_string())?;
            let total = &row["total"];
            let has_ended = row["openWatches"] == 0 && total["watchesEnded"] == 2;
            let is_counted = total["requests"] == informer.requests
                && total["events"].as_u64() > Some(informer.events)
                && total["bytes"].as_u64() > Some(informer.bytes);
            (has_ended && is_counted)
                .then_some(())
                .ok_or_else(|| row.to_string())?;
        }
        Ok::<_, String>(())
    })
    .await;

    let advice = metrics.get("/admin/v1/advice").await.ok();
    let items = advice.json()["items"].take();
    let items = items.as_array().expect("a list");
    let mut of_lister = items.iter();
    let of_lister = of_lister.find(|item| item["client"]["userAgent"] == lister.program.as_str());
    assert_eq!(of_lister.expect("advice")["kind"], "listLoop", "{advice}");

    // Names need the right to them.
    for page in [page.to_string(), advice.to_string()] {
        assert!(!page.contains("serviceaccount"), "{page}");
    }
    assert_eq!(names.get("/admin/v1/bill").await.status, 403);
    assert_eq!(names.get("/admin/v1/advice").await.status, 403);
    assert_eq!(metrics.get("/admin/v1/users").await.status, 403);
    let users = names.get("/admin/v1/users").await.ok().json();
    let name = format!("system:serviceaccount:{namespace}:lister");
    let mut items = users["items"].as_array().expect("a list").iter();
    let user = items.find(|user| user["name"] == name.as_str());
    let number = &user.expect("the user")["number"];
    assert_eq!(&row(lister)["client"]["userNumber"], number);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn without_a_bill_requests_are_answered_and_its_pages_are_not_found() {
    let kubefan = Kubefan::start(shared(), &["--bill=false"]).await;
    kubefan.client().get("/api/v1/namespaces").await.ok();
    for name in ["bill", "advice"] {
        let page = kubefan.admin().get(&format!("/admin/v1/{name}")).await;
        assert_eq!(page.status, 404, "{page}");
    }
}
