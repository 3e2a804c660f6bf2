//! Computes the cells of nodes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::codec::table::age::UNKNOWN;
use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::age_of;
use crate::codec::table::value::joined;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

pub(super) fn cells(node: &Value) -> Vec<Cell> {
    let kernel = match text(&node["status"]["nodeInfo"]["architecture"]) {
        "" => kernel(node).to_owned(),
        architecture => format!("{} ({architecture})", kernel(node)),
    };
    cells_with(node, kernel)
}

pub(super) fn cells_until_35(node: &Value) -> Vec<Cell> {
    cells_with(node, kernel(node).to_owned())
}

fn kernel(node: &Value) -> &str {
    or(text(&node["status"]["nodeInfo"]["kernelVersion"]), UNKNOWN)
}

fn cells_with(node: &Value, kernel: String) -> Vec<Cell> {
    let info = &node["status"]["nodeInfo"];
    vec![
        name(node),
        status(node).into(),
        roles(node).into(),
        age_of(node),
        text(&info["kubeletVersion"]).into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        or(text(&info["osImage"]), UNKNOWN).into(),
        kernel.into(),
        or(text(&info["containerRuntimeVersion"]), UNKNOWN).into(),
    ]
}

fn status(node: &Value) -> String {
    let conditions = list(&node["status"]["conditions"]).iter();
    let ready = conditions.rev().find(|found| found["type"] == "Ready");
    let status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if node["spec"]["unschedulable"] == true {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_owned()
    }
}

/// A node's roles: suffixes of `node-role.kubernetes.io/…` labels, values of `kubernetes.io/role`.
fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object();
    let roles = labels.into_iter().flatten().filter_map(|(key, value)| {
        match key.strip_prefix("node-role.kubernetes.io/") {
            None if key == "kubernetes.io/role" => Some(text(value)),
            role => role,
        }
    });
    let roles: BTreeSet<_> = roles.filter(|role| !role.is_empty()).collect();
    or(&joined(roles.into_iter()), NONE).to_owned()
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let mut addresses = list(&node["status"]["addresses"]).iter();
    let found = addresses.find(|address| address["type"] == kind);
    found.map_or(NONE, |address| text(&address["address"]))
}
