//! Computes the cells of core kinds and other kinds with few columns.

use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{age_of, count, joined, name, number, or, text};
use crate::codec::table::part::Part;

/// Go's zero time, which the API server prints for an absent creation time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Returns the cells Name and Created At, for kinds without a printer in the API server.
pub(crate) fn created_at(object: Part<'_>) -> Vec<Cell> {
    let created = text(object.at("metadata").at("creationTimestamp"));
    vec![name(object), or(created, ZERO_TIME).into()]
}

/// Returns the cells of a CustomResourceDefinition. The served versions are sorted by name, and the
/// stored one is marked.
pub(super) fn custom_resource_definition(definition: Part<'_>) -> Vec<Cell> {
    let (spec, names) = (definition.at("spec"), definition.at("spec").at("names"));
    let versions = spec.at("versions").items();
    let mut versions: Vec<_> = versions
        .filter(|version| version.at("served") == true)
        .map(|version| {
            if version.at("storage") == true {
                format!("{}(storage)", text(version.at("name")))
            } else {
                text(version.at("name")).into_owned()
            }
        })
        .collect();
    versions.sort_unstable();
    let short_names = joined(names.at("shortNames").items().map(text));
    let mut conditions = definition.at("status").at("conditions").items();
    let is_established = conditions
        .any(|condition| condition.at("type") == "Established" && condition.at("status") == "True");
    let mut cells = created_at(definition);
    cells.splice(
        1..1,
        [text(spec.at("scope")).into(), versions.join(",").into()],
    );
    cells.extend([
        text(spec.at("group")).into(),
        text(names.at("kind")).into(),
        short_names.into(),
        is_established.into(),
    ]);
    cells
}

pub(super) fn namespace(namespace: Part<'_>) -> Vec<Cell> {
    let phase = text(namespace.at("status").at("phase")).into();
    vec![name(namespace), phase, age_of(namespace)]
}

pub(super) fn config_map(map: Part<'_>) -> Vec<Cell> {
    let count = count(map.at("data")) + count(map.at("binaryData"));
    vec![name(map), count.into(), age_of(map)]
}

pub(super) fn secret(secret: Part<'_>) -> Vec<Cell> {
    let count = count(secret.at("data"));
    vec![
        name(secret),
        text(secret.at("type")).into(),
        count.into(),
        age_of(secret),
    ]
}

pub(super) fn service_account(account: Part<'_>) -> Vec<Cell> {
    vec![name(account), age_of(account)]
}

pub(super) fn service_account_until_34(account: Part<'_>) -> Vec<Cell> {
    let secrets = account.at("secrets").items().count().into();
    vec![name(account), secrets, age_of(account)]
}

pub(super) fn lease(lease: Part<'_>) -> Vec<Cell> {
    let holder = text(lease.at("spec").at("holderIdentity")).into();
    vec![name(lease), holder, age_of(lease)]
}

pub(super) fn event(event: Part<'_>) -> Vec<Cell> {
    let first = first_set([event.at("firstTimestamp"), event.at("eventTime")]);
    let series = event.at("series");
    let last = first_set([
        series.at("lastObservedTime"),
        event.at("lastTimestamp"),
        first,
    ]);
    let count = if series.is_object() {
        number(series.at("count"))
    } else {
        number(event.at("count")).max(1)
    };
    let involved = event.at("involvedObject");
    vec![
        Cell::age(last),
        text(event.at("type")).into(),
        text(event.at("reason")).into(),
        target(involved).into(),
        text(involved.at("fieldPath")).into(),
        source(event).into(),
        text(event.at("message")).trim().into(),
        Cell::age(first),
        count.into(),
        name(event),
    ]
}

/// Returns the first time that is set, or the last time if none is set.
fn first_set<const N: usize>(times: [Part<'_>; N]) -> Part<'_> {
    let set = times.into_iter().find(|time| time.is_string());
    set.unwrap_or(times[N - 1])
}

fn target(involved: Part<'_>) -> String {
    let kind = text(involved.at("kind")).to_lowercase();
    match &*text(involved.at("name")) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// Returns the reporter of an event: from `source` (older clients) or the `reporting`
/// fields (newer ones).
fn source(event: Part<'_>) -> String {
    let source = event.at("source");
    let component = or(
        text(source.at("component")),
        text(event.at("reportingComponent")),
    );
    match &*or(text(source.at("host")), text(event.at("reportingInstance"))) {
        "" => component.into_owned(),
        host => format!("{component}, {host}"),
    }
}
