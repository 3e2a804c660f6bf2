//! Computes cells of what controls requests to the API server and serves its groups, and of
//! certificates.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use crate::codec::table::cells::age::duration;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{or, text};
use crate::codec::table::part::Part;

/// Shows the parameters that a binding of a policy names or selects.
pub(super) fn param(reference: Part<'_>, otherwise: &str) -> Cell {
    let [param, namespace, selector] = reference.all(["name", "namespace", "selector"]);
    match text(param) {
        param if !param.is_empty() => format!("{}/{param}", or(text(namespace), "*")).into(),
        _ if selector.is_object() => label_selector(selector).into(),
        _ => otherwise.into(),
    }
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

/// Returns whether an APIService is available, from its conditions.
pub(super) fn availability(conditions: Part<'_>) -> String {
    let mut conditions = conditions.items();
    let Some(condition) = conditions.find(|condition| condition.at("type") == "Available") else {
        return "Unknown".to_owned();
    };
    let status = text(condition.at("status"));
    match text(condition.at("reason")) {
        reason if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
        _ => status.into_owned(),
    }
}

/// Returns the served versions of a definition, sorted by name, with a mark of the stored one.
pub(super) fn versions(versions: Part<'_>) -> String {
    let versions = versions.items();
    let served = versions.filter(|version| version.at("served") == true);
    let shown = served.map(|version| {
        let is_stored = version.at("storage") == true;
        let mark = if is_stored { "(storage)" } else { "" };
        format!("{}{mark}", text(version.at("name")))
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort_unstable();
    shown.join(",")
}

/// Returns true if the conditions of a definition say that it is established.
pub(super) fn established(conditions: Part<'_>) -> bool {
    let mut conditions = conditions.items();
    conditions
        .any(|condition| condition.at("type") == "Established" && condition.at("status") == "True")
}

/// Returns the state of a request for a certificate.
pub(super) fn csr_state(status: Part<'_>) -> String {
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
    state
}

/// Shows the time for which a certificate is requested.
pub(super) fn lifetime(seconds: Part<'_>, otherwise: &str) -> Cell {
    let Some(Ok(seconds)) = seconds.as_i64().map(u64::try_from) else {
        return otherwise.into();
    };
    let end = UNIX_EPOCH + Duration::from_secs(seconds);
    duration(UNIX_EPOCH.into(), end.into()).as_str().into()
}
