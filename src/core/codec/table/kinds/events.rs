//! Computes cells of events.

use crate::codec::table::cells::value::{number, or, text};
use crate::codec::table::part::Part;

/// Returns the time when an event happened first.
pub(super) fn first(event: Part<'_>) -> Part<'_> {
    first_set([event.at("firstTimestamp"), event.at("eventTime")])
}

/// Returns the time when an event happened last.
pub(super) fn last(event: Part<'_>) -> Part<'_> {
    let last = event.at("series").at("lastObservedTime");
    first_set([last, event.at("lastTimestamp"), first(event)])
}

/// Returns the first time that is set, or the last time if none is set.
fn first_set<const N: usize>(times: [Part<'_>; N]) -> Part<'_> {
    let set = times.into_iter().find(|time| time.is_string());
    set.unwrap_or(times[N - 1])
}

pub(super) fn count(event: Part<'_>) -> i64 {
    let series = event.at("series");
    if series.is_object() {
        number(series.at("count"))
    } else {
        number(event.at("count")).max(1)
    }
}

pub(super) fn target(involved: Part<'_>) -> String {
    let kind = text(involved.at("kind")).to_lowercase();
    match &*text(involved.at("name")) {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// Returns the reporter of an event: from `source` (older clients) or the `reporting`
/// fields (newer ones).
pub(super) fn source(event: Part<'_>) -> String {
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
