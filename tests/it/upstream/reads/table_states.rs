//! Compares Tables of objects in many states through kubefan with those of the API server: in
//! lists, pages, GETs and watches, with every object that a row can contain, for every selection
//! and resource version. kubefan must answer them from its cache, except some of Events.

use futures::future::join_all;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::printed_tables::{
    RETRIES, initial_events, is_cached, is_later_bookmark, printed, table,
};
use super::tables::create_states;
use crate::support::clients::client::{Answer, Client};
use crate::support::normalise::mask_ages;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubefan::Kubefan;

const INCLUDES: [&str; 3] = ["None", "Metadata", "Object"];
/// Collections at once; each waits for a cache and for a comparison.
const AT_ONCE: usize = 6;
/// The resource with Tables from either side: a cache of Events is proven only by a later change.
const EVENTS: &str = "/events";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn tables_of_all_states_are_the_same_through_kubefan() {
    let server = private().await;
    let direct = server.client();
    let namespace = server.namespace("tables").await;
    let paths = create_states(&direct, &namespace).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let through = kubefan.client();
    let compared = stream::iter(paths)
        .map(|path| compare(&direct, &through, path))
        .buffer_unordered(AT_ONCE);
    let compared: Vec<(usize, Vec<String>)> = compared.collect().await;
    let rows: usize = compared.iter().map(|(rows, _)| rows).sum();
    let differences: Vec<_> = compared.into_iter().flat_map(|(_, found)| found).collect();
    assert!(rows > 3_000, "{rows}");
    let count = differences.len();
    assert!(count == 0, "{count}:\n{}", differences.join("\n"));
    let metrics = kubefan.metrics().await;
    let has_differed = metrics
        .lines()
        .any(|line| line.starts_with("kubefan_table_checks_total") && line.contains("different"));
    assert!(!has_differed, "{metrics}");
}

/// A read and which side must answer it.
struct Read {
    target: String,
    /// `None` if either side may answer.
    is_cached: Option<bool>,
}

/// Compares the Tables of a collection; returns the number of compared rows, and the differences.
async fn compare(direct: &Client, through: &Client, path: String) -> (usize, Vec<String>) {
    let is_proven = !path.ends_with(EVENTS);
    label_two(direct, &path).await;
    if is_proven {
        printed(through, &path).await;
    }
    let reads = reads(direct, &path).await;
    // Either side answers a single list without objects, as the cache can or can't be proven soon.
    let is_certain = |query: &str| {
        is_proven && (!query.contains("includeObject=None") || query.contains("resourceVersion"))
    };
    let reads = reads.into_iter().map(|(query, may_be_cached)| Read {
        target: format!("{path}{query}"),
        is_cached: is_certain(&query).then_some(may_be_cached),
    });
    let of_all_namespaces = of_all_namespaces(&path).map(|wide| {
        INCLUDES.map(|include| Read {
            target: format!("{wide}?includeObject={include}"),
            is_cached: (is_proven && include != "None").then_some(true),
        })
    });
    let reads = reads.chain(of_all_namespaces.into_iter().flatten());
    // An API server ends the initial events of some watches late.
    let (watches, others): (Vec<_>, Vec<_>) = reads.partition(|read| is_watch(&read.target));
    let watches = watches
        .iter()
        .map(|read| read.difference_between(direct, through));
    let mut compared = join_all(watches).await;
    for read in others {
        compared.push(read.difference_between(direct, through).await);
    }
    let exact = INCLUDES.map(|include| difference_at_a_version(direct, through, &path, include));
    if is_proven {
        compared.extend(join_all(exact).await);
    }
    let rows = compared.iter().map(|(rows, _)| rows).sum();
    let differences = compared.into_iter().filter_map(|(_, found)| found);
    (rows, differences.collect())
}

/// Returns the path of the collection in all namespaces; `None` if `path` is not in a namespace.
fn of_all_namespaces(path: &str) -> Option<String> {
    let (root, rest) = path.split_once("/namespaces/")?;
    let (_, resource) = rest.split_once('/')?;
    Some(format!("{root}/{resource}"))
}

fn is_watch(target: &str) -> bool {
    target.contains("watch=1")
}

/// Gives the first and the last object of a collection the label that reads select.
async fn label_two(direct: &Client, path: &str) {
    let list = table(direct, path).await.json();
    let rows = list["rows"].as_array().expect("rows");
    for row in [rows.first(), rows.last()].into_iter().flatten() {
        let name = row["object"]["metadata"]["name"].as_str().expect("a name");
        let change = json!({ "metadata": { "labels": { "matrix": "yes" } } });
        direct.merge(&format!("{path}/{name}"), &change).await.ok();
    }
}

/// Returns the queries for a collection and its objects, and whether a cache can answer them.
async fn reads(direct: &Client, path: &str) -> Vec<(String, bool)> {
    let list = table(direct, path).await.json();
    let version = list["metadata"]["resourceVersion"].as_str();
    let version = version.expect("a version");
    let rows = list["rows"].as_array().cloned().unwrap_or_default();
    let name = |row: &Value| {
        let name = row["object"]["metadata"]["name"].as_str();
        name.expect("a name").to_owned()
    };
    let mut queries = ["", "?labelSelector=app%3Dnone", "?limit=2"]
        .map(str::to_owned)
        .to_vec();
    let versions = [
        String::new(),
        "&resourceVersion=0".to_owned(),
        format!("&resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
    ];
    // kubefan can't prove that a watch of Events shows the most recent state.
    let start = match path.ends_with(EVENTS) {
        true => "&resourceVersion=0",
        false => "",
    };
    let by_name = format!("&fieldSelector=metadata.name%3D{}", name(&rows[0]));
    for selector in ["", "&labelSelector=matrix%3Dyes", &by_name] {
        for include in INCLUDES {
            for version in &versions {
                queries.push(format!("?includeObject={include}{selector}{version}"));
            }
            queries.push(format!(
                "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&timeoutSeconds=600&includeObject={include}{selector}{start}"
            ));
        }
    }
    for row in rows.iter().take(40) {
        queries.push(format!("/{}?resourceVersion=0", name(row)));
    }
    for row in rows.iter().take(2) {
        let version = row["object"]["metadata"]["resourceVersion"].as_str();
        let version = version.expect("a version");
        for include in INCLUDES {
            let get = format!("/{}?includeObject={include}&resourceVersion=", name(row));
            queries.extend([format!("{get}0"), format!("{get}{version}")]);
        }
    }
    let mut reads: Vec<_> = queries.into_iter().map(|query| (query, true)).collect();
    for include in INCLUDES {
        let get = format!("/{}?includeObject={include}", name(&rows[0]));
        reads.push((get, false));
    }
    reads
}

impl Read {
    /// Returns true if the cache (`true`) or the API server (`false`) may answer.
    fn may_be_from(&self, cache: bool) -> bool {
        self.is_cached.is_none_or(|wanted| wanted == cache)
    }

    /// Compares the answers, and which side has answered. Returns the number of rows, and the
    /// difference if there is one.
    async fn difference_between(
        &self,
        direct: &Client,
        through: &Client,
    ) -> (usize, Option<String>) {
        let target = &self.target;
        let both = async || {
            let read = async |client| match is_watch(target) {
                true => initial_events(client, target).await,
                false => table(client, target).await,
            };
            let (wanted, got) = tokio::join!(read(direct), read(through));
            (shown(&wanted), shown(&got), is_cached(&got))
        };
        let (mut wanted, mut got, mut is_cached) = both().await;
        for _ in 0..RETRIES {
            if wanted != got || !self.may_be_from(is_cached) {
                (wanted, got, is_cached) = both().await;
            }
        }
        let rows = wanted.matches("\"cells\":").count();
        let problem = if wanted != got {
            Some(difference(target, &wanted, &got))
        } else if !self.may_be_from(is_cached) {
            let by = if is_cached { "cache" } else { "API server" };
            Some(format!("{target}: answered by the {by}"))
        } else {
            None
        };
        (rows, problem)
    }
}

/// Compares the list of a collection at exactly the version that kubefan's cache has.
async fn difference_at_a_version(
    direct: &Client,
    through: &Client,
    path: &str,
    include: &str,
) -> (usize, Option<String>) {
    let mut problem = None;
    for _ in 0..=RETRIES {
        let now = table(through, &format!("{path}?resourceVersion=0")).await;
        let version = now.json()["metadata"]["resourceVersion"].take();
        let target = format!(
            "{path}?includeObject={include}&resourceVersionMatch=Exact&resourceVersion={}",
            version.as_str().expect("a version")
        );
        let (wanted, got) = tokio::join!(table(direct, &target), table(through, &target));
        assert_eq!(
            got.json()["metadata"]["resourceVersion"],
            version,
            "{target}"
        );
        let texts = [&wanted, &got].map(|answer| mask_ages(&answer.json().to_string()));
        if texts[0] != texts[1] {
            return (0, Some(difference(&target, &texts[0], &texts[1])));
        }
        if is_cached(&got) {
            return (texts[0].matches("\"cells\":").count(), None);
        }
        // The cache may have reached another version in the meantime.
        problem = Some(format!("{target}: answered by the API server"));
    }
    (0, problem)
}

/// Returns the Tables in an answer, without the versions and tokens of lists, and without ages. In
/// a watch, the initial events may be in another order.
fn shown(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    let mut lines: Vec<_> = text.lines().filter_map(without_list_metadata).collect();
    if lines.len() > 1 {
        lines.sort();
    }
    mask_ages(&lines.join("\n"))
}

/// Removes the metadata of a list from a line. Returns `None` for a bookmark that may come or not.
fn without_list_metadata(line: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(line).expect("JSON");
    if is_later_bookmark(&value) {
        return None;
    }
    let is_event = value["type"].is_string();
    if is_event {
        let is_bookmark = value["type"] == "BOOKMARK";
        let table = &mut value["object"];
        // An API server sends the columns again if another stream needs them for this event.
        table["columnDefinitions"] = Value::Null;
        if is_bookmark {
            table["metadata"] = Value::Null;
            table["rows"][0]["object"]["metadata"]["resourceVersion"] = Value::Null;
        }
    } else if value["metadata"]["continue"].is_string()
        || value["rows"].as_array().is_none_or(|rows| rows.len() != 1)
    {
        value["metadata"]["resourceVersion"] = Value::Null;
        if let Some(token) = value["metadata"].get_mut("continue") {
            *token = Value::Null;
        }
    } else {
        value["metadata"] = Value::Null;
    }
    Some(value.to_string())
}

/// Returns both texts from shortly before their first difference.
fn difference(target: &str, wanted: &str, got: &str) -> String {
    let same = wanted
        .chars()
        .zip(got.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let from = same.saturating_sub(200);
    let part = |text: &str| -> String { text.chars().skip(from).take(500).collect() };
    let (wanted, got) = (part(wanted), part(got));
    format!("{target}\n--- directly\n{wanted}\n--- through kubefan\n{got}")
}
