//! Computes the cells of nodes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::codec::table::cells::age::UNKNOWN;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{NONE, age_of, joined, list, name, or, text};
use crate::codec::table::part::Part;

pub(super) fn cells(node: Part<'_>) -> Vec<Cell> {
    let kernel = match &*text(node.at("status").at("nodeInfo").at("architecture")) {
        "" => kernel(node).into_owned(),
        architecture => format!("{} ({architecture})", kernel(node)),
    };
    cells_with(node, kernel)
}

pub(super) fn cells_until_35(node: Part<'_>) -> Vec<Cell> {
    cells_with(node, kernel(node).into_owned())
}

fn kernel(node: Part<'_>) -> Cow<'_, str> {
    or(
        text(node.at("status").at("nodeInfo").at("kernelVersion")),
        UNKNOWN,
    )
}

fn cells_with(node: Part<'_>, kernel: String) -> Vec<Cell> {
    let info = node.at("status").at("nodeInfo");
    vec![
        name(node),
        status(node).into(),
        roles(node).into(),
        age_of(node),
        text(info.at("kubeletVersion")).into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        or(text(info.at("osImage")), UNKNOWN).into(),
        kernel.into(),
        or(text(info.at("containerRuntimeVersion")), UNKNOWN).into(),
    ]
}

fn status(node: Part<'_>) -> String {
    let conditions = list(node.at("status").at("conditions")).into_iter();
    let ready = conditions.rev().find(|found| found.at("type") == "Ready");
    let status = match ready {
        Some(condition) if condition.at("status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if node.at("spec").at("unschedulable") == true {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_owned()
    }
}

/// Returns a node's roles: suffixes of `node-role.kubernetes.io/…` labels, values of
/// `kubernetes.io/role`.
fn roles(node: Part<'_>) -> String {
    let labels = node.at("metadata").at("labels").members();
    let roles =
        labels.filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                None if key == "kubernetes.io/role" => Some(text(value)),
                role => role.map(|role| Cow::Owned(role.to_owned())),
            },
        );
    let roles: BTreeSet<_> = roles.filter(|role| !role.is_empty()).collect();
    or(joined(roles), NONE).into_owned()
}

fn address<'a>(node: Part<'a>, kind: &str) -> Cow<'a, str> {
    let mut addresses = node.at("status").at("addresses").items();
    let found = addresses.find(|address| address.at("type") == kind);
    found.map_or(NONE.into(), |address| text(address.at("address")))
}
