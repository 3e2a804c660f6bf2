//! Renders pods.

use serde_json::{Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::{Cluster, Container, Identity, Owner, Phase, Pod, Template};
use crate::workload::names;
use crate::workload::render::metadata::Draft;
use crate::workload::render::{controllers, node, pod_template};

/// The data that a pod gets from its owner.
struct Origin<'a> {
    api_version: &'static str,
    kind: &'static str,
    owner: &'a Identity,
    template: &'a Template,
    tag: &'a str,
    labels: Value,
}

/// Renders a pod; `None` if the pod's owner does not exist.
pub(super) fn pod(pod: &Pod, cluster: &Cluster) -> Option<Value> {
    let origin = origin(pod, cluster)?;
    let mut draft = Draft::new("v1", "Pod", &pod.identity);
    draft.metadata["generateName"] = json!(format!("{}-", origin.owner.name));
    draft.metadata["labels"] = origin.labels;
    draft.metadata["annotations"] = pod_template::annotations(origin.template);
    draft.owner(origin.api_version, origin.kind, origin.owner);
    draft.object["spec"] = pod_template::pod_spec(origin.template, origin.tag);
    draft.managed_by("kube-controller-manager", pod.identity.created);
    draft.metadata["generation"] = json!(1);
    admit(&mut draft.object["spec"], pod, origin.template);
    draft.status(
        status(pod, origin.template, origin.tag),
        "kubelet",
        pod.identity.written,
    );
    if let Some(deleting) = pod.deleting {
        draft.metadata["deletionTimestamp"] = json!(time(deleting + 30));
        draft.metadata["deletionGracePeriodSeconds"] = json!(30);
    }
    Some(draft.finish())
}

fn origin<'a>(pod: &Pod, cluster: &'a Cluster) -> Option<Origin<'a>> {
    Some(match pod.owner {
        Owner::ReplicaSet(set) => {
            let set = cluster.replica_sets.get(&set)?;
            let deployment = cluster.deployments.get(set.deployment)?;
            Origin {
                api_version: "apps/v1",
                kind: "ReplicaSet",
                owner: &set.identity,
                template: &deployment.template,
                tag: &set.tag,
                labels: controllers::set_labels(deployment, set),
            }
        }
        Owner::DaemonSet(set) => {
            let set = cluster.daemon_sets.get(set)?;
            let mut labels = controllers::app_labels(&set.template);
            labels["controller-revision-hash"] = json!(set.hash);
            labels["pod-template-generation"] = json!("1");
            Origin {
                api_version: "apps/v1",
                kind: "DaemonSet",
                owner: &set.identity,
                template: &set.template,
                tag: &set.tag,
                labels,
            }
        }
        Owner::Job(job) => {
            let job = cluster.jobs.get(&job)?;
            let cron_job = cluster.cron_jobs.get(job.cron_job)?;
            Origin {
                api_version: "batch/v1",
                kind: "Job",
                owner: &job.identity,
                template: &cron_job.template,
                tag: &cron_job.tag,
                labels: controllers::job_labels(job),
            }
        }
    })
}

/// Adds the fields that admission and the scheduler add to the spec of a pod.
fn admit(spec: &mut Value, pod: &Pod, template: &Template) {
    spec["enableServiceLinks"] = json!(true);
    spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    spec["priority"] = json!(if template.privileged {
        2_000_001_000
    } else {
        0
    });
    let token = format!("kube-api-access-{}", pod.suffix);
    let mount = json!({
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "name": token,
        "readOnly": true,
    });
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        append(&mut container["volumeMounts"], mount.clone());
    }
    append(&mut spec["volumes"], token_volume(&token));
    for condition in ["not-ready", "unreachable"] {
        let toleration = json!({
            "effect": "NoExecute",
            "key": format!("node.kubernetes.io/{condition}"),
            "operator": "Exists",
            "tolerationSeconds": 300,
        });
        append(&mut spec["tolerations"], toleration);
    }
    if let Some(node) = pod.node {
        spec["nodeName"] = json!(names::node(node));
    }
}

/// Appends an item to a list, which is created if absent.
fn append(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        absent => *absent = Value::Array(vec![item]),
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    "name": "kube-root-ca.crt",
                }},
                {"downwardAPI": {"items": [{
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    "path": "namespace",
                }]}},
            ],
        },
    })
}

fn status(pod: &Pod, template: &Template, tag: &str) -> Value {
    let mut status = json!({"phase": phase(pod), "qosClass": "Burstable"});
    let Some(node) = pod.node.filter(|_| pod.phase != Phase::Pending) else {
        return status;
    };
    let host = node::address(node);
    let statuses = template.containers.iter().enumerate();
    let statuses: Vec<_> = statuses
        .map(|(i, container)| container_status(i, container, pod, tag))
        .collect();
    status["conditions"] = conditions(pod);
    status["containerStatuses"] = Value::Array(statuses);
    status["hostIP"] = json!(host);
    status["hostIPs"] = json!([{"ip": host}]);
    status["startTime"] = json!(time(pod.accepted));
    if pod.phase != Phase::Creating {
        let address = if template.privileged {
            &host
        } else {
            &pod.address
        };
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{"ip": address}]);
    }
    status
}

fn phase(pod: &Pod) -> &'static str {
    match pod.phase {
        Phase::Pending | Phase::Creating => "Pending",
        Phase::Running | Phase::Crashed => "Running",
        Phase::Succeeded => "Succeeded",
    }
}

fn conditions(pod: &Pod) -> Value {
    let is_ready = pod.phase == Phase::Running;
    let started = pod.phase != Phase::Creating;
    let completed = pod.phase == Phase::Succeeded;
    let condition = |kind: &str, is_true: bool, since: i64| {
        let mut condition = json!({
            "lastProbeTime": null,
            "lastTransitionTime": time(since),
            "observedGeneration": 1,
            "status": if is_true { "True" } else { "False" },
            "type": kind,
        });
        if completed {
            condition["reason"] = json!("PodCompleted");
        } else if !is_true {
            condition["reason"] = json!("ContainersNotReady");
            condition["message"] = json!("containers with unready status");
        }
        condition
    };
    Value::Array(vec![
        condition(
            "PodReadyToStartContainers",
            started && !completed,
            pod.accepted + 1,
        ),
        condition("Initialized", true, pod.accepted),
        condition("Ready", is_ready, pod.phase_entered),
        condition("ContainersReady", is_ready, pod.phase_entered),
        condition("PodScheduled", true, pod.accepted),
    ])
}

/// Returns the id of the newest run of a container.
fn container_id(index: usize, pod: &Pod) -> String {
    let run = pod.restarts;
    format!("containerd://{run:02x}{index:02x}{}", &pod.container[4..])
}

/// Returns the state of the container `id`, and its last state. Only the first container crashes.
fn container_states(id: &str, is_first: bool, container: &Container, pod: &Pod) -> (Value, Value) {
    let ended = |exit_code: i32, reason: &str| {
        json!({"terminated": {
            "containerID": id,
            "exitCode": exit_code,
            "finishedAt": time(pod.phase_entered),
            "reason": reason,
            "startedAt": time(pod.started),
        }})
    };
    let state = match pod.phase {
        Phase::Pending | Phase::Creating => json!({"waiting": {"reason": "ContainerCreating"}}),
        Phase::Succeeded => ended(0, "Completed"),
        Phase::Crashed if is_first => {
            let name = &container.name;
            let message = format!("back-off 10s restarting failed container={name}");
            let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
            return (state, ended(137, "OOMKilled"));
        }
        Phase::Running | Phase::Crashed => json!({"running": {"startedAt": time(pod.started)}}),
    };
    (state, json!({}))
}

fn container_status(index: usize, container: &Container, pod: &Pod, tag: &str) -> Value {
    let is_first = index == 0;
    let is_up = pod.phase == Phase::Running || (pod.phase == Phase::Crashed && !is_first);
    let id = container_id(index, pod);
    let (state, last) = container_states(&id, is_first, container, pod);
    let image = format!("{}:{tag}", container.repository);
    let mut status = json!({"imageID": ""});
    if pod.phase != Phase::Creating {
        let digest = format!("{}@sha256:{}", container.repository, digest(&image));
        status["imageID"] = json!(digest);
        status["containerID"] = json!(id);
        status["allocatedResources"] = requests(container);
        status["user"] = json!({"linux": {"gid": 0, "uid": 65532}});
    }
    status["name"] = json!(container.name);
    status["image"] = json!(image);
    status["lastState"] = last;
    status["ready"] = json!(is_up);
    status["restartCount"] = json!(if is_first { pod.restarts } else { 0 });
    status["started"] = json!(is_up);
    status["state"] = state;
    status
}

fn requests(container: &Container) -> Value {
    json!({
        "cpu": format!("{}m", container.millicores),
        "memory": format!("{}Mi", container.mebibytes),
    })
}

/// Invents an image digest: 64 hexadecimal digits, derived from the image's name with FNV-1a.
fn digest(image: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut digest = String::new();
    for _ in 0..4 {
        for byte in image.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        digest.push_str(&format!("{hash:016x}"));
    }
    digest
}
