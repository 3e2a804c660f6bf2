//! Computes the cells of HorizontalPodAutoscalers.

use serde_json::Value;

use crate::codec::table::age::UNKNOWN;
use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::text;

/// The number of metrics that are shown.
const SHOWN: usize = 2;

pub(super) fn horizontal_pod_autoscaler(autoscaler: &Value) -> Vec<Cell> {
    let (spec, status) = (&autoscaler["spec"], &autoscaler["status"]);
    let target = &spec["scaleTargetRef"];
    let least = spec["minReplicas"].as_i64();
    let least = least.map_or_else(|| UNSET.to_owned(), |least| least.to_string());
    vec![
        name(autoscaler),
        format!("{}/{}", text(&target["kind"]), text(&target["name"])).into(),
        metrics(list(&spec["metrics"]), list(&status["currentMetrics"])).into(),
        least.into(),
        number(&spec["maxReplicas"]).into(),
        number(&status["currentReplicas"]).into(),
        age_of(autoscaler),
    ]
}

fn metrics(specs: &[Value], statuses: &[Value]) -> String {
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let status = |position: usize| statuses.get(position).unwrap_or(&Value::Null);
    let shown = specs.iter().enumerate().take(SHOWN);
    let shown = shown.map(|(position, spec)| metric(spec, status(position)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match specs.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} + {more} more..."),
    }
}

/// The current value of a metric and its target.
fn metric(spec: &Value, status: &Value) -> String {
    let kind = text(&spec["type"]);
    let member = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (&spec[member], &status[member]);
    let (target, current) = (&spec["target"], &status["current"]);
    let is_average = !target["averageValue"].is_null();
    let known = |is_known: bool, value: &Value| match is_known {
        true => quantity(value),
        false => UNKNOWN.to_owned(),
    };
    let has_status = status.is_object();
    let current_average = &current["averageValue"];
    match (kind, is_average) {
        ("Pods", _) => {
            let current = known(has_status, current_average);
            format!("{current}/{}", quantity(&target["averageValue"]))
        }
        ("External" | "Object", true) => {
            let current = known(!current_average.is_null(), current_average);
            format!("{current}/{} (avg)", quantity(&target["averageValue"]))
        }
        ("External" | "Object", false) => {
            let current = known(has_status, &current["value"]);
            format!("{current}/{}", quantity(&target["value"]))
        }
        (_, true) => {
            let current = known(has_status, current_average);
            let target = quantity(&target["averageValue"]);
            format!("{}: {current}/{target}", text(&spec["name"]))
        }
        (_, false) => {
            let percentage = |value: &Value, otherwise: &str| match value.as_i64() {
                Some(percentage) => format!("{percentage}%"),
                None => otherwise.to_owned(),
            };
            let current = percentage(&current["averageUtilization"], UNKNOWN);
            let target = percentage(&target["averageUtilization"], "<auto>");
            format!("{}: {current}/{target}", text(&spec["name"]))
        }
    }
}

/// The text of a quantity; Go prints `<nil>` if it is absent.
fn quantity(value: &Value) -> String {
    value.as_str().unwrap_or("<nil>").to_owned()
}
