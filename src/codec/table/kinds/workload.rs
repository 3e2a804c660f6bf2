//! Computes the cells of the kinds that create pods.

use serde_json::Value;

use crate::codec::table::age::Moment;
use crate::codec::table::age::duration;
use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::is_deleted;
use crate::codec::table::value::joined;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::pairs;
use crate::codec::table::value::text;

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

pub(super) fn deployment(deployment: &Value) -> Vec<Cell> {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let mut cells = vec![
        name(deployment),
        ready(spec, status).into(),
        number(&status["updatedReplicas"]).into(),
        number(&status["availableReplicas"]).into(),
        age_of(deployment),
    ];
    cells.extend(containers(&spec["template"]));
    cells.push(selector(&spec["selector"]).into());
    cells
}

pub(super) fn replica_set(set: &Value) -> Vec<Cell> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let mut cells = vec![
        name(set),
        number(&spec["replicas"]).into(),
        number(&status["replicas"]).into(),
        number(&status["readyReplicas"]).into(),
        age_of(set),
    ];
    cells.extend(containers(&spec["template"]));
    cells.push(selector_or_none(&spec["selector"]));
    cells
}

pub(super) fn stateful_set(set: &Value) -> Vec<Cell> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let mut cells = vec![name(set), ready(spec, status).into(), age_of(set)];
    cells.extend(containers(&spec["template"]));
    cells
}

pub(super) fn daemon_set(set: &Value) -> Vec<Cell> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let mut cells = vec![
        name(set),
        number(&status["desiredNumberScheduled"]).into(),
        number(&status["currentNumberScheduled"]).into(),
        number(&status["numberReady"]).into(),
        number(&status["updatedNumberScheduled"]).into(),
        number(&status["numberAvailable"]).into(),
        pairs(&spec["template"]["spec"]["nodeSelector"]).into(),
        age_of(set),
    ];
    cells.extend(containers(&spec["template"]));
    cells.push(selector_or_none(&spec["selector"]));
    cells
}

pub(super) fn job(job: &Value) -> Vec<Cell> {
    let (spec, status) = (&job["spec"], &job["status"]);
    let mut cells = vec![
        name(job),
        job_state(job).into(),
        completions(spec, status).into(),
        job_duration(status),
        age_of(job),
    ];
    cells.extend(containers(&spec["template"]));
    cells.push(selector_or_none(&spec["selector"]));
    cells
}

fn job_state(job: &Value) -> &'static str {
    let conditions = list(&job["status"]["conditions"]);
    let is_in = |state: &&&str| match **state {
        TERMINATING => is_deleted(job),
        state => conditions
            .iter()
            .any(|found| found["type"] == state && found["status"] == "True"),
    };
    JOB_STATES.iter().find(is_in).unwrap_or(&"Running")
}

fn completions(spec: &Value, status: &Value) -> String {
    let succeeded = number(&status["succeeded"]);
    match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn job_duration(status: &Value) -> Cell {
    match Moment::of(&status["startTime"]) {
        None => "".into(),
        Some(start) => match Moment::of(&status["completionTime"]) {
            Some(end) => duration(start, end).into(),
            None => start.into(),
        },
    }
}

pub(super) fn cron_job(job: &Value) -> Vec<Cell> {
    let (spec, status) = (&job["spec"], &job["status"]);
    let suspend = match spec["suspend"].as_bool() {
        None => UNSET,
        Some(true) => "True",
        Some(false) => "False",
    };
    let last = Moment::of(&status["lastScheduleTime"]);
    let last = last.map_or_else(|| NONE.into(), Cell::from);
    let job_spec = &spec["jobTemplate"]["spec"];
    let mut cells = vec![
        name(job),
        text(&spec["schedule"]).into(),
        spec["timeZone"].as_str().unwrap_or(NONE).into(),
        suspend.into(),
        list(&status["active"]).len().into(),
        last,
        age_of(job),
    ];
    cells.extend(containers(&job_spec["template"]));
    cells.push(selector_or_none(&job_spec["selector"]));
    cells
}

pub(super) fn replication_controller(controller: &Value) -> Vec<Cell> {
    let (spec, status) = (&controller["spec"], &controller["status"]);
    let mut cells = vec![
        name(controller),
        number(&spec["replicas"]).into(),
        number(&status["replicas"]).into(),
        number(&status["readyReplicas"]).into(),
        age_of(controller),
    ];
    cells.extend(containers(&spec["template"]));
    cells.push(pairs(&spec["selector"]).into());
    cells
}

pub(super) fn pod_template(template: &Value) -> Vec<Cell> {
    let mut cells = vec![name(template)];
    cells.extend(containers(&template["template"]));
    cells.push(pairs(&template["template"]["metadata"]["labels"]).into());
    cells
}

pub(super) fn controller_revision(revision: &Value) -> Vec<Cell> {
    let owners = list(&revision["metadata"]["ownerReferences"]);
    let owner = owners.iter().find(|owner| owner["controller"] == true);
    let owner = owner.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let kind = text(&owner["kind"]);
            let kind = match text(&owner["apiVersion"]).split_once('/') {
                Some((group, _)) => format!("{kind}.{group}"),
                None => kind.to_owned(),
            };
            format!("{}/{}", kind.to_lowercase(), text(&owner["name"]))
        },
    );
    vec![
        name(revision),
        owner.into(),
        number(&revision["revision"]).into(),
        age_of(revision),
    ]
}

pub(super) fn network_policy(policy: &Value) -> Vec<Cell> {
    let selector = selector_or_none(&policy["spec"]["podSelector"]);
    vec![name(policy), selector, age_of(policy)]
}

fn ready(spec: &Value, status: &Value) -> String {
    let (ready, wanted) = (&status["readyReplicas"], &spec["replicas"]);
    format!("{}/{}", number(ready), number(wanted))
}

/// Two cells: the names and the images of the containers in a pod template.
fn containers(template: &Value) -> [Cell; 2] {
    let containers = list(&template["spec"]["containers"]);
    let all = |field: &str| joined(containers.iter().map(|container| text(&container[field])));
    [all("name").into(), all("image").into()]
}

fn selector_or_none(value: &Value) -> Cell {
    or(&selector(value), NONE).into()
}

/// Formats a label selector as kubectl's `-l` accepts it, with the terms sorted by key.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = labels.map(|(key, value)| (key.as_str(), format!("{key}={}", text(value))));
    let expressions = list(&selector["matchExpressions"]).iter();
    let mut terms: Vec<_> = equal.chain(expressions.map(expression)).collect();
    terms.sort_by_key(|(key, _)| *key);
    joined(terms.iter().map(|(_, term)| term.as_str()))
}

fn expression(expression: &Value) -> (&str, String) {
    let key = text(&expression["key"]);
    let mut values: Vec<_> = list(&expression["values"]).iter().map(text).collect();
    values.sort_unstable();
    let values = values.join(",");
    let term = match text(&expression["operator"]) {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    };
    (key, term)
}
