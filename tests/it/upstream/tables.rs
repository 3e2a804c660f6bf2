//! kubefan's table cells against the API server's, for objects in many states.
//!
//! With `KUBEFAN_WRITE_GOLDEN=1` the answers become the new files of tests/golden/table, which the
//! unit tests of `codec::table` read.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use kubefan::codec::Printer;
use serde_json::Value;
use serde_json::json;

use crate::support::apiserver::private;
use crate::support::client::Client;
use crate::support::poll::eventually;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOOKMARK: &str = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
                        &resourceVersionMatch=NotOlderThan&timeoutSeconds=1\
                        &fieldSelector=metadata.name%3Dnobody";

/// A table of a whole resource, asked for with its objects.
struct Answer {
    path: String,
    asked_at: SystemTime,
    table: Value,
    bookmark: Vec<Value>,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cell_is_the_servers() {
    let Some(server) = private().await else {
        return;
    };
    let client = server.client();
    let namespace = server.namespace("tables").await;
    let paths = create_states(&client, &namespace).await;
    let mut differences = Vec::new();
    let mut rows = 0;
    for path in paths {
        let answer = table_of(&client, &path).await;
        rows += compare(&client, &answer, &mut differences).await;
        if std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some_and(|value| value == "1") {
            write(&answer);
        }
    }
    assert!(rows > 250, "{rows}");
    let count = differences.len();
    assert!(count == 0, "{count} of {rows}:\n{}", differences.join("\n"));
}

/// Makes the objects of states.json; gives the paths of their resources, in order.
async fn create_states(client: &Client, namespace: &str) -> Vec<String> {
    let states = fs::read_to_string(folder().join("states.json")).expect("the states");
    let states: Vec<Value> = serde_json::from_str(&with_times(&states, namespace)).expect("JSON");
    let mut paths: Vec<String> = Vec::new();
    for state in states {
        let path = state["path"].as_str().expect("a path").to_owned();
        let object = &state["object"];
        // A custom resource takes a moment to be served.
        eventually(&path, Duration::from_secs(20), async || {
            match client.create(&path, object).await {
                made if made.status == 404 => Err(made.to_string()),
                made => Ok(made),
            }
        })
        .await
        .ok();
        let name = object["metadata"]["name"].as_str().expect("a name");
        let own = format!("{path}/{name}");
        if !state["status"].is_null() {
            let change = json!({ "status": state["status"] });
            client.merge(&format!("{own}/status"), &change).await.ok();
        }
        if state["delete"] == true {
            client.delete(&own).await.ok();
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Fills in the namespace, and `{now-60}` with the time a minute ago.
pub(super) fn with_times(text: &str, namespace: &str) -> String {
    let text = text.replace("{ns}", namespace);
    let mut parts = text.split("{now-");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (seconds, rest) = part.split_once('}').expect("a closing brace");
        let ago = Duration::from_secs(seconds.parse().expect("a number"));
        filled.push_str(&rfc3339(SystemTime::now() - ago));
        filled.push_str(rest);
    }
    filled
}

fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let (mut days, clock) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && year != 2100;
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
    ] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!(
        "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        days + 1
    )
}

/// Asks until question and answer fall into one second, so that ages are known.
async fn table_of(client: &Client, path: &str) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static(TABLE));
    let get = async |query: &str| {
        let path = format!("{path}{query}");
        let answer = client.send(Method::GET, &path, &headers, Bytes::new());
        answer.await.ok()
    };
    let (asked_at, answer) = eventually(path, Duration::from_secs(20), async || {
        let asked_at = SystemTime::now();
        let answer = get("?includeObject=Object").await;
        match rfc3339(asked_at) == rfc3339(SystemTime::now()) {
            true => Ok((asked_at, answer)),
            false => Err("the second has passed"),
        }
    })
    .await;
    let watch = get(BOOKMARK).await;
    let first = watch.body.split(|byte| *byte == b'\n').next();
    let event: Value = serde_json::from_slice(first.expect("a line")).expect("an event");
    assert_eq!(event["type"], "BOOKMARK", "{path}");
    let bookmark = event["object"]["rows"][0]["cells"].as_array().cloned();
    Answer {
        path: path.to_owned(),
        asked_at,
        table: answer.json(),
        bookmark: bookmark.expect("cells"),
    }
}

/// Adds what differs; gives the number of rows looked at.
async fn compare(client: &Client, answer: &Answer, differences: &mut Vec<String>) -> usize {
    let path = &answer.path;
    let rows = answer.table["rows"].as_array().expect("rows");
    let printer = printer(client, &rows[0]["object"]).await;
    let columns = serde_json::to_value(printer.columns()).expect("JSON");
    assert_eq!(columns, answer.table["columnDefinitions"], "{path}");
    let empty = json!({ "cells": answer.bookmark, "object": {} });
    for row in rows.iter().chain([&empty]) {
        let (object, wanted) = (&row["object"], &row["cells"]);
        let got = Value::from(printer.cells(object, answer.asked_at));
        if !same(&got, wanted) {
            let name = &object["metadata"]["name"];
            differences.push(format!("{path} {name}\n  {wanted}\n  {got}"));
        }
    }
    rows.len() + 1
}

async fn printer(client: &Client, object: &Value) -> Printer {
    let word = |field: &str| object[field].as_str().expect("a text").to_owned();
    let (version, kind) = (word("apiVersion"), word("kind"));
    if let Some(printer) = Printer::built_in(&version, &kind) {
        return printer;
    }
    let (group, version) = version.split_once('/').expect("a group");
    let path = format!("{DEFINITIONS}/things.{group}");
    let definition = client.get(&path).await.ok().json();
    Printer::custom(&definition, version).expect("the version")
}

/// JSON has one kind of number, so 3 is 3.0.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same(l, r))
        }
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64() == right.as_f64()
        }
        _ => left == right,
    }
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/table"))
}

/// One column or row a line.
fn write(answer: &Answer) {
    let mut parts = answer.path.rsplit('/');
    let plural = parts.next().expect("a plural");
    let group = answer.path.split('/').nth(2).expect("a group or version");
    let name = match plural {
        "things" => format!("things.{}", group.split('.').next().unwrap_or_default()),
        _ => plural.to_owned(),
    };
    let since = answer.asked_at.duration_since(UNIX_EPOCH);
    let columns = lines(
        answer.table["columnDefinitions"]
            .as_array()
            .expect("columns"),
    );
    let rows = answer.table["rows"].as_array().expect("rows").iter();
    let rows: Vec<Value> = rows
        .map(|row| {
            let mut object = row["object"].clone();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            json!({ "cells": row["cells"], "object": object })
        })
        .collect();
    let text = format!(
        "{{\"now\":{},\n\"columnDefinitions\":[\n{columns}\n],\n\"bookmark\":{},\n\"rows\":[\n{}\n]}}\n",
        since.expect("after 1970").as_secs(),
        Value::from(answer.bookmark.clone()),
        lines(&rows),
    );
    fs::write(folder().join(format!("{name}.json")), text).expect("the file can be written");
}

fn lines(values: &[Value]) -> String {
    let lines: Vec<_> = values.iter().map(Value::to_string).collect();
    lines.join(",\n")
}
