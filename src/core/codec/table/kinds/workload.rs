//! Computes cells of the kinds that create pods.

use std::borrow::Cow;

use crate::codec::table::cells::age::{Moment, duration};
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{is_deleted, joined, list, number, text};
use crate::codec::table::part::Part;

/// The possible states of a job, in descending precedence. Each is a condition type except
/// `Terminating`, which means that the job is being deleted.
const JOB_STATES: [&str; 6] = [
    "Complete",
    "Failed",
    TERMINATING,
    "Suspended",
    "FailureTarget",
    "SuccessCriteriaMet",
];
const TERMINATING: &str = "Terminating";

pub(super) fn job_state(job: Part<'_>) -> &'static str {
    let conditions = list(job.at("status").at("conditions"));
    let is_in = |state: &&&str| match **state {
        TERMINATING => is_deleted(job),
        // The first condition of a type counts.
        state => conditions
            .iter()
            .find(|found| found.at("type") == *state)
            .is_some_and(|found| found.at("status") == "True"),
    };
    JOB_STATES.iter().find(is_in).unwrap_or(&"Running")
}

pub(super) fn completions(job: Part<'_>) -> String {
    let [spec, status] = job.all(["spec", "status"]);
    let succeeded = number(status.at("succeeded"));
    match (
        spec.at("completions").as_i64(),
        number(spec.at("parallelism")),
    ) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

pub(super) fn job_duration(status: Part<'_>) -> Cell {
    match Moment::of(status.at("startTime")) {
        None => "".into(),
        Some(start) => match Moment::of(status.at("completionTime")) {
            Some(end) => duration(start, end).as_str().into(),
            None => start.into(),
        },
    }
}

pub(super) fn suspend(suspend: Part<'_>, otherwise: &str) -> Cell {
    match suspend {
        suspend if suspend == true => "True".into(),
        suspend if suspend == false => "False".into(),
        _ => otherwise.into(),
    }
}

/// Shows the owner that controls an object.
pub(super) fn controller(owners: Part<'_>, otherwise: &str) -> Cell {
    let mut owners = owners.items();
    let Some(owner) = owners.find(|owner| owner.at("controller") == true) else {
        return otherwise.into();
    };
    let kind = text(owner.at("kind"));
    let kind = match text(owner.at("apiVersion")).split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.into_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), text(owner.at("name"))).into()
}

pub(super) fn ready(object: Part<'_>) -> String {
    let [spec, status] = object.all(["spec", "status"]);
    let (ready, wanted) = (status.at("readyReplicas"), spec.at("replicas"));
    format!("{}/{}", number(ready), number(wanted))
}

/// Formats a label selector as kubectl's `-l` accepts it, with the terms sorted by key.
pub(super) fn selector(selector: Part<'_>) -> String {
    let labels = selector.at("matchLabels").members();
    let equal = labels.map(|(key, value)| {
        let term = format!("{key}={}", text(value));
        (key, term)
    });
    let expressions = selector.at("matchExpressions").items();
    let mut terms: Vec<_> = equal.chain(expressions.map(expression)).collect();
    terms.sort_by(|(key, _), (other, _)| key.cmp(other));
    joined(terms.iter().map(|(_, term)| term))
}

fn expression(expression: Part<'_>) -> (Cow<'_, str>, String) {
    let key = text(expression.at("key"));
    let mut values: Vec<_> = expression.at("values").items().map(text).collect();
    values.sort_unstable();
    let values = values.join(",");
    let term = match &*text(expression.at("operator")) {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.clone().into_owned(),
    };
    (key, term)
}
