//! The cluster of the differential tests: a real API server with objects of every kind that has
//! field selectors, and a kubefan. Its caches were running before the objects were created.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::support::clients::client::{Answer, Client};
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::{ADMIN, ApiServer, minor, private_with};
use crate::support::programs::kubefan::Kubefan;
use crate::upstream::differential::table::{Case, Protocol, RequestedFormat};
use crate::upstream::differential::{older, table};

/// With `-v` and JSON, the log reports how each request was answered. The retention is long enough
/// that no event expires during the test, even on a slow machine.
pub(super) const KUBEFAN_FLAGS: [&str; 4] = [
    "-v",
    "--log-format=json",
    "--retention-age=1h",
    "--shard-selector=serve",
];
const STEP: Duration = Duration::from_secs(60);
/// The header with the id of the API server's queue for a request.
const QUEUE_ID: &str = "x-kubernetes-pf-flowschema-uid";
const TABLE: HeaderValue = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");

/// The API server, kubefan, clients of both, and the values for the placeholders in rows.
pub(super) struct Fixture {
    pub(super) server: ApiServer,
    pub(super) kubefan: Kubefan,
    direct: [Client; 2],
    through: [Client; 2],
    /// The resourceVersion after kubefan's caches were filled and before the objects were created;
    /// fills `{rv}`.
    before: String,
    /// The resourceVersion after the last object was created; fills `{after}`.
    after: String,
    pages: Mutex<HashMap<(String, bool), Page>>,
}

/// Version and continue token of a collection's first page from kubefan, and the token of the first
/// page from the API server.
#[derive(Clone, Debug)]
struct Page {
    at: String,
    token: String,
    direct_token: String,
}

/// A write in definitions.txt or objects.txt.
pub(super) struct Entry {
    pub(super) method: http::Method,
    pub(super) path: String,
    body: String,
}

impl Fixture {
    /// Starts both servers and creates the objects.
    pub(super) async fn start() -> Self {
        let server = start_server().await;
        let kubefan = Kubefan::start(&server, &KUBEFAN_FLAGS).await;
        Self::of(server, kubefan).await
    }

    /// Fills the caches of `kubefan`, and creates the objects at `server`.
    pub(super) async fn of(server: ApiServer, kubefan: Kubefan) -> Self {
        let direct = [Protocol::Http1, Protocol::Http2].map(|protocol| admin_of(&server, protocol));
        let through =
            [Protocol::Http1, Protocol::Http2].map(|protocol| reader_of(&kubefan, protocol));
        let mut fixture = Self {
            server,
            kubefan,
            direct,
            through,
            before: String::new(),
            after: String::new(),
            pages: Mutex::default(),
        };
        fixture.fill().await;
        fixture
    }

    async fn fill(&mut self) {
        let entries = objects();
        let collections = collections(&entries);
        let [direct, _] = &self.direct;
        let [through, _] = &self.through;
        for collection in &collections {
            for format in [Format::Json, Format::Protobuf] {
                through
                    .get_as(&format!("{collection}?resourceVersion=0"), format)
                    .await;
            }
        }
        let version = async |path: &str| {
            let list = direct.get(path).await.ok().json();
            text(&list["metadata"]["resourceVersion"])
        };
        self.before = version("/api/v1/configmaps?limit=1").await;
        for entry in entries {
            entry.send(direct).await;
        }
        self.after = version("/api/v1/configmaps?limit=1").await;
        for collection in &collections {
            self.catches_up(collection).await;
        }
        for collection in collections.iter().filter(|path| is_printed(path)) {
            self.prints(collection).await;
        }
    }

    /// Reads Tables of a collection until kubefan has compared its own with those of the API
    /// server. Only answers of the API server have the id of a queue.
    async fn prints(&self, collection: &str) {
        let accept = HeaderMap::from_iter([(ACCEPT, TABLE)]);
        let target = format!("{collection}?resourceVersion=0");
        eventually(collection, STEP, async || {
            let through = &self.through[0];
            let table = through.send(http::Method::GET, &target, &accept, Bytes::new());
            match table.await.headers.contains_key(QUEUE_ID) {
                true => Err("its Tables are still forwarded"),
                false => Ok(()),
            }
        })
        .await;
    }

    /// Returns a client of the API server for a case. A case with credentials gets a new client,
    /// because an HTTP/2 connection is closed when credentials are refused.
    pub(super) fn direct(&self, case: &Case<'_>) -> Client {
        match case.row.has_header("authorization") {
            true => admin_of(&self.server, case.protocol),
            false => self.direct[case.protocol as usize].clone(),
        }
    }

    /// Returns a client of the API server over HTTP/1.1.
    pub(super) fn admin(&self) -> &Client {
        &self.direct[0]
    }

    /// Returns the resourceVersion after kubefan's caches were filled and
    /// before the objects were created.
    pub(super) fn before(&self) -> &str {
        &self.before
    }

    /// Waits until kubefan's caches of a collection and the API server have equal objects.
    pub(super) async fn catches_up(&self, collection: &str) {
        for format in [Format::Json, Format::Protobuf] {
            caught_up(self.admin(), &self.through[0], collection, format).await;
        }
    }

    pub(super) fn through(&self, protocol: Protocol) -> &Client {
        &self.through[protocol as usize]
    }

    /// Returns a client of kubefan for a case. Cases with credentials get new clients, like those
    /// of [`direct`](Self::direct).
    pub(super) fn through_for(&self, case: &Case<'_>) -> Client {
        match case.row.has_header("authorization") {
            true => reader_of(&self.kubefan, case.protocol),
            false => self.through(case.protocol).clone(),
        }
    }

    /// Replaces the placeholders in `target`, such as `{rv}`, by this cluster's values.
    pub(super) async fn filled(&self, target: &str, requested_format: RequestedFormat) -> String {
        let mut filled = target
            .replace("{rv}", &self.before)
            .replace("{after}", &self.after);
        if ["{at}", "{next", "{direct"]
            .iter()
            .any(|name| filled.contains(name))
        {
            let path = filled.split('?').next().unwrap_or_default().to_owned();
            let page = self.page(&path, requested_format).await;
            let (version, start) = parts(&page.token);
            for (name, value) in [
                ("{at}", page.at.clone()),
                ("{next}", page.token.clone()),
                (
                    "{next-bare}",
                    token(&version, start.trim_start_matches('/')),
                ),
                ("{next-inconsistent}", token(&json!(-1), &start)),
                ("{direct}", page.direct_token.clone()),
            ] {
                filled = filled.replace(name, &value);
            }
        }
        while let Some((before, rest)) = filled.split_once("{token:") {
            let (content, after) = rest.split_once('}').expect("a token ends");
            let (version, start) = content.split_once(':').expect("RV:START");
            let version: i64 = version.parse().expect("an RV");
            let token = token(&json!(version), &format!("{start}\0"));
            filled = format!("{before}{token}{after}");
        }
        assert!(!filled.contains('{'), "{filled} has an unknown placeholder");
        filled
    }

    /// Reads the first page of a collection from both servers, once for each format. kubefan pins
    /// the page's snapshot, so that later requests can continue from it.
    async fn page(&self, collection: &str, requested_format: RequestedFormat) -> Page {
        let is_protobuf = matches!(
            requested_format,
            RequestedFormat::Protobuf | RequestedFormat::MetadataProtobuf
        );
        let key = (collection.to_owned(), is_protobuf);
        let mut pages = self.pages.lock().await;
        if let Some(page) = pages.get(&key) {
            return page.clone();
        }
        let format = if is_protobuf {
            Format::Protobuf
        } else {
            Format::Json
        };
        let query = format!(
            "resourceVersion={}&resourceVersionMatch=NotOlderThan&limit=1",
            self.before
        );
        let path = format!("{collection}?{query}");
        let [through, _] = &self.through;
        let [direct, _] = &self.direct;
        let list = through.get_as(&path, format).await.ok();
        // The writes to another resource give the API server's list a version that no event of the
        // collection has, so kubefan has no snapshot of it.
        let lease = json!({ "metadata": { "generateName": "revision-" } });
        let leases = "/apis/coordination.k8s.io/v1/namespaces/void/leases";
        direct.create(leases, &lease).await.ok();
        let recent = format!("{collection}?limit=1");
        let direct_list = direct.get_as(&recent, format).await.ok();
        direct.create(leases, &lease).await.ok();
        let page = Page {
            at: crate::support::clients::frames::decode_list(format, &list.body).resource_version,
            token: token_of(&list),
            direct_token: token_of(&direct_list),
        };
        pages.insert(key, page.clone());
        page
    }
}

/// Starts an API server with the definitions, without the objects.
pub(super) async fn start_server() -> ApiServer {
    let flags = older::server_flags(minor());
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let server = private_with(&flags).await;
    let admin = server.client();
    for entry in entries("definitions.txt") {
        entry.send(&admin).await;
    }
    for resource in ["shapes", "planets"] {
        let path = format!("/apis/suite.kubefan.io/v1/{resource}");
        eventually(&path, STEP, async || admin.get(&path).await.is(200)).await;
    }
    server
}

/// Returns true for the collections with Tables that kubefan prints. It prints no Events of the
/// newer group.
fn is_printed(collection: &str) -> bool {
    let resource = collection.rsplit('/').next().unwrap_or_default();
    table::PRINTED.contains(&resource) && !collection.starts_with("/apis/events.k8s.io/")
}

fn admin_of(server: &ApiServer, protocol: Protocol) -> Client {
    let http2 = || Connector::tls(server.authority(), None, &["h2"]);
    match protocol {
        Protocol::Http1 => server.client(),
        Protocol::Http2 => Client::http2(&server.url(), http2()).as_token(ADMIN),
    }
}

fn reader_of(kubefan: &Kubefan, protocol: Protocol) -> Client {
    match protocol {
        Protocol::Http1 => kubefan.client(),
        Protocol::Http2 => Client::http2(kubefan.url(), Connector::plain()),
    }
}

fn token_of(answer: &Answer) -> String {
    match crate::support::clients::frames::split_list(&answer.body) {
        Some((token, _)) => token,
        None => text(&answer.json()["metadata"]["continue"]),
    }
}

/// Returns the resourceVersion and the start key inside a continue token.
pub(super) fn parts(token: &str) -> (Value, String) {
    let decoded = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let value: Value = serde_json::from_slice(&decoded).unwrap_or_default();
    (value["rv"].clone(), text(&value["start"]))
}

pub(super) fn token(version: &Value, start: &str) -> String {
    let content = json!({ "v": "meta.k8s.io/v1", "rv": version, "start": start });
    URL_SAFE_NO_PAD.encode(content.to_string())
}

async fn caught_up(direct: &Client, through: &Client, collection: &str, format: Format) {
    let all = direct.get_as(collection, format).await;
    if !all.status.is_success() {
        return;
    }
    let wanted = crate::support::clients::frames::decode_list(format, &all.body).items;
    let cached = format!("{collection}?resourceVersion=0");
    eventually(collection, STEP, async || {
        let got = through.list(&cached, format).await.items;
        if got == wanted {
            Ok(())
        } else {
            Err("kubefan's cache has not caught up")
        }
    })
    .await;
}

/// Returns the cluster-wide collections for the objects that the entries create. Those of Events
/// are not cluster-wide, because a cache does not show the newest change, which is in another
/// namespace.
fn collections(entries: &[Entry]) -> BTreeSet<String> {
    let made = entries
        .iter()
        .filter(|entry| entry.method == http::Method::POST);
    let across = |path: &str| match path.split_once("/namespaces/") {
        Some((root, inside)) => match inside.split_once('/') {
            Some((_, "events")) => path.to_owned(),
            Some((_, resource)) => format!("{root}/{resource}"),
            None => path.to_owned(),
        },
        None => path.to_owned(),
    };
    made.map(|entry| across(&entry.path)).collect()
}

/// Returns the writes that create the objects.
pub(super) fn objects() -> Vec<Entry> {
    let mut entries = entries("objects.txt");
    entries.retain(|entry| older::is_served(&entry.path, minor()));
    entries
}

fn entries(file: &str) -> Vec<Entry> {
    let text = table::file(file);
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            Some(more) => {
                let entry = entries
                    .last_mut()
                    .expect("a line METHOD PATH before a body");
                entry.body.push_str(more);
            }
            None if line.is_empty() || line.starts_with('#') => {}
            None => {
                let mut words = line.splitn(3, ' ');
                let mut word = || words.next().unwrap_or_default();
                entries.push(Entry {
                    method: word().parse().expect("a method"),
                    path: word().to_owned(),
                    body: word().to_owned(),
                });
            }
        }
    }
    entries
}

impl Entry {
    /// Returns the object, or the change of a PATCH.
    pub(super) fn value(&self) -> Value {
        let (path, body) = (&self.path, filled_with_letters(&self.body));
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    async fn send(&self, admin: &Client) {
        let Self { method, path, .. } = self;
        let answer = match method.as_str() {
            "POST" => admin.create(path, &self.value()).await,
            "PATCH" => admin.merge(path, &self.value()).await,
            "DELETE" => admin.delete(path).await,
            other => panic!("{path}: unknown method {other}: use POST, PATCH or DELETE"),
        };
        assert!(answer.status.is_success(), "{method} {path}: {answer}");
    }
}

fn filled_with_letters(body: &str) -> String {
    let Some((before, rest)) = body.split_once("{fill:") else {
        return body.to_owned();
    };
    let (count, after) = rest.split_once('}').expect("a closing brace");
    let letters = "abcdefghij".repeat(count.parse::<usize>().expect("a number") / 10);
    format!("{before}{letters}{after}")
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
