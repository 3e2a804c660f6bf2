//! The cluster of the suite: a real API server with objects of every kind that has field
//! selectors, and a kubefan in front whose caches have seen all of it happen.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use serde_json::json;
use tokio::sync::Mutex;

use crate::support::clients::client::Answer;
use crate::support::clients::client::Client;
use crate::support::clients::connector::Connector;
use crate::support::clients::frames::Format;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::ADMIN;
use crate::support::programs::apiserver::ApiServer;
use crate::support::programs::apiserver::private_with;
use crate::support::programs::kubefan::Kubefan;
use crate::upstream::differential::table;
use crate::upstream::differential::table::Case;
use crate::upstream::differential::table::Protocol;
use crate::upstream::differential::table::RequestedFormat;

/// Kinds that have selectors, but are not served by default.
const SERVER_FLAGS: [&str; 2] = [
    "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true",
    "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true,certificates.k8s.io/v1beta1/podcertificaterequests=true",
];
/// The log tells how each request was answered. What is retained must outlast the suite on
/// the slowest machine.
const KUBEFAN_FLAGS: [&str; 5] = ["-v", "--log-format", "json", "--retention-age", "1h"];
const STEP: Duration = Duration::from_secs(60);

/// Both servers, and what rows are filled with.
pub(super) struct Fixture {
    pub(super) server: ApiServer,
    pub(super) kubefan: Kubefan,
    direct: [Client; 2],
    through: [Client; 2],
    /// The resourceVersion from between the caches and the objects.
    before: String,
    /// That of the newest object.
    after: String,
    pages: Mutex<HashMap<(String, bool), Page>>,
}

/// The first page of a collection as kubefan has it, and as the API server has it.
#[derive(Clone, Debug)]
struct Page {
    at: String,
    token: String,
    direct_token: String,
}

struct Entry {
    method: http::Method,
    path: String,
    body: String,
}

impl Fixture {
    /// `None` when there is no API server here, which is said.
    pub(super) async fn start() -> Option<Self> {
        let server = private_with(&SERVER_FLAGS).await?;
        let admin = server.client();
        for entry in entries("definitions.txt") {
            entry.send(&admin).await;
        }
        for resource in ["shapes", "planets"] {
            let path = format!("/apis/suite.kubefan.io/v1/{resource}");
            eventually(&path, STEP, async || admin.get(&path).await.is(200)).await;
        }
        let kubefan = Kubefan::start(&server, &KUBEFAN_FLAGS).await;
        let direct = [Protocol::Http1, Protocol::Http2].map(|protocol| admin_of(&server, protocol));
        let through = [
            kubefan.client(),
            Client::http2(kubefan.url(), Connector::plain()),
        ];
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
        Some(fixture)
    }

    async fn fill(&mut self) {
        let entries = entries("objects.txt");
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
    }

    /// A client of the API server; of its own for those who bring credentials, since refused
    /// ones cost an HTTP/2 client its connection.
    pub(super) fn direct(&self, case: &Case<'_>) -> Client {
        match case.row.has_header("authorization") {
            true => admin_of(&self.server, case.protocol),
            false => self.direct[case.protocol as usize].clone(),
        }
    }

    /// A client of the API server over HTTP/1.1.
    pub(super) fn admin(&self) -> &Client {
        &self.direct[0]
    }

    /// The resourceVersion from between the caches and the objects.
    pub(super) fn before(&self) -> &str {
        &self.before
    }

    /// Waits until kubefan's caches of a collection show what is there.
    pub(super) async fn catches_up(&self, collection: &str) {
        for format in [Format::Json, Format::Protobuf] {
            caught_up(self.admin(), &self.through[0], collection, format).await;
        }
    }

    pub(super) fn through(&self, protocol: Protocol) -> &Client {
        &self.through[protocol as usize]
    }

    /// `target` with this cluster's values for its fillings.
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
        assert!(!filled.contains('{'), "{filled} has a filling that is none");
        filled
    }

    /// The first page of a collection, which kubefan keeps for those who go on from there.
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
        // A state between two revisions of other resources is none that a cache comes by.
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

fn admin_of(server: &ApiServer, protocol: Protocol) -> Client {
    let http2 = || Connector::tls(server.authority(), None, &["h2"]);
    match protocol {
        Protocol::Http1 => server.client(),
        Protocol::Http2 => Client::http2(&server.url(), http2()).as_token(ADMIN),
    }
}

fn token_of(answer: &Answer) -> String {
    match crate::support::clients::frames::split_list(&answer.body) {
        Some((token, _)) => token,
        None => text(&answer.json()["metadata"]["continue"]),
    }
}

/// A continue token's RV and start.
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
            Err("kubefan is behind")
        }
    })
    .await;
}

/// The collections of all namespaces that the entries make objects in.
fn collections(entries: &[Entry]) -> BTreeSet<String> {
    let made = entries
        .iter()
        .filter(|entry| entry.method == http::Method::POST);
    let across = |path: &str| match path.split_once("/namespaces/") {
        Some((root, inside)) => match inside.split_once('/') {
            Some((_, resource)) => format!("{root}/{resource}"),
            None => path.to_owned(),
        },
        None => path.to_owned(),
    };
    made.map(|entry| across(&entry.path)).collect()
}

fn entries(file: &str) -> Vec<Entry> {
    let text = table::file(file);
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            Some(more) => {
                let entry = entries.last_mut().expect("a body has a head");
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
    async fn send(&self, admin: &Client) {
        let Self { method, path, body } = self;
        let body = filled_with_letters(body);
        let value = || -> Value {
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
        };
        let answer = match method.as_str() {
            "POST" => admin.create(path, &value()).await,
            "PATCH" => admin.merge(path, &value()).await,
            "DELETE" => admin.delete(path).await,
            other => panic!("{other} makes no objects"),
        };
        assert!(answer.status.is_success(), "{method} {path}: {answer}");
    }
}

fn filled_with_letters(body: &str) -> String {
    let Some((before, rest)) = body.split_once("{fill:") else {
        return body.to_owned();
    };
    let (count, after) = rest.split_once('}').expect("a filling ends");
    let letters = "abcdefghij".repeat(count.parse::<usize>().expect("a number") / 10);
    format!("{before}{letters}{after}")
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
