//! Computes the cells of core kinds and other kinds with few columns.

use serde_json::Value;

use crate::codec::table::age::Moment;
use crate::codec::table::age::age;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::count;
use crate::codec::table::value::is_deleted;
use crate::codec::table::value::joined;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

/// Go's zero time, which the API server prints for an absent creation time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";
/// The access modes of volumes in the order of output, each with its abbreviation.
const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// The cells Name and Created At, for kinds without a printer in the API server.
pub(crate) fn created_at(object: &Value, _now: Moment) -> Vec<Value> {
    let created = text(&object["metadata"]["creationTimestamp"]);
    vec![name(object), or(created, ZERO_TIME).into()]
}

/// The served versions are sorted by name, and the stored one is marked.
pub(super) fn custom_resource_definition(definition: &Value, now: Moment) -> Vec<Value> {
    let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
    let mut versions: Vec<_> = list(&spec["versions"])
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| match version["storage"] == true {
            true => format!("{}(storage)", text(&version["name"])),
            false => text(&version["name"]).to_owned(),
        })
        .collect();
    versions.sort_unstable();
    let short_names = joined(list(&names["shortNames"]).iter().map(text));
    let is_established = list(&definition["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    let mut cells = created_at(definition, now);
    cells.splice(
        1..1,
        [text(&spec["scope"]).into(), versions.join(",").into()],
    );
    cells.extend([
        text(&spec["group"]).into(),
        text(&names["kind"]).into(),
        short_names.into(),
        is_established.into(),
    ]);
    cells
}

pub(super) fn namespace(namespace: &Value, now: Moment) -> Vec<Value> {
    let phase = text(&namespace["status"]["phase"]).into();
    vec![name(namespace), phase, age_of(namespace, now)]
}

pub(super) fn config_map(map: &Value, now: Moment) -> Vec<Value> {
    let count = count(&map["data"]) + count(&map["binaryData"]);
    vec![name(map), count.into(), age_of(map, now)]
}

pub(super) fn secret(secret: &Value, now: Moment) -> Vec<Value> {
    let count = count(&secret["data"]);
    vec![
        name(secret),
        text(&secret["type"]).into(),
        count.into(),
        age_of(secret, now),
    ]
}

pub(super) fn service_account(account: &Value, now: Moment) -> Vec<Value> {
    vec![name(account), age_of(account, now)]
}

pub(super) fn lease(lease: &Value, now: Moment) -> Vec<Value> {
    let holder = text(&lease["spec"]["holderIdentity"]).into();
    vec![name(lease), holder, age_of(lease, now)]
}

pub(super) fn event(event: &Value, now: Moment) -> Vec<Value> {
    let first = first_set([&event["firstTimestamp"], &event["eventTime"]]);
    let series = &event["series"];
    let last = first_set([&series["lastObservedTime"], &event["lastTimestamp"], first]);
    let count = if series.is_object() {
        number(&series["count"])
    } else {
        number(&event["count"]).max(1)
    };
    let involved = &event["involvedObject"];
    vec![
        age(last, now).into(),
        text(&event["type"]).into(),
        text(&event["reason"]).into(),
        target(involved).into(),
        text(&involved["fieldPath"]).into(),
        source(event).into(),
        text(&event["message"]).trim().into(),
        age(first, now).into(),
        count.into(),
        name(event),
    ]
}

fn first_set<const N: usize>(times: [&Value; N]) -> &Value {
    let set = times.into_iter().find(|time| time.is_string());
    set.unwrap_or(&Value::Null)
}

fn target(involved: &Value) -> String {
    let kind = text(&involved["kind"]).to_lowercase();
    match text(&involved["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// The reporter of an event: from `source` (older clients) or the `reporting` fields (newer ones).
fn source(event: &Value) -> String {
    let source = &event["source"];
    let component = or(
        text(&source["component"]),
        text(&event["reportingComponent"]),
    );
    match or(text(&source["host"]), text(&event["reportingInstance"])) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}

pub(super) fn persistent_volume_claim(claim: &Value, now: Moment) -> Vec<Value> {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let phase = if is_deleted(claim) {
        "Terminating"
    } else {
        text(&status["phase"])
    };
    let volume = text(&spec["volumeName"]);
    let (capacity, modes) = match volume {
        "" => ("", String::new()),
        _ => (
            or(text(&status["capacity"]["storage"]), "0"),
            access_modes(&status["accessModes"]),
        ),
    };
    let old_class = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = old_class
        .as_str()
        .unwrap_or(text(&spec["storageClassName"]));
    let optional = |value: &Value| Value::from(value.as_str().unwrap_or(UNSET));
    vec![
        name(claim),
        phase.into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class.into(),
        optional(&spec["volumeAttributesClassName"]),
        age_of(claim, now),
        optional(&spec["volumeMode"]),
    ]
}

fn access_modes(modes: &Value) -> String {
    let modes = list(modes);
    let known = ACCESS_MODES.iter();
    let has = known.filter(|(mode, _)| modes.iter().any(|found| found == mode));
    joined(has.map(|(_, short)| *short))
}
