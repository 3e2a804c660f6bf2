//! Computes the cells of pods, including the one-word status that `kubectl get pods` shows.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::codec::table::cells::age::Moment;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{NONE, list, number, or, text};
use crate::codec::table::part::Part;

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

/// How the reason of a pod with a completed container is found.
#[derive(Clone, Copy, PartialEq)]
enum Completion {
    /// The reason of a container that has failed is shown instead, if there is one.
    UnlessFailed,
    /// As in API servers up to 1.34: other containers that have failed do not count.
    Alone,
}

pub(super) fn cells(pod: Part<'_>) -> Vec<Cell> {
    cells_with(pod, Completion::UnlessFailed)
}

pub(super) fn cells_until_34(pod: Part<'_>) -> Vec<Cell> {
    cells_with(pod, Completion::Alone)
}

fn cells_with(pod: Part<'_>, completion: Completion) -> Vec<Cell> {
    let [metadata, spec, status] = pod.all(["metadata", "spec", "status"]);
    let [name, created_at, deleted_at] =
        metadata.all(["name", "creationTimestamp", "deletionTimestamp"]);
    let [init_containers, containers, node_name, gates] =
        spec.all(["initContainers", "containers", "nodeName", "readinessGates"]);
    let status = Status::new(status);
    let init_containers = list(init_containers);
    let sidecars = init_containers.iter().filter(|part| is_sidecar(**part));
    let total = containers.items().count() + sidecars.count();
    let summary = summary(
        &status,
        &init_containers,
        deleted_at.is_string(),
        completion,
    );
    let first_ip = status.ips.items().next().map(|ip| text(ip.at("ip")));
    let ip = or(first_ip.unwrap_or_default(), text(status.ip));
    vec![
        text(name).into(),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        summary.restarts.to_cell(),
        Cell::age(created_at),
        or(ip, NONE).into(),
        or(text(node_name), NONE).into(),
        or(text(status.nominated_node_name), NONE).into(),
        readiness_gates(gates, &status).into(),
    ]
}

/// The members of a pod's status that cells depend on.
struct Status<'a> {
    phase: Cow<'a, str>,
    reason: Cow<'a, str>,
    is_gated: bool,
    /// True if a condition Ready is true.
    is_ready: bool,
    /// The condition types for which the first condition of that type is true. There may be many
    /// readiness gates, too.
    conditions: HashSet<Cow<'a, str>>,
    init_containers: Part<'a>,
    containers: Vec<Part<'a>>,
    ips: Part<'a>,
    ip: Part<'a>,
    nominated_node_name: Part<'a>,
}

impl<'a> Status<'a> {
    fn new(status: Part<'a>) -> Self {
        let [
            phase,
            reason,
            conditions,
            init_containers,
            containers,
            ips,
            ip,
            nominated_node_name,
        ] = status.all([
            "phase",
            "reason",
            "conditions",
            "initContainerStatuses",
            "containerStatuses",
            "podIPs",
            "podIP",
            "nominatedNodeName",
        ]);
        let conditions = conditions.items();
        let conditions: Vec<_> = conditions
            .map(|condition| condition.all(["type", "status", "reason"]))
            .collect();
        let is_gated = conditions
            .iter()
            .any(|[kind, _, reason]| *kind == "PodScheduled" && *reason == "SchedulingGated");
        let is_true = |[_, status, _]: &&[Part<'_>; 3]| *status == "True";
        let mut seen = HashSet::new();
        let first = conditions
            .iter()
            .filter(|[kind, ..]| seen.insert(text(*kind)));
        Self {
            is_ready: conditions
                .iter()
                .any(|condition| condition[0] == "Ready" && is_true(&condition)),
            phase: text(phase),
            reason: text(reason),
            is_gated,
            conditions: first
                .filter(is_true)
                .map(|[kind, ..]| text(*kind))
                .collect(),
            init_containers,
            containers: list(containers),
            ips,
            ip,
            nominated_node_name,
        }
    }
}

fn summary(
    status: &Status<'_>,
    init_containers: &[Part<'_>],
    is_deleted: bool,
    completion: Completion,
) -> Summary {
    let mut summary = Summary {
        reason: or(&*status.reason, &*status.phase).into_owned(),
        ready: 0,
        restarts: Restarts::default(),
    };
    if status.is_gated {
        summary.reason = "SchedulingGated".to_owned();
    }
    let (is_initializing, sidecar_restarts) =
        summary.add_init_containers(init_containers, status.init_containers);
    if !is_initializing || status.conditions.contains("Initialized") {
        summary.restarts = sidecar_restarts;
        summary.add_containers(status, completion);
    }
    if is_deleted {
        let has_ended = ["Succeeded", "Failed"].contains(&&*status.phase);
        if status.reason == "NodeLost" {
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
    fn add_init_containers(
        &mut self,
        containers: &[Part<'_>],
        statuses: Part<'_>,
    ) -> (bool, Restarts) {
        let mut sidecar_restarts = Restarts::default();
        let sidecars = containers
            .iter()
            .filter(|container| is_sidecar(**container));
        let sidecars: HashSet<_> = sidecars.map(|sidecar| text(sidecar.at("name"))).collect();
        for (position, status) in statuses.items().enumerate() {
            let is_sidecar = sidecars.contains(&text(status.at("name")));
            self.restarts.add(status);
            if is_sidecar {
                sidecar_restarts.add(status);
            }
            let state = status.at("state");
            let terminated = state.at("terminated");
            if terminated.is_object() && number(terminated.at("exitCode")) == 0 {
                continue;
            }
            if is_sidecar && status.at("started") == true {
                self.ready += usize::from(status.at("ready") == true);
                continue;
            }
            let waiting_reason = text(state.at("waiting").at("reason"));
            self.reason = if terminated.is_object() {
                format!("Init:{}", end_reason(terminated))
            } else if !["", "PodInitializing"].contains(&&*waiting_reason) {
                format!("Init:{waiting_reason}")
            } else {
                format!("Init:{position}/{}", containers.len())
            };
            return (true, sidecar_restarts);
        }
        (false, sidecar_restarts)
    }

    /// Adds the main containers. The first container that waits or has terminated sets the reason.
    fn add_containers(&mut self, status: &Status<'_>, completion: Completion) {
        let mut has_running = false;
        let mut failure = None;
        for container in status.containers.iter().rev() {
            self.restarts.add(*container);
            let [state, ready] = container.all(["state", "ready"]);
            let [waiting, terminated, running] = state.all(["waiting", "terminated", "running"]);
            let waiting_reason = text(waiting.at("reason"));
            if !waiting_reason.is_empty() {
                self.reason = waiting_reason.into_owned();
            } else if terminated.is_object() {
                self.reason = end_reason(terminated);
                if number(terminated.at("exitCode")) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if ready == true && running.is_object() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason != "Completed" {
            return;
        }
        let failure = failure.filter(|_| completion == Completion::UnlessFailed);
        if has_running && status.is_ready {
            self.reason = "Running".to_owned();
        } else if let Some(failure) = failure {
            self.reason = failure;
        } else if has_running {
            self.reason = "NotReady".to_owned();
        }
    }
}

impl Restarts {
    fn add(&mut self, container: Part<'_>) {
        let [count, last] = container.all(["restartCount", "lastState"]);
        self.count += number(count);
        let ended = Moment::of(last.at("terminated").at("finishedAt"));
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

/// Returns the reason for a container's termination, or its signal or exit code
/// if there is no reason.
fn end_reason(terminated: Part<'_>) -> String {
    let reason = text(terminated.at("reason"));
    match (&*reason, number(terminated.at("signal"))) {
        ("", 0) => format!("ExitCode:{}", number(terminated.at("exitCode"))),
        ("", signal) => format!("Signal:{signal}"),
        _ => reason.into_owned(),
    }
}

/// Returns true if an init container is a sidecar, which continues to run with the main containers.
fn is_sidecar(container: Part<'_>) -> bool {
    container.at("restartPolicy") == "Always"
}

fn readiness_gates(gates: Part<'_>, status: &Status<'_>) -> String {
    let gates = list(gates);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let is_open = |gate: &&Part<'_>| status.conditions.contains(&*text(gate.at("conditionType")));
    format!("{}/{}", gates.iter().filter(is_open).count(), gates.len())
}
