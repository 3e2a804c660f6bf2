//! Compares Tables of custom resources with odd columns through kubefan
//! with those of the API server.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::printed_tables::{
    answered_from, initial_events, is_cached, is_later_bookmark, printed, table,
};
use crate::support::clients::client::{Answer, Client};
use crate::support::cluster::create_patiently;
use crate::support::normalise::mask_ages;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::private;
use crate::support::programs::kubefan::Kubefan;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GROUP: &str = "odd.kubefan.test";
const STEP: Duration = Duration::from_secs(60);

/// Paths that kubefan evaluates. Each path is a column of every type, in a separate definition.
const PATHS: [&str; 30] = [
    ".spec.value",
    ".spec['value']",
    ".spec.missing.deep",
    ".spec.list",
    ".spec.list[0]",
    ".spec.list[7]",
    ".spec.list[-1]",
    ".spec.list[-9]",
    ".spec.list[1:]",
    ".spec.list[:1]",
    ".spec.list[0:9]",
    ".spec.list[::2]",
    ".spec.list[*]",
    ".spec.items[*].v",
    ".spec.items[-1:].n",
    ".spec.items[?(@.v==1)].n",
    ".spec.items[?(@.v>=2)].n",
    ".spec.items[?(@.n=='x y')].v",
    ".spec.items[?(@.n!=\"x y\")].v",
    ".spec.items[?(@.on==true)].n",
    ".spec.items[?(@.none)].n",
    ".spec['value','list']",
    ".metadata.labels.example\\.com/x",
    ".metadata.annotations['odd\\.key']",
    ".metadata.uid",
    ".metadata.generation",
    ".metadata.creationTimestamp",
    ".spec.value.inner",
    ".kind",
    ".apiVersion",
];
/// Paths that only the API server evaluates, so kubefan forwards the Tables. It finds the members
/// of an object in random order, so two of its answers may differ.
const FORWARDED: [&str; 5] = [
    ".spec.*",
    "..v",
    ".spec..v",
    ".spec.list[?(@==1)]",
    "spec.value",
];
const WATCH_LIST: &str = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                          &allowWatchBookmarks=true&timeoutSeconds=600";
const TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "date"];

fn values() -> Vec<Value> {
    vec![
        json!("text"),
        json!(""),
        json!("<a> & \"b\" \u{2028} \\ \n é"),
        json!(0),
        json!(-7),
        json!(1.5),
        json!(3.0),
        json!(1e21),
        json!(0.0000001),
        json!(9_007_199_254_740_993_i64),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(true),
        json!(false),
        json!({ "inner": [1, { "b": null, "a": "<" }] }),
        json!([]),
        json!([1, "two", 3.5, null, true, { "v": 1 }]),
        json!("2020-01-02T03:04:05Z"),
        json!("2020-01-02T03:04:05.678+02:00"),
        json!("2999-01-01T00:00:00Z"),
        json!("0001-01-01T00:00:00Z"),
        json!("0001-01-01T01:00:00+01:00"),
        json!("0001-01-01T00:00:01Z"),
        json!("1600-01-01T00:00:00Z"),
        json!("null"),
        json!("2020-01-02"),
        json!("5"),
    ]
}

/// Returns a column of each type. All but the first column are shown only in wide output.
fn columns(path: &str) -> Value {
    let column = |(priority, kind): (usize, &str)| {
        let description = format!("As a {kind} of {path}");
        json!({
            "name": kind, "type": kind, "jsonPath": path, "priority": priority,
            "description": description,
        })
    };
    TYPES.into_iter().enumerate().map(column).collect()
}

/// Defines the resource `odd{number}` with the columns of `path`, and creates objects with all
/// values. Returns its collection; `None` if the API server refuses the definition.
async fn define(direct: &Client, number: usize, path: &str) -> Option<String> {
    let plural = format!("odd{number}");
    let definition = json!({
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Cluster",
            "names": { "plural": plural, "kind": format!("Odd{number}") },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "additionalPrinterColumns": columns(path),
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    });
    let made = direct.create(DEFINITIONS, &definition).await;
    if made.status == 422 {
        return None;
    }
    made.ok();
    let collection = format!("/apis/{GROUP}/v1/{plural}");
    eventually(&collection, STEP, async || {
        direct.get(&collection).await.is(200)
    })
    .await;
    for (at, value) in values().into_iter().enumerate() {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": format!("Odd{number}"),
            "metadata": {
                "name": format!("o{at}"),
                "labels": { "example.com/x": "label" },
                "annotations": { "odd.key": "note" },
            },
            "spec": {
                "value": value,
                "list": [value, "second", 3],
                "items": [
                    { "v": 1, "n": "one", "on": true },
                    { "v": 2, "n": "x y" },
                    { "v": 3, "n": value, "on": false },
                ],
            },
        });
        create_patiently(direct, &collection, &object).await;
    }
    let bare = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": format!("Odd{number}"),
        "metadata": { "name": "bare" },
    });
    create_patiently(direct, &collection, &bare).await;
    Some(collection)
}

/// Returns the events of a watch without ages, in order. A bookmark is without its version.
fn events(answer: &Answer) -> Vec<String> {
    let text = String::from_utf8_lossy(&answer.body);
    let events = text.lines().filter_map(|line| {
        let mut event: Value = serde_json::from_str(line).expect("an event");
        if is_later_bookmark(&event) {
            return None;
        }
        // Only the first event has columns.
        event["object"]["columnDefinitions"] = Value::Null;
        if event["type"] == "BOOKMARK" {
            event["object"]["metadata"] = Value::Null;
            event["object"]["rows"][0]["object"]["metadata"] = Value::Null;
        }
        Some(mask_ages(&event.to_string()))
    });
    let mut events: Vec<_> = events.collect();
    assert!(events.len() > 28, "{text}");
    events.sort();
    events
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn odd_columns_are_printed_as_by_the_api_server() {
    let server = private().await;
    let direct = server.client();
    let all = || PATHS.into_iter().chain(FORWARDED).enumerate();
    let defined = all().map(|(number, path)| define(&direct, number, path));
    let collections = join_all(defined).await;
    let kubefan = Kubefan::start(&server, &[]).await;
    let through = kubefan.client();
    let mut differences = Vec::new();
    let mut compared = 0;
    for ((number, path), collection) in all().zip(collections) {
        let Some(collection) = collection else {
            assert!(number >= PATHS.len(), "{path} is refused");
            continue;
        };
        let is_printed = number < PATHS.len();
        if is_printed {
            printed(&through, &collection).await;
        }
        let list = format!("{collection}?resourceVersion=0");
        let (wanted, got) = (table(&direct, &list).await, table(&through, &list).await);
        assert_eq!(is_cached(&got), is_printed, "{path}");
        let rows = |text: &Value| text["rows"].as_array().cloned().unwrap_or_default();
        let (wanted, got) = (wanted.json(), got.json());
        if wanted["columnDefinitions"] != got["columnDefinitions"] {
            differences.push(format!("{path}: columns"));
        }
        for (wanted, got) in rows(&wanted).iter().zip(rows(&got)) {
            compared += 1;
            let shown = |row: &Value| mask_ages(&row["cells"].to_string());
            if shown(wanted) != shown(&got) && is_printed {
                let cells = [&wanted["cells"], &got["cells"]];
                differences.push(format!("{path}\n  {}\n  {}", cells[0], cells[1]));
            }
        }
        assert_eq!(rows(&wanted).len(), rows(&got).len());
        if !is_printed {
            continue;
        }
        let mut targets = vec![format!("{collection}{WATCH_LIST}")];
        let names = (0..values().len()).map(|at| format!("o{at}"));
        for name in names.chain(["bare".to_owned()]) {
            targets.push(format!("{collection}/{name}?resourceVersion=0"));
        }
        for target in targets {
            let is_watch = target.contains("watch");
            let read = async |client| match is_watch {
                true => initial_events(client, &target).await,
                false => table(client, &target).await,
            };
            let got = answered_from(true, async || read(&through).await);
            let pair = tokio::join!(read(&direct), got);
            let shown = [&pair.0, &pair.1].map(|answer| match is_watch {
                true => events(answer),
                false => vec![mask_ages(&answer.json().to_string())],
            });
            if shown[0] != shown[1] {
                differences.push(format!("{target}: {path}\n  {shown:?}"));
            }
            if !is_cached(&pair.1) {
                differences.push(format!("{target}: {path}: forwarded"));
            }
        }
    }
    let count = differences.len();
    assert!(
        count == 0,
        "{count} of {compared}:\n{}",
        differences.join("\n")
    );
    assert!(compared >= PATHS.len() * 28, "{compared}");
    let metrics = kubefan.metrics().await;
    assert!(!metrics.contains("result=\"different\""), "{metrics}");
}
