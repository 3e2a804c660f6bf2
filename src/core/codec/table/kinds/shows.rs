//! The functions that `cells.txt` names. Each shows a value of an object as a cell.

use super::{access, autoscaling, control, events, network, node, storage, workload};
use crate::codec::table::cells::age::Moment;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{NONE, count, joined, number, or, pairs, slashed, text};
use crate::codec::table::part::Part;

/// Shows a value. The text is mostly what is shown if there is no value.
pub(super) type Show = fn(Part<'_>, &str) -> Cell;

pub(super) const SHOWS: &[(&str, Show)] = &[
    ("text", |value, otherwise| or(text(value), otherwise).into()),
    ("optional", optional),
    ("trimmed", |value, _| text(value).trim().into()),
    ("number", |value, _| number(value).into()),
    ("integer", integer),
    ("member", member),
    ("is_true", |value, _| (value == true).into()),
    ("is_not_false", |value, _| (value != false).into()),
    ("count", |list, _| list.items().count().into()),
    ("members", |map, _| count(map).into()),
    ("age", |time, _| Cell::age(time)),
    ("since", since),
    ("pairs", |map, _| pairs(map).into()),
    ("joined", |list, otherwise| {
        or(joined(list.items().map(text)), otherwise).into()
    }),
    ("names", |list, _| all(list, "name").into()),
    ("images", |list, _| all(list, "image").into()),
    ("kind_name", |part, _| slashed(part, "kind", "name").into()),
    ("namespace_name", |value, otherwise| {
        reference(value, "namespace", "name", otherwise)
    }),
    ("version_kind", |value, otherwise| {
        reference(value, "apiVersion", "kind", otherwise)
    }),
    ("limit", access::limit),
    ("subjects", access::subjects),
    ("metrics", autoscaling::metrics),
    ("param", control::param),
    ("availability", |list, _| control::availability(list).into()),
    ("lifetime", control::lifetime),
    ("csr_state", |part, _| control::csr_state(part).into()),
    ("versions", |list, _| control::versions(list).into()),
    ("established", |list, _| control::established(list).into()),
    ("event_first", |event, _| Cell::age(events::first(event))),
    ("event_last", |event, _| Cell::age(events::last(event))),
    ("event_count", |event, _| events::count(event).into()),
    ("event_target", |part, _| events::target(part).into()),
    ("event_source", |event, _| events::source(event).into()),
    ("external_ip", |part, _| network::external_ip(part).into()),
    ("service_ports", network::service_ports),
    ("balancers", |list, _| network::balancers(list).into()),
    ("endpoints", network::endpoints),
    ("slice_ports", network::slice_ports),
    ("slice_addresses", network::slice_addresses),
    ("hosts", network::hosts),
    ("ingress_ports", |tls, _| network::ingress_ports(tls).into()),
    ("parent", network::parent),
    ("class_name", |part, _| network::class_name(part).into()),
    ("parameters", network::parameters),
    ("node_status", |node, _| node::status(node).into()),
    ("roles", node::roles),
    ("address", node::address),
    ("kernel", node::kernel),
    ("config_map", |map, _| storage::entries(map).into()),
    ("phase", |object, _| storage::phase(object).into()),
    ("claim_capacity", storage::claim_capacity),
    ("claim_modes", |claim, _| storage::claim_modes(claim).into()),
    ("claim_state", |claim, _| storage::claim_state(claim).into()),
    ("access_modes", |list, _| storage::access_modes(list).into()),
    ("storage_class", |object, _| storage::class(object).into()),
    ("audiences", storage::audiences),
    ("ready", |object, _| workload::ready(object).into()),
    ("selector", |value, otherwise| {
        or(workload::selector(value), otherwise).into()
    }),
    ("job_state", |job, _| workload::job_state(job).into()),
    ("job_duration", |status, _| workload::job_duration(status)),
    ("completions", |job, _| workload::completions(job).into()),
    ("suspend", workload::suspend),
    ("controller", workload::controller),
];

fn optional(value: Part<'_>, otherwise: &str) -> Cell {
    value.as_str().unwrap_or(otherwise.into()).into()
}

fn integer(value: Part<'_>, otherwise: &str) -> Cell {
    match value.as_i64() {
        Some(number) => number.to_string().into(),
        None => otherwise.into(),
    }
}

/// Shows the number `key` of an object.
fn member(object: Part<'_>, key: &str) -> Cell {
    if object.is_object() {
        number(object.at(key)).into()
    } else {
        NONE.into()
    }
}

fn since(time: Part<'_>, otherwise: &str) -> Cell {
    Moment::of(time).map_or_else(|| otherwise.into(), Cell::from)
}

/// Returns the member `key` of each item.
fn all(list: Part<'_>, key: &str) -> String {
    joined(list.items().map(|item| text(item.at(key))))
}

fn reference(value: Part<'_>, first: &str, second: &str, otherwise: &str) -> Cell {
    if value.is_object() {
        slashed(value, first, second).into()
    } else {
        otherwise.into()
    }
}
