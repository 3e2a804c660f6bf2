//! What kubefan prints follows the API server's version and the definitions of custom resources: it
//! compares its Tables again before it prints them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::printed_tables::{LIMIT, TABLE, forwarded, is_cached, metric, printed, table};
use crate::support::clients::client::Client;
use crate::support::cluster::create_patiently;
use crate::support::poll::{eventually, within};
use crate::support::programs::apiserver::shared;
use crate::support::programs::kubeconfig;
use crate::support::programs::kubeconfig::User;
use crate::support::programs::kubefan::Kubefan;
use crate::support::proxies::scripted_proxy::{RequestAction, ScriptedProxy};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// kubefan polls the version once a minute, and ends the watches of replaced kinds once a minute.
const MINUTES: Duration = Duration::from_secs(150);
/// A new version counts after three further polls.
const SETTLED: Duration = Duration::from_secs(300);

/// Opens a watch of a Table that lasts until kubefan ends it.
async fn open_watch(client: &Client, path: &str) -> Incoming {
    let headers = HeaderMap::from_iter([(http::header::ACCEPT, TABLE)]);
    let target = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=3000");
    let opened = client.open(Method::GET, &target, &headers, Bytes::new());
    let mut body = opened.await.expect("a watch").into_body();
    let first = within("the first event", LIMIT, body.frame()).await;
    first.expect("an event").expect("the connection lasts");
    body
}

async fn ends(watch: Incoming) {
    let rest = within("the end of the watch", MINUTES, watch.collect()).await;
    rest.expect("a proper end");
}

async fn equal_checks(kubefan: &Kubefan, resource: &str) -> f64 {
    let label = format!("resource=\"{resource}\",result=\"equal\"");
    metric(kubefan, "kubefan_table_checks_total", &label).await
}

/// kubefan behind a proxy that changes the API server's version after kubefan has printed a
/// collection, and an open watch of it.
struct NewVersion {
    kubefan: Kubefan,
    path: String,
    watch: Incoming,
    _proxy: ScriptedProxy,
}

/// Returns when kubefan has noticed the new version.
async fn with_a_new_version() -> NewVersion {
    let server = shared();
    let direct = server.client();
    let namespace = server.namespace("tables").await;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account = json!({ "metadata": { "name": "a" } });
    direct.create(&path, &account).await.ok();
    let version = direct.get("/version").await.ok().json();
    let version = version["gitVersion"].as_str().expect("a version");
    let from = format!("\"gitVersion\": \"{version}\"");
    // A later patch of this minor version, with a text of equal length.
    let patch = if version.ends_with('8') { '9' } else { '8' };
    let mut other = from.clone();
    other.replace_range(other.len() - 2..other.len() - 1, &patch.to_string());
    let is_changed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_changed);
    let proxy = ScriptedProxy::start(direct, move |seen| {
        if seen.path != "/version" || !flag.load(Ordering::SeqCst) {
            return RequestAction::Forward;
        }
        let (from, other) = (from.clone(), other.clone());
        RequestAction::ChangeFrames(Box::new(move |line| {
            let text = String::from_utf8(line).expect("JSON is UTF-8");
            Some(vec![text.replace(&from, &other).into_bytes()])
        }))
    })
    .await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("config");
    kubeconfig::write(&config, proxy.url(), None, &User::Anonymous);
    let kubefan = Kubefan::start_with(&config, &["-r", "serviceaccounts"]).await;
    let client = kubefan.client();
    printed(&client, &path).await;
    let watch = open_watch(&client, &path).await;
    let before = forwarded(&kubefan, "table").await;
    is_changed.store(true, Ordering::SeqCst);
    eventually("forwarded Tables", MINUTES, async || {
        table(&client, &path).await;
        let count = forwarded(&kubefan, "table").await;
        (count > before).then_some(()).ok_or("printed")
    })
    .await;
    NewVersion {
        kubefan,
        path,
        watch,
        _proxy: proxy,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn tables_are_forwarded_while_the_version_of_the_api_server_changes() {
    let changed = with_a_new_version().await;
    let before = forwarded(&changed.kubefan, "table").await;
    let answer = table(&changed.kubefan.client(), &changed.path).await;
    assert!(!is_cached(&answer));
    let after = forwarded(&changed.kubefan, "table").await;
    assert_eq!(after, before + 1.0);
}

/// As above, until kubefan prints the Tables again. In between, the watch ends.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes five minutes"]
async fn a_new_version_of_the_api_server_is_compared_before_it_is_printed() {
    let changed = with_a_new_version().await;
    let NewVersion {
        kubefan,
        path,
        watch,
        _proxy,
    } = changed;
    ends(watch).await;
    let before = equal_checks(&kubefan, "serviceaccounts").await;
    eventually("printed Tables", SETTLED, async || {
        let answer = table(&kubefan.client(), &path).await;
        is_cached(&answer).then_some(()).ok_or("forwarded")
    })
    .await;
    let after = equal_checks(&kubefan, "serviceaccounts").await;
    assert!(after > before, "{after} checks");
}

fn definition(column: &str, path: &str) -> Value {
    json!({ "spec": {
        "group": "changing.kubefan.test", "scope": "Cluster",
        "names": { "plural": "changing", "kind": "Changing" },
        "versions": [{
            "name": "v1", "served": true, "storage": true,
            "additionalPrinterColumns": [{ "name": column, "type": "string", "jsonPath": path }],
            "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } },
        }],
    } })
}

/// Returns the second column of a Table and its cells.
fn second_column(table: &Value) -> (String, Vec<Value>) {
    let name = table["columnDefinitions"][1]["name"].as_str();
    let rows = table["rows"].as_array().expect("rows").iter();
    let cells = rows.map(|row| row["cells"][1].clone()).collect();
    (name.unwrap_or_default().to_owned(), cells)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn other_columns_of_a_definition_are_compared_before_they_are_printed() {
    let server = shared();
    let direct = server.client();
    let mut first = definition("Old", ".spec.a");
    first["metadata"] = json!({ "name": "changing.changing.kubefan.test" });
    direct.create(DEFINITIONS, &first).await.ok();
    let own = format!("{DEFINITIONS}/changing.changing.kubefan.test");
    let path = "/apis/changing.kubefan.test/v1/changing";
    eventually(path, LIMIT, async || direct.get(path).await.is(200)).await;
    for number in 0..3 {
        let object = json!({
            "apiVersion": "changing.kubefan.test/v1", "kind": "Changing",
            "metadata": { "name": format!("o{number}") },
            "spec": { "a": format!("a{number}"), "b": format!("b{number}") },
        });
        create_patiently(&direct, path, &object).await;
    }
    let kubefan = Kubefan::start(server, &[]).await;
    let through = kubefan.client();
    printed(&through, path).await;
    let cells = |of: &str| {
        (0..3)
            .map(|number| json!(format!("{of}{number}")))
            .collect()
    };
    for (column, field, is_printed) in
        [("New", "b", true), ("Old", "a", true), ("Deep", "b", false)]
    {
        let watch = open_watch(&through, path).await;
        let before = equal_checks(&kubefan, "changing").await;
        let field_path = match is_printed {
            true => format!(".spec.{field}"),
            // kubefan does not evaluate this.
            false => format!("..{field}"),
        };
        let changed = definition(column, &field_path);
        direct.merge(&own, &changed).await.ok();
        eventually(column, LIMIT, async || {
            let answer = through.with("accept", TABLE.to_str().expect("text"));
            // The API server may answer 429 while it follows the definition.
            let answer = answer.get(path).await.is(200)?;
            let (found, values) = second_column(&answer.json());
            // The cells are those of the columns, no matter which server answers.
            let of = if ["Old", ""].contains(&found.as_str()) {
                "a"
            } else {
                "b"
            };
            let expected: Vec<Value> = cells(of);
            assert_eq!(values, expected, "{found}");
            if found != column || is_cached(&answer) != is_printed {
                return Err(format!("{found}, cached: {}", is_cached(&answer)));
            }
            Ok(())
        })
        .await;
        let checks = equal_checks(&kubefan, "changing").await;
        assert_eq!(checks > before, is_printed, "{checks} after {before}");
        for _ in 0..20 {
            let answer = table(&through, path).await;
            assert_eq!(second_column(&answer.json()).0, column);
            assert_eq!(is_cached(&answer), is_printed, "{column}");
        }
        ends(watch).await;
    }
    direct.delete(&own).await.ok();
}
