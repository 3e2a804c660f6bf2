//! Computes the cells of what controls requests to the API server and serves its groups, and of
//! certificates.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use crate::codec::table::cells::age::{Moment, duration};
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{NONE, UNSET, age_of, list, name, number, or, text};
use crate::codec::table::part::Part;

pub(super) fn priority_level(level: Part<'_>) -> Vec<Cell> {
    let spec = level.at("spec");
    let limited = spec.at("limited");
    let queuing = limited.at("limitResponse").at("queuing");
    let count = |parent: Part<'_>, key: &str| {
        if parent.is_object() {
            Cell::from(number(parent.at(key)))
        } else {
            NONE.into()
        }
    };
    vec![
        name(level),
        text(spec.at("type")).into(),
        count(limited, "nominalConcurrencyShares"),
        count(queuing, "queues"),
        count(queuing, "handSize"),
        count(queuing, "queueLengthLimit"),
        age_of(level),
    ]
}

pub(super) fn validating_admission_policy(policy: Part<'_>) -> Vec<Cell> {
    admission_policy(policy, "validations")
}

pub(super) fn mutating_admission_policy(policy: Part<'_>) -> Vec<Cell> {
    admission_policy(policy, "mutations")
}

fn admission_policy(policy: Part<'_>, rules: &str) -> Vec<Cell> {
    let spec = policy.at("spec");
    let kind = spec.at("paramKind");
    let kind = if kind.is_object() {
        format!("{}/{}", text(kind.at("apiVersion")), text(kind.at("kind")))
    } else {
        UNSET.to_owned()
    };
    vec![
        name(policy),
        list(spec.at(rules)).len().into(),
        kind.into(),
        age_of(policy),
    ]
}

/// Returns the cells of a binding of a policy that validates or mutates.
pub(super) fn admission_policy_binding(binding: Part<'_>) -> Vec<Cell> {
    let spec = binding.at("spec");
    let [param, namespace, selector] = spec.at("paramRef").all(["name", "namespace", "selector"]);
    let param = match text(param) {
        param if !param.is_empty() => format!("{}/{param}", or(text(namespace), "*")),
        _ if selector.is_object() => label_selector(selector),
        _ => UNSET.to_owned(),
    };
    vec![
        name(binding),
        text(spec.at("policyName")).into(),
        param.into(),
        age_of(binding),
    ]
}

/// Returns a label selector as Go prints the struct.
fn label_selector(selector: Part<'_>) -> String {
    let labels: BTreeMap<_, _> = selector.at("matchLabels").members().collect();
    let labels = labels.into_iter();
    let labels: String = labels
        .map(|(key, value)| format!("{key}: {},", text(value)))
        .collect();
    let expressions = selector.at("matchExpressions").items();
    let expressions: String = expressions
        .map(|expression| {
            let [key, operator, values] = expression.all(["key", "operator", "values"]);
            let (key, operator) = (text(key), text(operator));
            let values: Vec<_> = values.items().map(text).collect();
            let values = values.join(" ");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn api_service(service: Part<'_>) -> Vec<Cell> {
    let backend = service.at("spec").at("service");
    let backend = if backend.is_object() {
        let [namespace, name] = backend.all(["namespace", "name"]);
        format!("{}/{}", text(namespace), text(name))
    } else {
        "Local".to_owned()
    };
    let mut conditions = service.at("status").at("conditions").items();
    let available = conditions.find(|condition| condition.at("type") == "Available");
    let available = match available {
        None => "Unknown".into(),
        Some(condition) => {
            let status = text(condition.at("status"));
            match text(condition.at("reason")) {
                reason if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
                _ => status.into_owned(),
            }
        }
    };
    vec![
        name(service),
        backend.into(),
        available.into(),
        age_of(service),
    ]
}

pub(super) fn certificate_signing_request(request: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (request.at("spec"), request.at("status"));
    let has = |kind: &str| {
        let mut conditions = status.at("conditions").items();
        conditions.any(|condition| condition.at("type") == kind)
    };
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(status.at("certificate")).is_empty() {
        state.push_str(",Issued");
    }
    let lifetime = spec.at("expirationSeconds").as_i64();
    let lifetime = lifetime.and_then(|seconds| u64::try_from(seconds).ok());
    let lifetime = lifetime.map(|seconds| {
        let end = UNIX_EPOCH + Duration::from_secs(seconds);
        let lifetime = duration(Moment::from(UNIX_EPOCH), Moment::from(end));
        Cell::from(lifetime.as_str())
    });
    vec![
        name(request),
        age_of(request),
        or(text(spec.at("signerName")), NONE).into(),
        text(spec.at("username")).into(),
        lifetime.unwrap_or_else(|| NONE.into()),
        state.into(),
    ]
}
