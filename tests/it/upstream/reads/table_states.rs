//! Tables of objects in many states are the same through kubefan as directly: in lists, pages, GETs
//! and watches, with every object that a row can contain.

use futures::StreamExt;
use futures::stream;
use serde_json::Value;

use crate::support::clients::client::Answer;
use crate::support::clients::client::Client;
use crate::support::normalise::mask_ages;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubefan::Kubefan;

use super::printed_tables::printed;
use super::printed_tables::table;
use super::tables::create_states;

/// Further attempts, because the API server changes some objects after they were created.
const RETRIES: usize = 2;
const INCLUDES: [&str; 3] = ["None", "Metadata", "Object"];
/// Collections at once; each waits for a cache and for a comparison.
const AT_ONCE: usize = 6;
/// The collections whose Tables are forwarded, because the resource is never cached.
const FORWARDED: [&str; 1] = ["events"];

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_all_states_are_the_same_through_kubefan() {
    let Some(server) = private().await else {
        return;
    };
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

/// Compares the Tables of a collection; returns the number of compared rows, and the differences.
async fn compare(direct: &Client, through: &Client, path: String) -> (usize, Vec<String>) {
    let resource = path.rsplit('/').next().unwrap_or_default();
    if !FORWARDED.contains(&resource) {
        printed(through, &path).await;
    }
    let mut queries = vec![String::new(), "?resourceVersion=0".to_owned()];
    queries.extend(INCLUDES.map(|include| format!("?includeObject={include}")));
    queries.push("?labelSelector=app%3Dnone".to_owned());
    queries.push("?limit=2".to_owned());
    let list = table(direct, &path).await.json();
    let rows = list["rows"].as_array().cloned().unwrap_or_default();
    for row in rows.iter().take(40) {
        let name = row["object"]["metadata"]["name"].as_str().expect("a name");
        queries.push(format!("/{name}?resourceVersion=0"));
    }
    let name = rows[0]["object"]["metadata"]["name"]
        .as_str()
        .expect("a name");
    queries.push(format!("?fieldSelector=metadata.name%3D{name}"));
    for include in INCLUDES {
        queries.push(format!(
            "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &allowWatchBookmarks=true&timeoutSeconds=2&includeObject={include}"
        ));
    }
    let (mut compared, mut differences) = (0, Vec::new());
    for query in queries {
        let target = format!("{path}{query}");
        let both = async || {
            let (wanted, got) = tokio::join!(table(direct, &target), table(through, &target));
            (shown(&wanted), shown(&got))
        };
        let (mut wanted, mut got) = both().await;
        for _ in 0..RETRIES {
            if wanted != got {
                (wanted, got) = both().await;
            }
        }
        compared += wanted.matches("\"cells\":").count();
        if wanted != got {
            differences.push(difference(&target, &wanted, &got));
        }
    }
    (compared, differences)
}

/// The Tables in an answer, without the versions and tokens of lists, and without ages. In a watch,
/// the initial events may be in another order.
fn shown(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    let mut lines: Vec<_> = text.lines().map(without_list_metadata).collect();
    if lines.len() > 1 {
        lines.sort();
    }
    mask_ages(&lines.join("\n"))
}

fn without_list_metadata(line: &str) -> String {
    let mut value: Value = serde_json::from_str(line).expect("JSON");
    let is_event = value["type"].is_string();
    if is_event {
        let is_bookmark = value["type"] == "BOOKMARK";
        let table = &mut value["object"];
        // An API server sends the columns again if another stream needs them for the same event.
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
    value.to_string()
}

/// Both texts from shortly before their first difference.
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
