//! Computes cells of volumes and devices, of the claims for them and of their drivers.

use std::borrow::Cow;

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{count, is_deleted, joined, list, or, text};
use crate::codec::table::part::Part;

/// The access modes of volumes in the order of output, each with its abbreviation.
const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// Returns the number of a ConfigMap's entries.
pub(super) fn entries(map: Part<'_>) -> usize {
    count(map.at("data")) + count(map.at("binaryData"))
}

/// Shows the capacity of a claim that has a volume.
pub(super) fn claim_capacity(claim: Part<'_>, otherwise: &str) -> Cell {
    let capacity = claim.at("status").at("capacity").at("storage");
    if has_volume(claim) {
        or(text(capacity), otherwise).into()
    } else {
        "".into()
    }
}

pub(super) fn claim_modes(claim: Part<'_>) -> String {
    if has_volume(claim) {
        access_modes(claim.at("status").at("accessModes"))
    } else {
        String::new()
    }
}

fn has_volume(claim: Part<'_>) -> bool {
    !text(claim.at("spec").at("volumeName")).is_empty()
}

pub(super) fn phase(object: Part<'_>) -> Cow<'_, str> {
    if is_deleted(object) {
        "Terminating".into()
    } else {
        text(object.at("status").at("phase"))
    }
}

/// Returns the storage class of a volume or claim; an annotation of old versions has priority.
pub(super) fn class(object: Part<'_>) -> Cow<'_, str> {
    let old = object
        .at("metadata")
        .at("annotations")
        .at("volume.beta.kubernetes.io/storage-class");
    let class = text(object.at("spec").at("storageClassName"));
    old.as_str().unwrap_or(class)
}

pub(super) fn access_modes(modes: Part<'_>) -> String {
    let modes = list(modes);
    let known = ACCESS_MODES.iter();
    let has = known.filter(|(mode, _)| modes.iter().any(|found| *found == *mode));
    joined(has.map(|(_, short)| *short))
}

/// Shows the audiences of the tokens that a driver gets.
pub(super) fn audiences(requests: Part<'_>, otherwise: &str) -> Cell {
    if requests.is_array() {
        joined(requests.items().map(|request| text(request.at("audience")))).into()
    } else {
        otherwise.into()
    }
}

/// Returns the state of a claim for devices.
pub(super) fn claim_state(claim: Part<'_>) -> String {
    let status = claim.at("status");
    let is_deleted = is_deleted(claim);
    let is_allocated = status.at("allocation").is_object();
    let is_reserved = is_allocated && status.at("reservedFor").items().next().is_some();
    let states = [
        ("deleted", is_deleted),
        ("pending", !is_allocated && !is_deleted),
        ("allocated", is_allocated),
        ("reserved", is_reserved),
    ];
    let states = states.iter().filter(|(_, holds)| *holds);
    joined(states.map(|(state, _)| *state))
}
