//! Tests comparisons with an API server in memory. The tests choose its Tables.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubefan_core::api::{Object, ObjectValues, ResourceVersion};
use kubefan_core::body::Body;
use kubefan_core::cache;
use parking_lot::Mutex;
use serde_json::json;

use super::*;

/// What the API server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Cell,
    Column,
    Order,
    Deleted,
    Failure,
}

/// An API server with pods. The pod with the name `b` has failed.
struct Upstream {
    client: Client,
    queries: Arc<Mutex<Vec<String>>>,
}

fn pod(name: &str) -> Value {
    let phase = if name == "b" { "Failed" } else { "Running" };
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        // Ages of some years do not change while the test runs.
        "metadata": { "name": name, "namespace": "n", "creationTimestamp": "2009-11-10T23:00:00Z" },
        "spec": { "containers": [{ "name": "main" }] },
        "status": { "phase": phase },
    })
}

fn table(name: Option<&str>, fault: Fault) -> Value {
    let pods = Printer::built_in("v1", "Pod").expect("a printer");
    let row = |name: &str| {
        let object = pod(name);
        let mut row = json!({ "cells": pods.cells(&object, SystemTime::now()), "object": object });
        if name == "b" {
            row["conditions"] = json!([{
                "type": "Completed", "status": "True", "reason": "Failed",
                "message": "The pod failed.",
            }]);
            if fault == Fault::Cell {
                row["cells"][1] = json!("1/1");
            }
        }
        row
    };
    let page = if fault == Fault::Order {
        ["b", "a"]
    } else {
        ["a", "b"]
    };
    let rows: Vec<_> = match name {
        None => page.map(row).into(),
        Some(_) if fault == Fault::Deleted => Vec::new(),
        Some(name) => vec![row(name)],
    };
    let mut columns = json!(pods.columns());
    if fault == Fault::Column {
        columns[4]["name"] = json!("Old");
    }
    json!({
        "kind": "Table",
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn answer(query: &str, fault: Fault) -> Response<Body> {
    let name = query.rsplit_once("metadata.name%3D").map(|(_, name)| name);
    let body = table(name, fault).to_string();
    let mut response = Response::new(body::full(body));
    if fault == Fault::Failure {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    }
    response
}

impl Upstream {
    fn start(fault: Fault) -> Self {
        let queries = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&queries);
        let client = Client::in_memory(
            &(Arc::new(move || {
                let (near, far) = tokio::io::duplex(64 << 10);
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let query = request.uri().query().unwrap_or_default();
                        seen.lock()
                            .push(format!("{}?{query}", request.uri().path()));
                        let response = answer(query, fault);
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let io = TokioIo::new(far);
                    let _ = http1::Builder::new().serve_connection(io, service).await;
                });
                Ok(near)
            }) as _),
        );
        Self { client, queries }
    }
}

fn snapshot(names: &[&str]) -> Snapshot {
    let (mut writer, reader) = cache::cache(cache::Config::default());
    let mut relist = writer.relist();
    for name in names {
        let mut object = pod(name);
        let members = object.as_object_mut().expect("an object");
        members.retain(|key, _| !["kind", "apiVersion"].contains(&key.as_str()));
        let body = object.to_string()[1..].to_owned();
        let key = ObjectKey::new(Some("n"), name);
        let values = ObjectValues::default();
        relist.add(Object::new(key, ResourceVersion(1), &values, body.into()));
    }
    writer.replace(relist, ResourceVersion(1));
    reader.snapshot().expect("the first list was applied")
}

async fn compare(names: &[&str], fault: Fault) -> (CheckResult, Vec<String>) {
    compare_in(&Scope::default(), names, fault).await
}

async fn compare_in(scope: &Scope, names: &[&str], fault: Fault) -> (CheckResult, Vec<String>) {
    let upstream = Upstream::start(fault);
    let comparison = Comparison {
        client: &upstream.client,
        gvr: &GroupVersionResource::new("", "v1", "pods"),
        printer: &Printer::built_in("v1", "Pod").expect("a printer"),
        scope,
        snapshot: snapshot(names),
    };
    let outcome = comparison.run().await;
    let mut queries = upstream.queries.lock().clone();
    queries.sort();
    (outcome, queries)
}

#[tokio::test]
async fn all_cells_of_the_chosen_objects_are_compared() {
    let (outcome, queries) = compare(&["a", "b", "c-d"], Fault::None).await;
    let (compared, objects) = (3, 3);
    assert_eq!(outcome, CheckResult::Equal { compared, objects });
    let path = "/api/v1/namespaces/n/pods?includeObject=Object&resourceVersion=0";
    let expected =
        ["a", "b", "c-d"].map(|name| format!("{path}&fieldSelector=metadata.name%3D{name}"));
    assert_eq!(queries[..3], expected);
    assert_eq!(queries[3..], ["/api/v1/pods?limit=20"]);

    let many: Vec<_> = (0..100).map(|number| format!("p{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).chain(["b"]).collect();
    let (outcome, _) = compare(&many, Fault::None).await;
    let (compared, objects) = (SAMPLE, 101);
    assert_eq!(outcome, CheckResult::Equal { compared, objects });
    // The only pod with other cells is among the chosen ones.
    assert_eq!(compare(&many, Fault::Cell).await.0, CheckResult::OtherCells);
}

#[tokio::test]
async fn differences_and_failures_are_distinguished() {
    let of = async |names: &[&str], fault| compare(names, fault).await.0;
    assert_eq!(of(&["a", "b"], Fault::Cell).await, CheckResult::OtherCells);
    assert_eq!(of(&["a"], Fault::Column).await, CheckResult::OtherColumns);
    assert_eq!(of(&["a", "b"], Fault::Order).await, CheckResult::OtherOrder);
    assert_eq!(of(&[], Fault::Order).await, CheckResult::OtherOrder);
    assert_eq!(of(&["a"], Fault::Failure).await, CheckResult::Failed);
    let (compared, objects) = (0, 2);
    let deleted = of(&["a", "b"], Fault::Deleted).await;
    assert_eq!(deleted, CheckResult::Equal { compared, objects });
}

#[tokio::test]
async fn an_empty_collection_has_its_columns_compared() {
    let (outcome, queries) = compare(&[], Fault::None).await;
    let (compared, objects) = (0, 0);
    assert_eq!(outcome, CheckResult::Equal { compared, objects });
    assert_eq!(queries, ["/api/v1/pods?limit=20"]);
    assert_eq!(
        compare(&[], Fault::Column).await.0,
        CheckResult::OtherColumns
    );
}

#[tokio::test]
async fn only_objects_of_the_scope_are_asked_for() {
    let scope = Scope {
        namespace: Some("n".to_owned()),
        label_selector: "app in (x,y)".to_owned(),
        field_selector: "spec.nodeName=n1".to_owned(),
    };
    let (outcome, queries) = compare_in(&scope, &["a"], Fault::None).await;
    assert!(matches!(outcome, CheckResult::Equal { .. }), "{outcome:?}");
    let path = "/api/v1/namespaces/n/pods";
    let labels = "labelSelector=app+in+%28x%2Cy%29";
    let node = "spec.nodeName%3Dn1";
    let expected = [
        format!(
            "{path}?includeObject=Object&resourceVersion=0&fieldSelector=metadata.name%3Da%2C{node}&{labels}"
        ),
        format!("{path}?limit=20&fieldSelector={node}&{labels}"),
    ];
    assert_eq!(queries, expected);
}
