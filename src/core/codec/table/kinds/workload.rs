//! Computes the cells of the kinds that create pods.

use std::borrow::Cow;

use crate::codec::table::cells::age::{Moment, duration};
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{
    NONE, UNSET, age_of, is_deleted, joined, list, name, number, or, pairs, text,
};
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

pub(super) fn deployment(deployment: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (deployment.at("spec"), deployment.at("status"));
    let mut cells = vec![
        name(deployment),
        ready(spec, status).into(),
        number(status.at("updatedReplicas")).into(),
        number(status.at("availableReplicas")).into(),
        age_of(deployment),
    ];
    cells.extend(containers(spec.at("template")));
    cells.push(selector(spec.at("selector")).into());
    cells
}

pub(super) fn replica_set(set: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (set.at("spec"), set.at("status"));
    let mut cells = vec![
        name(set),
        number(spec.at("replicas")).into(),
        number(status.at("replicas")).into(),
        number(status.at("readyReplicas")).into(),
        age_of(set),
    ];
    cells.extend(containers(spec.at("template")));
    cells.push(selector_or_none(spec.at("selector")));
    cells
}

pub(super) fn stateful_set(set: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (set.at("spec"), set.at("status"));
    let mut cells = vec![name(set), ready(spec, status).into(), age_of(set)];
    cells.extend(containers(spec.at("template")));
    cells
}

pub(super) fn daemon_set(set: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (set.at("spec"), set.at("status"));
    let mut cells = vec![
        name(set),
        number(status.at("desiredNumberScheduled")).into(),
        number(status.at("currentNumberScheduled")).into(),
        number(status.at("numberReady")).into(),
        number(status.at("updatedNumberScheduled")).into(),
        number(status.at("numberAvailable")).into(),
        pairs(spec.at("template").at("spec").at("nodeSelector")).into(),
        age_of(set),
    ];
    cells.extend(containers(spec.at("template")));
    cells.push(selector_or_none(spec.at("selector")));
    cells
}

pub(super) fn job(job: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (job.at("spec"), job.at("status"));
    let mut cells = vec![
        name(job),
        job_state(job).into(),
        completions(spec, status).into(),
        job_duration(status),
        age_of(job),
    ];
    cells.extend(containers(spec.at("template")));
    cells.push(selector_or_none(spec.at("selector")));
    cells
}

fn job_state(job: Part<'_>) -> &'static str {
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

fn completions(spec: Part<'_>, status: Part<'_>) -> String {
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

fn job_duration(status: Part<'_>) -> Cell {
    match Moment::of(status.at("startTime")) {
        None => "".into(),
        Some(start) => match Moment::of(status.at("completionTime")) {
            Some(end) => duration(start, end).as_str().into(),
            None => start.into(),
        },
    }
}

pub(super) fn cron_job(job: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (job.at("spec"), job.at("status"));
    let suspend = match spec.at("suspend") {
        suspend if suspend == true => "True",
        suspend if suspend == false => "False",
        _ => UNSET,
    };
    let last = Moment::of(status.at("lastScheduleTime"));
    let last = last.map_or_else(|| NONE.into(), Cell::from);
    let job_spec = spec.at("jobTemplate").at("spec");
    let mut cells = vec![
        name(job),
        text(spec.at("schedule")).into(),
        spec.at("timeZone").as_str().unwrap_or(NONE.into()).into(),
        suspend.into(),
        status.at("active").items().count().into(),
        last,
        age_of(job),
    ];
    cells.extend(containers(job_spec.at("template")));
    cells.push(selector_or_none(job_spec.at("selector")));
    cells
}

pub(super) fn replication_controller(controller: Part<'_>) -> Vec<Cell> {
    let (spec, status) = (controller.at("spec"), controller.at("status"));
    let mut cells = vec![
        name(controller),
        number(spec.at("replicas")).into(),
        number(status.at("replicas")).into(),
        number(status.at("readyReplicas")).into(),
        age_of(controller),
    ];
    cells.extend(containers(spec.at("template")));
    cells.push(pairs(spec.at("selector")).into());
    cells
}

pub(super) fn pod_template(template: Part<'_>) -> Vec<Cell> {
    let mut cells = vec![name(template)];
    cells.extend(containers(template.at("template")));
    cells.push(pairs(template.at("template").at("metadata").at("labels")).into());
    cells
}

pub(super) fn controller_revision(revision: Part<'_>) -> Vec<Cell> {
    let mut owners = revision.at("metadata").at("ownerReferences").items();
    let owner = owners.find(|owner| owner.at("controller") == true);
    let owner = owner.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let kind = text(owner.at("kind"));
            let kind = match text(owner.at("apiVersion")).split_once('/') {
                Some((group, _)) => format!("{kind}.{group}"),
                None => kind.into_owned(),
            };
            format!("{}/{}", kind.to_lowercase(), text(owner.at("name")))
        },
    );
    vec![
        name(revision),
        owner.into(),
        number(revision.at("revision")).into(),
        age_of(revision),
    ]
}

pub(super) fn network_policy(policy: Part<'_>) -> Vec<Cell> {
    let selector = selector_or_none(policy.at("spec").at("podSelector"));
    vec![name(policy), selector, age_of(policy)]
}

fn ready(spec: Part<'_>, status: Part<'_>) -> String {
    let (ready, wanted) = (status.at("readyReplicas"), spec.at("replicas"));
    format!("{}/{}", number(ready), number(wanted))
}

/// Returns two cells: the names and the images of the containers in a pod template.
fn containers(template: Part<'_>) -> [Cell; 2] {
    let containers = list(template.at("spec").at("containers"));
    let all = |field: &str| joined(containers.iter().map(|container| text(container.at(field))));
    [all("name").into(), all("image").into()]
}

fn selector_or_none(value: Part<'_>) -> Cell {
    or(selector(value), NONE).into()
}

/// Formats a label selector as kubectl's `-l` accepts it, with the terms sorted by key.
fn selector(selector: Part<'_>) -> String {
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
