//! Compares every cell and column with the Tables of real kube-apiservers for the same objects, one for
//! each minor version on which kubefan prints Tables.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::codec::table::cells::go_number::put_json;
use crate::codec::table::{ColumnDefinition, Printer, kinds};

/// The minor versions of Kubernetes 1 whose Tables were recorded.
const MINORS: [u32; 4] = [34, 35, 36, 37];

const RESOURCES: [&str; 54] = [
    "certificatesigningrequests",
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "controllerrevisions",
    "cronjobs",
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "customresourcedefinitions",
    "daemonsets",
    "deployments",
    "deviceclasses",
    "endpoints",
    "endpointslices",
    "events",
    "horizontalpodautoscalers",
    "ingressclasses",
    "ingresses",
    "ipaddresses",
    "jobs",
    "leases",
    "limitranges",
    "mutatingwebhookconfigurations",
    "namespaces",
    "networkpolicies",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "pods",
    "podtemplates",
    "priorityclasses",
    "prioritylevelconfigurations",
    "replicasets",
    "replicationcontrollers",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcequotas",
    "resourceslices",
    "rolebindings",
    "roles",
    "runtimeclasses",
    "secrets",
    "serviceaccounts",
    "servicecidrs",
    "services",
    "statefulsets",
    "things.bare",
    "things.columns",
    "validatingadmissionpolicies",
    "validatingwebhookconfigurations",
    "volumeattachments",
    "volumeattributesclasses",
];

/// The kinds that are compared only for the newest API servers.
const NEWEST_RESOURCES: [&str; 4] = [
    "apiservices",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicybindings",
];

/// The resources whose Tables are recorded for API servers of version 1.`minor`.
fn resources(minor: u32) -> impl Iterator<Item = &'static str> {
    let newest = NEWEST_RESOURCES.into_iter().filter(move |_| minor >= 37);
    RESOURCES.into_iter().chain(newest)
}

fn folder(minor: u32) -> PathBuf {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/table");
    tables.join(format!("1.{minor}"))
}

fn golden(minor: u32, resource: &str) -> Value {
    let path = folder(minor).join(format!("{resource}.json"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// The apiVersion and the kind of an object.
fn kind_of(object: &Value) -> (&str, &str) {
    let text = |field: &str| object[field].as_str().expect("a text");
    (text("apiVersion"), text("kind"))
}

fn printer(minor: u32, object: &Value) -> Printer {
    let (version, kind) = kind_of(object);
    if kind != "Thing" {
        return Printer::built_in_at(version, kind, minor).expect("a printer");
    }
    let definitions = golden(minor, "customresourcedefinitions");
    let rows = definitions["rows"].as_array().unwrap().iter();
    let (group, version) = version.split_once('/').unwrap();
    let definition = rows
        .map(|row| &row["object"])
        .find(|definition| definition["spec"]["group"] == group)
        .expect("the definition");
    Printer::custom(definition, version).expect("the version")
}

/// Prints cells as JSON text, in which the equal numbers 3 and 3.0 are the same.
fn printed(cells: &Value) -> String {
    let mut text = String::new();
    put_json(&mut text, cells);
    text
}

/// Compares a recorded Table with kubefan's, adds what differs to `differences`, and returns the
/// number of compared rows.
fn compare(minor: u32, resource: &str, golden: &Value, differences: &mut Vec<String>) -> usize {
    let now = UNIX_EPOCH + Duration::from_secs(golden["now"].as_u64().unwrap());
    let rows = golden["rows"].as_array().unwrap();
    let printer = printer(minor, &rows[0]["object"]);
    let columns: Vec<ColumnDefinition> =
        serde_json::from_value(golden["columnDefinitions"].clone()).unwrap();
    if printer.columns() != columns {
        let own = printer.columns();
        differences.push(format!(
            "1.{minor} {resource} columns\n  {columns:?}\n  {own:?}"
        ));
    }
    let empty = json!({ "cells": golden["bookmark"], "object": {} });
    for row in rows.iter().chain([&empty]) {
        let (object, wanted) = (&row["object"], printed(&row["cells"]));
        let got = printed(&printer.cells(object, now).into());
        if got != wanted {
            let name = &object["metadata"]["name"];
            differences.push(format!("1.{minor} {resource} {name}\n  {wanted}\n  {got}"));
        }
    }
    rows.len() + 1
}

#[test]
fn cells_and_columns_equal_those_of_each_minors_server() {
    let mut differences = Vec::new();
    for minor in MINORS {
        let mut rows = 0;
        for resource in resources(minor) {
            let golden = golden(minor, resource);
            let server = golden["server"].as_str().expect("the server's version");
            assert!(
                server.starts_with(&format!("v1.{minor}.")),
                "{resource}: {server}"
            );
            rows += compare(minor, resource, &golden, &mut differences);
        }
        assert!(rows > 400, "1.{minor}: {rows}");
    }
    let count = differences.len();
    assert!(count == 0, "{count}:\n{}", differences.join("\n"));
}

#[test]
fn a_wrong_cell_and_a_wrong_column_are_found() {
    let found = |change: fn(&mut Value)| {
        let mut table = golden(34, "pods");
        change(&mut table);
        let mut differences = Vec::new();
        compare(34, "pods", &table, &mut differences);
        differences.len()
    };
    assert_eq!(found(|_| {}), 0);
    assert_eq!(
        found(|table| table["rows"][3]["cells"][2] = json!("Runing")),
        1
    );
    assert_eq!(found(|table| table["bookmark"][3] = json!(1)), 1);
    assert_eq!(
        found(|table| table["columnDefinitions"][4]["priority"] = json!(1)),
        1
    );
}

#[test]
fn every_kind_that_is_printed_was_recorded() {
    for minor in MINORS {
        let files = fs::read_dir(folder(minor))
            .expect("the folder")
            .map(|entry| {
                let name = entry.expect("an entry").file_name();
                let name = name.into_string().expect("a name in ASCII");
                name.strip_suffix(".json")
                    .expect("a file of JSON")
                    .to_owned()
            });
        let files: BTreeSet<_> = files.collect();
        let expected: BTreeSet<_> = resources(minor).map(str::to_owned).collect();
        assert_eq!(files, expected, "1.{minor}");
        let tables: Vec<_> = resources(minor)
            .map(|resource| golden(minor, resource))
            .collect();
        let objects = tables
            .iter()
            .map(|table| kind_of(&table["rows"][0]["object"]));
        let recorded: BTreeSet<_> = objects.filter(|(_, kind)| *kind != "Thing").collect();
        let printed: BTreeSet<_> = kinds::printed(minor).collect();
        assert_eq!(recorded, printed, "1.{minor}");
    }
}
