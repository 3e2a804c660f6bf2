//! Computes the cells of volumes, and of the drivers and nodes that provide them.

use serde_json::Value;

use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::is_deleted;
use crate::codec::table::value::joined;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

/// The access modes of volumes in the order of output, each with its abbreviation.
const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub(super) fn persistent_volume_claim(claim: &Value) -> Vec<Cell> {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let volume = text(&spec["volumeName"]);
    let (capacity, modes) = match volume {
        "" => ("", String::new()),
        _ => (
            or(text(&status["capacity"]["storage"]), "0"),
            access_modes(&status["accessModes"]),
        ),
    };
    vec![
        name(claim),
        phase(claim),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(claim).into(),
        optional(&spec["volumeAttributesClassName"]),
        age_of(claim),
        optional(&spec["volumeMode"]),
    ]
}

pub(super) fn persistent_volume(volume: &Value) -> Vec<Cell> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let claim = match &spec["claimRef"] {
        Value::Object(claim) => {
            let part = |key| claim.get(key).map(text).unwrap_or_default();
            format!("{}/{}", part("namespace"), part("name"))
        }
        _ => String::new(),
    };
    vec![
        name(volume),
        or(text(&spec["capacity"]["storage"]), "0").into(),
        access_modes(&spec["accessModes"]).into(),
        text(&spec["persistentVolumeReclaimPolicy"]).into(),
        phase(volume),
        claim.into(),
        class(volume).into(),
        optional(&spec["volumeAttributesClassName"]),
        text(&status["reason"]).into(),
        age_of(volume),
        optional(&spec["volumeMode"]),
    ]
}

pub(super) fn volume_attachment(attachment: &Value) -> Vec<Cell> {
    let spec = &attachment["spec"];
    vec![
        name(attachment),
        text(&spec["attacher"]).into(),
        text(&spec["source"]["persistentVolumeName"]).into(),
        text(&spec["nodeName"]).into(),
        (attachment["status"]["attached"] == true).into(),
        age_of(attachment),
    ]
}

pub(super) fn volume_attributes_class(class: &Value) -> Vec<Cell> {
    vec![
        name(class),
        text(&class["driverName"]).into(),
        age_of(class),
    ]
}

pub(super) fn csi_node(node: &Value) -> Vec<Cell> {
    let drivers = list(&node["spec"]["drivers"]).len();
    vec![name(node), drivers.into(), age_of(node)]
}

pub(super) fn csi_driver(driver: &Value) -> Vec<Cell> {
    let spec = &driver["spec"];
    let modes = joined(list(&spec["volumeLifecycleModes"]).iter().map(text));
    let requests = match &spec["tokenRequests"] {
        Value::Array(requests) => {
            joined(requests.iter().map(|request| text(&request["audience"]))).into()
        }
        _ => Cell::from(UNSET),
    };
    vec![
        name(driver),
        (spec["attachRequired"] != false).into(),
        (spec["podInfoOnMount"] == true).into(),
        (spec["storageCapacity"] == true).into(),
        requests,
        (spec["requiresRepublish"] == true).into(),
        or(&modes, NONE).into(),
        age_of(driver),
    ]
}

fn phase(object: &Value) -> Cell {
    if is_deleted(object) {
        "Terminating".into()
    } else {
        text(&object["status"]["phase"]).into()
    }
}

/// The storage class of a volume or claim; an annotation of old versions has priority.
fn class(object: &Value) -> &str {
    let old = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = text(&object["spec"]["storageClassName"]);
    old.as_str().unwrap_or(class)
}

fn optional(value: &Value) -> Cell {
    value.as_str().unwrap_or(UNSET).into()
}

fn access_modes(modes: &Value) -> String {
    let modes = list(modes);
    let known = ACCESS_MODES.iter();
    let has = known.filter(|(mode, _)| modes.iter().any(|found| found == mode));
    joined(has.map(|(_, short)| *short))
}
