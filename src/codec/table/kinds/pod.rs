//! Computes the cells of pods, including the one-word status that `kubectl get pods` shows.

use serde_json::Value;

use crate::codec::table::age::Moment;
use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::age_of;
use crate::codec::table::value::is_deleted;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::text;

/// The number of restarts of a pod's containers, and the time when a container last ended.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Moment>,
}

struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

/// How the reason of a pod is found of which one container has completed.
#[derive(Clone, Copy, PartialEq)]
enum Completion {
    /// The reason of a container that has failed is shown instead, if there is one.
    UnlessFailed,
    /// As in API servers up to 1.34: other containers that have failed do not count.
    Alone,
}

pub(super) fn cells(pod: &Value) -> Vec<Cell> {
    cells_with(pod, Completion::UnlessFailed)
}

pub(super) fn cells_until_34(pod: &Value) -> Vec<Cell> {
    cells_with(pod, Completion::Alone)
}

fn cells_with(pod: &Value, completion: Completion) -> Vec<Cell> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let summary = summary(pod, completion);
    let sidecars = list(&spec["initContainers"]);
    let sidecars = sidecars.iter().filter(|container| is_sidecar(container));
    let total = list(&spec["containers"]).len() + sidecars.count();
    let first_ip = text(&status["podIPs"][0]["ip"]);
    vec![
        name(pod),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        summary.restarts.to_cell(),
        age_of(pod),
        or(or(first_ip, text(&status["podIP"])), NONE).into(),
        or(text(&spec["nodeName"]), NONE).into(),
        or(text(&status["nominatedNodeName"]), NONE).into(),
        readiness_gates(spec, status).into(),
    ]
}

fn summary(pod: &Value, completion: Completion) -> Summary {
    let status = &pod["status"];
    let mut summary = Summary {
        reason: or(text(&status["reason"]), text(&status["phase"])).to_owned(),
        ready: 0,
        restarts: Restarts::default(),
    };
    let is_gated = |condition: &Value| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    };
    if list(&status["conditions"]).iter().any(is_gated) {
        summary.reason = "SchedulingGated".to_owned();
    }
    let (is_initializing, sidecar_restarts) = summary.add_init_containers(pod);
    if !is_initializing || has_condition(status, "Initialized") {
        summary.restarts = sidecar_restarts;
        summary.add_containers(status, completion);
    }
    if is_deleted(pod) {
        let has_ended = ["Succeeded", "Failed"].contains(&text(&status["phase"]));
        if status["reason"] == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !has_ended {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

impl Summary {
    /// Adds the init containers, up to the first one that the other containers wait for. Returns
    /// whether there is such a container, and the restarts of the sidecars up to that container.
    fn add_init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let containers = list(&pod["spec"]["initContainers"]);
        let mut sidecar_restarts = Restarts::default();
        let statuses = list(&pod["status"]["initContainerStatuses"]);
        for (position, status) in statuses.iter().enumerate() {
            let same_name = |container: &&Value| container["name"] == status["name"];
            let is_sidecar = containers.iter().find(same_name).is_some_and(is_sidecar);
            self.restarts.add(status);
            if is_sidecar {
                sidecar_restarts.add(status);
            }
            let state = &status["state"];
            let terminated = &state["terminated"];
            if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
                continue;
            }
            if is_sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            let waiting_reason = text(&state["waiting"]["reason"]);
            self.reason = if terminated.is_object() {
                format!("Init:{}", end_reason(terminated))
            } else if !["", "PodInitializing"].contains(&waiting_reason) {
                format!("Init:{waiting_reason}")
            } else {
                format!("Init:{position}/{}", containers.len())
            };
            return (true, sidecar_restarts);
        }
        (false, sidecar_restarts)
    }

    /// Adds the main containers. The first container that waits or has terminated sets the reason.
    fn add_containers(&mut self, status: &Value, completion: Completion) {
        let mut has_running = false;
        let mut failure = None;
        for container in list(&status["containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            let waiting_reason = text(&state["waiting"]["reason"]);
            if !waiting_reason.is_empty() {
                self.reason = waiting_reason.to_owned();
            } else if state["terminated"].is_object() {
                self.reason = end_reason(&state["terminated"]);
                if number(&state["terminated"]["exitCode"]) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"] == true && state["running"].is_object() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        let failure = failure.filter(|_| completion == Completion::UnlessFailed);
        if has_running && has_condition(status, "Ready") {
            self.reason = "Running".to_owned();
        } else if let Some(failure) = failure {
            self.reason = failure;
        } else if has_running {
            self.reason = "NotReady".to_owned();
        }
    }
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(&container["restartCount"]);
        let ended = Moment::of(&container["lastState"]["terminated"]["finishedAt"]);
        self.last = self.last.max(ended);
    }

    fn to_cell(self) -> Cell {
        match self.last {
            Some(last) if self.count != 0 => Cell::Since {
                before: format!("{} (", self.count),
                since: last,
                after: " ago)",
            },
            _ => self.count.to_string().into(),
        }
    }
}

/// The reason for a container's termination; its signal or exit code if there is no reason.
fn end_reason(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// True if an init container is a sidecar, which continues to run with the main containers.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn has_condition(status: &Value, kind: &str) -> bool {
    let mut conditions = list(&status["conditions"]).iter();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn readiness_gates(spec: &Value, status: &Value) -> String {
    let gates = list(&spec["readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let is_open = |gate: &&Value| has_condition(status, text(&gate["conditionType"]));
    format!("{}/{}", gates.iter().filter(is_open).count(), gates.len())
}
