//! Compares the simulator's discovery documents with the API server's. The simulator may serve
//! fewer resources, but all that it serves must be described as by the API server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::twins::Twins;
use crate::support::programs::apiserver::private;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn discovery_is_answered_alike() {
    let server = private().await;
    let twins = Twins::new(&server).await;
    let mut paths: Vec<_> = twins.kinds.iter().map(|kind| kind.root.clone()).collect();
    let groups = twins.kinds.iter().map(|kind| kind.root.rsplit_once('/'));
    paths.extend(groups.flatten().map(|(group, _)| group.to_owned()));
    paths.sort();
    paths.dedup();
    paths.push("/apis".to_owned());
    let mut differences = Vec::new();
    for accept in ["application/json", AGGREGATED] {
        let real = twins.real.with("accept", accept);
        let simulated = twins.simulated.with("accept", accept);
        let roots = ["/api", "/apis"].map(str::to_owned);
        let is_aggregated = accept == AGGREGATED;
        for path in if is_aggregated {
            &roots[..]
        } else {
            &paths[..]
        } {
            let wanted = real.get(path).await.ok();
            let got = simulated.get(path).await.ok();
            assert_eq!(
                got.header("content-type"),
                wanted.header("content-type"),
                "{path}"
            );
            let excess = excess(&got.json(), &wanted.json(), path);
            println!(
                "{:8} {path} {accept}",
                if excess.is_empty() { "same" } else { "DIFFERS" }
            );
            differences.extend(excess);
        }
    }
    assert!(
        differences.is_empty(),
        "only in the simulator's documents:\n{}",
        differences.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn schemas_are_described_alike() {
    let server = private().await;
    let twins = Twins::new(&server).await;
    let mut roots: Vec<_> = twins.kinds.iter().map(|kind| kind.root.clone()).collect();
    roots.dedup();
    let mut differences = Vec::new();
    for root in roots {
        let path = format!("/openapi/v3{root}");
        let wanted = twins.real.get(&path).await.ok().json();
        let mut got = twins.simulated.get(&path).await.ok().json();
        got["info"] = json!({});
        let schemas = got["components"]["schemas"].as_object();
        assert!(
            schemas.is_some_and(|schemas| schemas.len() > 1),
            "{path}: {got}"
        );
        differences.extend(excess(&got, &wanted, &path));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Writes with fields that the kind does not have.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(apiserver), ignore = "needs kube-apiserver: see CONTRIBUTING.md")]
async fn unknown_fields_are_answered_alike() {
    let server = private().await;
    let twins = Twins::new(&server).await;
    let namespace = &twins.namespace;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unknown", "label": {}},
        "data": {"a": "b"}, "dat": {"a": "b"},
    });
    let widgets = format!("/apis/example.kubefan.io/v1/namespaces/{namespace}/widgets");
    let widget = json!({
        "apiVersion": "example.kubefan.io/v1", "kind": "Widget", "metadata": {"name": "unknown"},
        "spec": {"color": "red", "colour": "red"}, "stat": {},
    });
    let mut differences = Vec::new();
    for (path, object) in [(maps, map), (widgets, widget)] {
        for validation in ["", "Ignore", "Warn", "Strict", "other"] {
            let path = format!("{path}?dryRun=All&fieldValidation={validation}");
            let mut seen = Vec::new();
            for client in [&twins.real, &twins.simulated] {
                let answer = client.create(&path, &object).await;
                let body = answer.json();
                let warnings = answer.headers.get_all("warning");
                let warnings: Vec<_> = warnings.iter().map(|text| text.to_str()).collect();
                let parts = [
                    "/message",
                    "/reason",
                    "/data",
                    "/dat",
                    "/spec/colour",
                    "/stat",
                ];
                let parts = parts.map(|part| body.pointer(part));
                seen.push(format!("{} {warnings:?} {parts:?}", answer.status));
            }
            if seen[0] != seen[1] {
                differences.push(format!("{path}\n{}\n{}", seen[0], seen[1]));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Writes the schemas of the simulator's built-in kinds as the API server has them. Run this when
/// the tests move to another version of Kubernetes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "changes a source file"]
async fn record_the_schemas() {
    let server = private().await;
    let twins = Twins::new(&server).await;
    let mut recorded = BTreeMap::new();
    for kind in &twins.kinds {
        let path = format!("/openapi/v3{}", kind.root);
        let document = twins.real.get(&path).await.ok().json();
        let schemas = &document["components"]["schemas"];
        let described = &document["paths"][kind.everywhere()]["get"];
        let described = &described["x-kubernetes-group-version-kind"];
        let schemas = schemas.as_object().expect("schemas");
        let is_of_kind = |schema: &Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.contains(described))
        };
        let root = schemas.iter().find(|(_, schema)| is_of_kind(schema));
        let (name, _) = root.expect("a schema of the kind");
        if name.starts_with("io.k8s.") {
            record(name, schemas, &mut recorded);
        }
    }
    let lines: Vec<_> = recorded
        .iter()
        .map(|(name, schema)| format!("{}: {schema}", Value::from(name.as_str())))
        .collect();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/tools/sim/kinds/schemas.json"
    );
    std::fs::write(path, format!("{{\n{}\n}}\n", lines.join(",\n"))).expect("a written file");
}

/// Records the schema `name` and all that it refers to.
fn record(
    name: &str,
    schemas: &serde_json::Map<String, Value>,
    recorded: &mut BTreeMap<String, Value>,
) {
    if recorded
        .insert(name.to_owned(), schemas[name].clone())
        .is_none()
    {
        for name in references(&schemas[name]) {
            record(&name, schemas, recorded);
        }
    }
}

/// Returns the names of the schemas that `schema` refers to.
fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match value.as_str() {
                Some(text) if key == "$ref" => {
                    let name = text.rsplit('/').next().unwrap_or_default();
                    vec![name.to_owned()]
                }
                _ => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Returns the parts of `got` that `whole` does not have, as texts.
fn excess(got: &Value, whole: &Value, place: &str) -> Vec<String> {
    match (got, whole) {
        (Value::Object(got), Value::Object(whole)) => got
            .iter()
            .flat_map(|(key, value)| match whole.get(key) {
                Some(whole) => excess(value, whole, &format!("{place} {key}")),
                None => vec![format!("{place} {key}")],
            })
            .collect(),
        (Value::Array(got), Value::Array(whole)) => got
            .iter()
            .flat_map(|item| {
                let found = whole.iter().map(|whole| excess(item, whole, place));
                found
                    .min_by_key(Vec::len)
                    .unwrap_or(vec![format!("{place} {item}")])
            })
            .collect(),
        _ if got == whole => Vec::new(),
        _ => vec![format!("{place}: {got}, not {whole}")],
    }
}
