//! Computes the cells of core kinds and other kinds with few columns.

use serde_json::Value;

use crate::codec::table::cell::Cell;
use crate::codec::table::value::age_of;
use crate::codec::table::value::count;
use crate::codec::table::value::joined;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

/// Go's zero time, which the API server prints for an absent creation time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// The cells Name and Created At, for kinds without a printer in the API server.
pub(crate) fn created_at(object: &Value) -> Vec<Cell> {
    let created = text(&object["metadata"]["creationTimestamp"]);
    vec![name(object), or(created, ZERO_TIME).into()]
}

/// The served versions are sorted by name, and the stored one is marked.
pub(super) fn custom_resource_definition(definition: &Value) -> Vec<Cell> {
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
    let mut cells = created_at(definition);
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

pub(super) fn namespace(namespace: &Value) -> Vec<Cell> {
    let phase = text(&namespace["status"]["phase"]).into();
    vec![name(namespace), phase, age_of(namespace)]
}

pub(super) fn config_map(map: &Value) -> Vec<Cell> {
    let count = count(&map["data"]) + count(&map["binaryData"]);
    vec![name(map), count.into(), age_of(map)]
}

pub(super) fn secret(secret: &Value) -> Vec<Cell> {
    let count = count(&secret["data"]);
    vec![
        name(secret),
        text(&secret["type"]).into(),
        count.into(),
        age_of(secret),
    ]
}

pub(super) fn service_account(account: &Value) -> Vec<Cell> {
    vec![name(account), age_of(account)]
}

pub(super) fn service_account_until_34(account: &Value) -> Vec<Cell> {
    let secrets = list(&account["secrets"]).len().into();
    vec![name(account), secrets, age_of(account)]
}

pub(super) fn lease(lease: &Value) -> Vec<Cell> {
    let holder = text(&lease["spec"]["holderIdentity"]).into();
    vec![name(lease), holder, age_of(lease)]
}

pub(super) fn event(event: &Value) -> Vec<Cell> {
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
        Cell::age(last),
        text(&event["type"]).into(),
        text(&event["reason"]).into(),
        target(involved).into(),
        text(&involved["fieldPath"]).into(),
        source(event).into(),
        text(&event["message"]).trim().into(),
        Cell::age(first),
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
