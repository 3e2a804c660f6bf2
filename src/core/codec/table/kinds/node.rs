//! Computes cells of nodes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{NONE, joined, list, or, text};
use crate::codec::table::part::Part;

/// Shows the kernel's version and the architecture.
pub(super) fn kernel(info: Part<'_>, otherwise: &str) -> Cell {
    let version = or(text(info.at("kernelVersion")), otherwise);
    match &*text(info.at("architecture")) {
        "" => version.into(),
        architecture => format!("{version} ({architecture})").into(),
    }
}

pub(super) fn status(node: Part<'_>) -> String {
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

/// Shows a node's roles: suffixes of `node-role.kubernetes.io/…` labels, values of
/// `kubernetes.io/role`.
pub(super) fn roles(labels: Part<'_>, otherwise: &str) -> Cell {
    let roles = labels.members().filter_map(|(key, value)| {
        match key.strip_prefix("node-role.kubernetes.io/") {
            None if key == "kubernetes.io/role" => Some(text(value)),
            role => role.map(|role| Cow::Owned(role.to_owned())),
        }
    });
    let roles: BTreeSet<_> = roles.filter(|role| !role.is_empty()).collect();
    or(joined(roles), otherwise).into()
}

/// Shows the first address of the type `kind`.
pub(super) fn address(addresses: Part<'_>, kind: &str) -> Cell {
    let mut addresses = addresses.items();
    let found = addresses.find(|address| address.at("type") == kind);
    found.map_or(NONE.into(), |address| text(address.at("address")).into())
}
