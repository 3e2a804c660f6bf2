//! Compares every cell and column with the Tables of a real kube-apiserver for the same objects.

use std::fs;
use std::path::Path;
use std::time::Duration;
use std::time::UNIX_EPOCH;

use serde_json::Value;
use serde_json::json;

use crate::codec::table::ColumnDefinition;
use crate::codec::table::Printer;
use crate::codec::table::go_number::put_json;

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

fn golden(resource: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/table");
    let text = fs::read_to_string(folder.join(format!("{resource}.json"))).expect("a golden file");
    serde_json::from_str(&text).expect("JSON")
}

fn printer(object: &Value) -> Printer {
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    let (version, kind) = (version.as_str().unwrap(), kind.as_str().unwrap());
    if kind != "Thing" {
        return Printer::built_in(version, kind).expect("a printer");
    }
    let definitions = golden("customresourcedefinitions");
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

#[test]
fn cells_and_columns_equal_the_servers() {
    let mut differences = Vec::new();
    let mut rows = 0;
    for resource in RESOURCES {
        let golden = golden(resource);
        let now = UNIX_EPOCH + Duration::from_secs(golden["now"].as_u64().unwrap());
        let printer = printer(&golden["rows"][0]["object"]);
        let columns: Vec<ColumnDefinition> =
            serde_json::from_value(golden["columnDefinitions"].clone()).unwrap();
        assert_eq!(printer.columns(), columns, "{resource}");
        let empty = json!({ "cells": golden["bookmark"], "object": {} });
        for row in golden["rows"].as_array().unwrap().iter().chain([&empty]) {
            let (object, wanted) = (&row["object"], printed(&row["cells"]));
            let got = printed(&printer.cells(object, now).into());
            rows += 1;
            if got != wanted {
                let name = &object["metadata"]["name"];
                differences.push(format!("{resource} {name}\n  {wanted}\n  {got}"));
            }
        }
    }
    assert!(rows > 400, "{rows}");
    let count = differences.len();
    assert!(count == 0, "{count} of {rows}:\n{}", differences.join("\n"));
}
