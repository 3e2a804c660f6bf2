//! Computes the cells of volumes, and of the drivers and nodes that provide them.

use std::borrow::Cow;

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{
    NONE, UNSET, age_of, is_deleted, joined, list, name, or, text,
};
use crate::codec::table::part::Part;

/// The access modes of volumes in the order of output, each with its abbreviation.
const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub(super) fn persistent_volume_claim(claim: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (claim.at("spec"), claim.at("status"));
    let volume = text(spec.at("volumeName"));
    let (capacity, modes) = match &*volume {
        "" => (Cow::default(), String::new()),
        _ => (
            or(text(status.at("capacity").at("storage")), "0"),
            access_modes(status.at("accessModes")),
        ),
    };
    vec![
        name(claim),
        phase(claim),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(claim).into(),
        optional(spec.at("volumeAttributesClassName")),
        age_of(claim),
        optional(spec.at("volumeMode")),
    ]
}

pub(super) fn persistent_volume(volume: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (volume.at("spec"), volume.at("status"));
    let claim = spec.at("claimRef");
    let claim = if claim.is_object() {
        format!("{}/{}", text(claim.at("namespace")), text(claim.at("name")))
    } else {
        String::new()
    };
    vec![
        name(volume),
        or(text(spec.at("capacity").at("storage")), "0").into(),
        access_modes(spec.at("accessModes")).into(),
        text(spec.at("persistentVolumeReclaimPolicy")).into(),
        phase(volume),
        claim.into(),
        class(volume).into(),
        optional(spec.at("volumeAttributesClassName")),
        text(status.at("reason")).into(),
        age_of(volume),
        optional(spec.at("volumeMode")),
    ]
}

pub(super) fn volume_attachment(attachment: Part<'_>) -> Vec<Cell> {
    let spec = attachment.at("spec");
    vec![
        name(attachment),
        text(spec.at("attacher")).into(),
        text(spec.at("source").at("persistentVolumeName")).into(),
        text(spec.at("nodeName")).into(),
        (attachment.at("status").at("attached") == true).into(),
        age_of(attachment),
    ]
}

pub(super) fn volume_attributes_class(class: Part<'_>) -> Vec<Cell> {
    vec![
        name(class),
        text(class.at("driverName")).into(),
        age_of(class),
    ]
}

pub(super) fn csi_node(node: Part<'_>) -> Vec<Cell> {
    let drivers = node.at("spec").at("drivers").items().count();
    vec![name(node), drivers.into(), age_of(node)]
}

pub(super) fn csi_driver(driver: Part<'_>) -> Vec<Cell> {
    let spec = driver.at("spec");
    let modes = joined(spec.at("volumeLifecycleModes").items().map(text));
    let requests = spec.at("tokenRequests");
    let audiences = requests.items().map(|request| text(request.at("audience")));
    let requests = if requests.is_array() {
        Cell::from(joined(audiences))
    } else {
        UNSET.into()
    };
    vec![
        name(driver),
        (spec.at("attachRequired") != false).into(),
        (spec.at("podInfoOnMount") == true).into(),
        (spec.at("storageCapacity") == true).into(),
        requests,
        (spec.at("requiresRepublish") == true).into(),
        or(modes, NONE).into(),
        age_of(driver),
    ]
}

fn phase(object: Part<'_>) -> Cell {
    if is_deleted(object) {
        "Terminating".into()
    } else {
        text(object.at("status").at("phase")).into()
    }
}

/// Returns the storage class of a volume or claim; an annotation of old versions has priority.
fn class(object: Part<'_>) -> Cow<'_, str> {
    let old = object
        .at("metadata")
        .at("annotations")
        .at("volume.beta.kubernetes.io/storage-class");
    let class = text(object.at("spec").at("storageClassName"));
    old.as_str().unwrap_or(class)
}

fn optional(value: Part<'_>) -> Cell {
    value.as_str().unwrap_or(UNSET.into()).into()
}

fn access_modes(modes: Part<'_>) -> String {
    let modes = list(modes);
    let known = ACCESS_MODES.iter();
    let has = known.filter(|(mode, _)| modes.iter().any(|found| *found == *mode));
    joined(has.map(|(_, short)| *short))
}
