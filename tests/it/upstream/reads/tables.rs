//! Compares kubefan's Table cells with the API server's, for objects in many states.
//!
//! With `KUBEFAN_WRITE_GOLDEN=1` the API server's answers are written to the folder of its minor
//! version in tests/golden/table. The unit tests of `codec::table` read these files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use kubefan::codec::Printer;
use serde_json::{Value, json};

use crate::support::clients::client::Client;
use crate::support::poll::eventually;
use crate::support::programs::apiserver::private;
use crate::support::states;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOOKMARK: &str = "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
                        &resourceVersionMatch=NotOlderThan&timeoutSeconds=1\
                        &fieldSelector=metadata.name%3Dnobody";

/// The label of the many roles and bindings that an API server creates
/// itself. They are not recorded.
const BOOTSTRAP: &str = "kubernetes.io/bootstrapping";

/// The API server's Table of a resource with `includeObject=Object`, the time of the request, and
/// the cells of a Table bookmark.
struct Answer {
    path: String,
    requested_at: SystemTime,
    table: Value,
    bookmark: Vec<Value>,
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn every_table_cell_equals_the_api_servers() {
    let server = private().await;
    let client = server.client();
    let namespace = server.namespace("tables").await;
    let paths = create_states(&client, &namespace).await;
    let golden = std::env::var_os("KUBEFAN_WRITE_GOLDEN").is_some_and(|value| value == "1");
    let golden = golden.then(|| empty_folder(server.minor()));
    let version = client.get("/version").await.ok().json();
    let mut differences = Vec::new();
    let mut rows = 0;
    for path in paths {
        let answer = table_of(&client, &path).await;
        if let Some(folder) = &golden {
            write(folder, &version["gitVersion"], &answer);
        }
        rows += compare(&client, server.minor(), &answer, &mut differences).await;
    }
    assert!(rows > 250, "{rows}");
    let count = differences.len();
    assert!(count == 0, "{count} of {rows}:\n{}", differences.join("\n"));
}

/// The first minor version with Tables of the kinds in newest_states.json that are compared.
const NEWEST_MINOR: u32 = 37;

/// Creates the objects of states.json, more_states.json and, if the API server has their kinds,
/// newest_states.json. Returns the paths of their collections in order.
pub(super) async fn create_states(client: &Client, namespace: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let version = client.get("/version").await.ok().json();
    let minor = version["minor"].as_str().expect("a minor version");
    let mut states = states::all(namespace);
    states.extend(states::of_more_kinds(namespace));
    if minor.parse::<u32>().expect("a number") >= NEWEST_MINOR {
        states.extend(states::of_newest_kinds(namespace));
    }
    for state in states {
        let path = state["path"].as_str().expect("a path").to_owned();
        states::create(client, &path, &state).await;
        if state["delete"] == true {
            let name = state["object"]["metadata"]["name"].as_str();
            let own = format!("{path}/{}", name.expect("a name"));
            client.delete(&own).await.ok();
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Reads a collection's Table. Repeats the request until it takes place within one second of the
/// clock, so that the test can predict the ages in the Table.
async fn table_of(client: &Client, path: &str) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static(TABLE));
    let get = async |query: &str| {
        let path = format!("{path}{query}");
        let answer = client.send(Method::GET, &path, &headers, Bytes::new());
        answer.await.ok()
    };
    let (requested_at, answer) = eventually(path, Duration::from_secs(20), async || {
        let requested_at = SystemTime::now();
        let answer = get("?includeObject=Object").await;
        if second_of(requested_at) == second_of(SystemTime::now()) {
            Ok((requested_at, answer))
        } else {
            Err("the second has passed")
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
        requested_at,
        table: answer.json(),
        bookmark: bookmark.expect("cells"),
    }
}

fn second_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// Compares kubefan's cells with those in an answer, adds the differing rows to `differences`, and
/// returns the number of compared rows.
async fn compare(
    client: &Client,
    minor: u32,
    answer: &Answer,
    differences: &mut Vec<String>,
) -> usize {
    let path = &answer.path;
    let rows = answer.table["rows"].as_array().expect("rows");
    let printer = printer(client, minor, &rows[0]["object"]).await;
    let columns = serde_json::to_value(printer.columns()).expect("JSON");
    if columns != answer.table["columnDefinitions"] {
        let wanted = &answer.table["columnDefinitions"];
        differences.push(format!("{path}: the columns\n  {wanted}\n  {columns}"));
    }
    let empty = json!({ "cells": answer.bookmark, "object": {} });
    for row in rows.iter().chain([&empty]) {
        let (object, wanted) = (&row["object"], &row["cells"]);
        let got = Value::from(printer.cells(object, answer.requested_at));
        if !same(&got, wanted) {
            let name = &object["metadata"]["name"];
            differences.push(format!("{path} {name}\n  {wanted}\n  {got}"));
        }
    }
    rows.len() + 1
}

async fn printer(client: &Client, minor: u32, object: &Value) -> Printer {
    let word = |field: &str| object[field].as_str().expect("a text").to_owned();
    let (version, kind) = (word("apiVersion"), word("kind"));
    if let Some(printer) = Printer::built_in_at(&version, &kind, minor) {
        return printer;
    }
    let (group, version) = version.split_once('/').expect("a group");
    let path = format!("{DEFINITIONS}/things.{group}");
    let definition = client.get(&path).await.ok().json();
    Printer::custom(&definition, version).expect("the version")
}

/// Compares two values; numbers are equal by value, so 3 equals 3.0.
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

/// Empties the folder for the golden files of a minor version, so that no file of a kind remains
/// that is no longer recorded. Returns the folder's path.
fn empty_folder(minor: u32) -> PathBuf {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/table");
    let folder = tables.join(format!("1.{minor}"));
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
        _ => fs::create_dir(&folder).expect("the folder can be created"),
    }
    folder
}

/// Writes an answer of the API server of `version` to its golden file, with one column or row per
/// line.
fn write(folder: &Path, version: &Value, answer: &Answer) {
    let mut parts = answer.path.rsplit('/');
    let plural = parts.next().expect("a plural");
    let group = answer.path.split('/').nth(2).expect("a group or version");
    let name = match plural {
        "things" => format!("things.{}", group.split('.').next().unwrap_or_default()),
        _ => plural.to_owned(),
    };
    let columns = lines(
        answer.table["columnDefinitions"]
            .as_array()
            .expect("columns"),
    );
    let rows = answer.table["rows"].as_array().expect("rows").iter();
    let rows: Vec<Value> = rows
        .filter(|row| row["object"]["metadata"]["labels"][BOOTSTRAP].is_null())
        .map(|row| {
            let mut object = row["object"].clone();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            json!({ "cells": row["cells"], "object": object })
        })
        .collect();
    let text = format!(
        "{{\"server\":{version},\n\"now\":{},\n\"columnDefinitions\":[\n{columns}\n],\n\"bookmark\":{},\n\"rows\":[\n{}\n]}}\n",
        second_of(answer.requested_at),
        Value::from(answer.bookmark.clone()),
        lines(&rows),
    );
    fs::write(folder.join(format!("{name}.json")), text).expect("the file can be written");
}

fn lines(values: &[Value]) -> String {
    let lines: Vec<_> = values.iter().map(Value::to_string).collect();
    lines.join(",\n")
}
