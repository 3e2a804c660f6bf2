//! Computes cells of HorizontalPodAutoscalers.

use crate::codec::table::cells::age::UNKNOWN;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{list, text, with_more};
use crate::codec::table::part::Part;

/// The number of metrics that are shown.
const SHOWN: usize = 2;

/// Shows the metrics of an autoscaler.
pub(super) fn metrics(autoscaler: Part<'_>, otherwise: &str) -> Cell {
    let [spec, status] = autoscaler.all(["spec", "status"]);
    let specs = list(spec.at("metrics"));
    if specs.is_empty() {
        return otherwise.into();
    }
    let statuses = list(status.at("currentMetrics"));
    let status = |position: usize| statuses.get(position).copied();
    let shown = specs.iter().copied().enumerate().take(SHOWN);
    let shown =
        shown.map(|(position, spec)| metric(spec, status(position).unwrap_or(spec.absent())));
    let shown = shown.collect::<Vec<_>>().join(", ");
    with_more(shown, specs.len(), SHOWN).into()
}

/// Returns the current value of a metric and its target.
fn metric(spec: Part<'_>, status: Part<'_>) -> String {
    let kind = text(spec.at("type"));
    let kind = &*kind;
    let member = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (spec.at(member), status.at(member));
    let (target, current) = (spec.at("target"), status.at("current"));
    let is_average = !target.at("averageValue").is_null();
    let has_status = status.is_object();
    let current_average = current.at("averageValue");
    match (kind, is_average) {
        ("Pods", _) => {
            let current = known(has_status, current_average);
            format!("{current}/{}", quantity(target.at("averageValue")))
        }
        ("External" | "Object", true) => {
            let current = known(!current_average.is_null(), current_average);
            format!("{current}/{} (avg)", quantity(target.at("averageValue")))
        }
        ("External" | "Object", false) => {
            let current = known(has_status, current.at("value"));
            format!("{current}/{}", quantity(target.at("value")))
        }
        (_, true) => {
            let current = known(has_status, current_average);
            let target = quantity(target.at("averageValue"));
            format!("{}: {current}/{target}", text(spec.at("name")))
        }
        (_, false) => {
            let current = percentage(current.at("averageUtilization"), UNKNOWN);
            let target = percentage(target.at("averageUtilization"), "<auto>");
            format!("{}: {current}/{target}", text(spec.at("name")))
        }
    }
}

fn known(is_known: bool, value: Part<'_>) -> String {
    if is_known {
        quantity(value)
    } else {
        UNKNOWN.to_owned()
    }
}

fn percentage(value: Part<'_>, otherwise: &str) -> String {
    match value.as_i64() {
        Some(percentage) => format!("{percentage}%"),
        None => otherwise.to_owned(),
    }
}

/// Returns the text of a quantity; Go prints `<nil>` if it is absent.
fn quantity(value: Part<'_>) -> String {
    value.as_str().unwrap_or("<nil>".into()).into_owned()
}
