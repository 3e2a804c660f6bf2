//! Compares the simulator's answers with the API server's byte by byte: both servers have equal
//! objects and get equal requests.
//!
//! The requests are in tests/golden/requests.txt and tests/golden/sim.txt. Intended differences are
//! in tests/golden/sim-differences.txt.

mod discovery;
mod live;
mod twins;
mod wording;

use std::fs;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use twins::{Kind, Twins};
use wording::Names;

use crate::support::clients::client::{Answer, Client};
use crate::support::poll::within;
use crate::support::programs::apiserver::private;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const LIMIT: Duration = Duration::from_secs(60);
/// The headers that are compared.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "vary",
    "retry-after",
    "cache-control",
    "allow",
];

/// A request with the placeholders replaced for one of the two servers.
struct Request {
    method: Method,
    path: String,
    headers: HeaderMap,
}

/// A line of requests.txt or sim.txt; a line with `{each}` is one case for each kind.
struct Case {
    line: String,
    kind: Option<Kind>,
}

/// An intended difference: the simulator's status, and a text that its answer contains.
struct Difference {
    status: u16,
    text: String,
    /// A line of requests.txt or sim.txt if it begins with a method;
    /// otherwise a part of such a line.
    request: String,
}

/// The result of comparing a case; `KnownDifference` has the index of the intended difference.
enum CaseResult {
    Same,
    KnownDifference(usize),
    Differs(String),
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn every_read_is_answered_as_by_the_api_server() {
    let server = private().await;
    let mut twins = Twins::new(&server).await;
    let before = twins.versions().await;
    twins.make_some_changes().await;
    let cases = cases(&twins);
    let differences = differences();
    let fillings = [
        fillings(&twins, &twins.real, &before.0).await,
        fillings(&twins, &twins.simulated, &before.1).await,
    ];
    let results = futures::stream::iter(&cases)
        .map(|case| compare_case(case, &twins, &fillings, &differences))
        .buffered(16)
        .collect::<Vec<_>>()
        .await;
    report(&cases, &results, &differences);
}

/// Prints one line per case. Fails if a case differs in an unintended way, if one of the intended
/// `differences` occurs in no case, or if there are too few cases.
fn report(cases: &[Case], results: &[CaseResult], differences: &[Difference]) {
    let mut met = vec![false; differences.len()];
    let mut wrong = Vec::new();
    let mut table = String::new();
    for (case, result) in cases.iter().zip(results) {
        let word = match result {
            CaseResult::Same => "same",
            CaseResult::KnownDifference(which) => {
                met[*which] = true;
                "known"
            }
            CaseResult::Differs(how) => {
                wrong.push(format!("{}\n{how}", case.title()));
                "DIFFERS"
            }
        };
        table.push_str(&format!("{word:8} {}\n", case.title()));
    }
    let known = results
        .iter()
        .filter(|v| matches!(v, CaseResult::KnownDifference(_)));
    let (all, known, differing) = (cases.len(), known.count(), wrong.len());
    println!("{table}{all} cases, {known} with known differences, {differing} differing");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all > 600, "{all}");
    let idle = differences.iter().zip(met).filter(|(_, met)| !met);
    let idle: Vec<_> = idle.map(|(difference, _)| &difference.request).collect();
    assert!(
        idle.is_empty(),
        "sim-differences.txt has lines that match no case: {idle:?}"
    );
}

impl Case {
    fn title(&self) -> String {
        match &self.kind {
            Some(kind) => self.line.replace("{each}", &kind.plural),
            None => self.line.clone(),
        }
    }
}

async fn compare_case(
    case: &Case,
    twins: &Twins,
    fillings: &[Vec<(&'static str, String)>; 2],
    differences: &[Difference],
) -> CaseResult {
    let send = async |client: &Client, fillings: &[(&'static str, String)]| {
        let request = request(case, fillings);
        let answer = client.send(
            request.method.clone(),
            &request.path,
            &request.headers,
            Bytes::new(),
        );
        within(&case.title(), LIMIT, answer).await
    };
    let (wanted, got) = tokio::join!(
        send(&twins.real, &fillings[0]),
        send(&twins.simulated, &fillings[1])
    );
    let title = case.title();
    if let Some(which) = differences.iter().position(|d| d.is_of(&title)) {
        let Difference { status, text, .. } = &differences[which];
        let is_known = got.status == *status && got.to_string().contains(text.as_str());
        return match is_known {
            true => CaseResult::KnownDifference(which),
            false => {
                CaseResult::Differs(format!("--- want\n{status} {text}\n--- simulated\n{got}\n"))
            }
        };
    }
    let wanted = shown(&title, &wanted, &twins.real_names);
    let got = shown(&title, &got, &twins.simulated_names);
    match wanted == got {
        true => CaseResult::Same,
        false => CaseResult::Differs(difference(&wanted, &got)),
    }
}

/// Returns both texts from shortly before their first difference.
fn difference(wanted: &str, got: &str) -> String {
    let same = wanted.chars().zip(got.chars()).take_while(|(a, b)| a == b);
    let from = same.count().saturating_sub(120);
    let part = |text: &str| -> String { text.chars().skip(from).take(500).collect() };
    let (wanted, got) = (part(wanted), part(got));
    format!("--- API server\n{wanted}\n--- simulated\n{got}\n")
}

fn shown(title: &str, answer: &Answer, names: &Names) -> String {
    let headers = HEADERS
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", answer.header(name)?)));
    let headers: Vec<String> = headers.collect();
    let watch = title.contains("watch") && answer.status == 200;
    let body = names.body(&answer.body, watch);
    format!("{} {}\n{body}", answer.status.as_u16(), headers.join(", "))
}

impl Difference {
    fn is_of(&self, title: &str) -> bool {
        match self.request.split_once(' ') {
            Some(("GET" | "HEAD" | "OPTIONS", _)) => self.request == title,
            _ => title.contains(&self.request),
        }
    }
}

fn text(name: &str) -> String {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).expect("a list")
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Parses sim-differences.txt. Its lines are `STATUS | part of the answer | request`.
fn differences() -> Vec<Difference> {
    let text = text("sim-differences.txt");
    let parse = |line: &str| {
        let mut parts = line.splitn(3, " | ");
        let mut part = || parts.next().expect("three parts").to_owned();
        Difference {
            status: part().parse().expect("a status"),
            text: part(),
            request: part(),
        }
    };
    lines(&text).map(parse).collect()
}

/// Returns the cases of requests.txt and sim.txt. A line with `{each}`
/// becomes one case for each kind.
fn cases(twins: &Twins) -> Vec<Case> {
    let (shared, own) = (text("requests.txt"), text("sim.txt"));
    let mut cases = Vec::new();
    for line in lines(&shared).chain(lines(&own)) {
        let kinds: Vec<_> = match line.contains("{each}") {
            true => twins.kinds.iter().cloned().map(Some).collect(),
            false => vec![None],
        };
        cases.extend(kinds.into_iter().map(|kind| Case {
            line: line.to_owned(),
            kind,
        }));
    }
    cases
}

/// Returns the placeholders in braces and their values for one of the servers.
async fn fillings(twins: &Twins, client: &Client, before: &str) -> Vec<(&'static str, String)> {
    let list = client.get("/api/v1/configmaps?limit=1").await.ok().json();
    let now = list["metadata"]["resourceVersion"].as_str();
    let now: u64 = now.expect("an RV").parse().expect("a number");
    let token = |rv: Value, start: &str| {
        let start = format!("{start}\0");
        URL_SAFE_NO_PAD
            .encode(json!({ "v": "meta.k8s.io/v1", "rv": rv, "start": start }).to_string())
    };
    // List each kind once at this version, because the simulator continues a list only at a version
    // that it has served.
    for kind in &twins.kinds {
        client.get(&format!("{}?limit=1", kind.everywhere())).await;
    }
    vec![
        ("{ns}", twins.namespace.clone()),
        ("{states}", twins.states.clone()),
        ("{services}", twins.services.clone()),
        ("{rv}", before.to_owned()),
        ("{continue}", token(json!(now), "/first")),
        ("{inconsistent}", token(json!(-1), "first")),
        ("{table}", TABLE.to_owned()),
        ("{partial}", PARTIAL.to_owned()),
        ("{protobuf}", PROTOBUF.to_owned()),
    ]
}

fn request(case: &Case, fillings: &[(&'static str, String)]) -> Request {
    let mut filled = case.line.clone();
    if let Some(kind) = &case.kind {
        filled = filled.replace("{each}", &kind.home);
        filled = filled.replace("{one}", &kind.one);
    }
    for (name, value) in fillings {
        filled = filled.replace(name, value);
    }
    let mut parts = filled.split(" | ");
    let first = parts.next().and_then(|first| first.split_once(' '));
    let (method, path) = first.expect("a request");
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static("kubefan-it"));
    for header in parts {
        let (name, value) = header.split_once(": ").expect("a header");
        let name: HeaderName = name.parse().expect("a header name");
        headers.insert(name, value.parse().expect("a header value"));
    }
    Request {
        method: method.parse().expect("a method"),
        path: path.to_owned(),
        headers,
    }
}
