//! Renders deployments, replica sets and daemon sets, and the labels that connect them.

use serde_json::{Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::{Cluster, DaemonSet, Deployment, Job, ReplicaSet, Template};
use crate::workload::render::metadata::Draft;
use crate::workload::render::pod_template::pod_template;

const MANAGER: &str = "kube-controller-manager";
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) fn app_labels(template: &Template) -> Value {
    json!({
        "app": template.app,
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": template.app,
    })
}

pub(super) fn set_labels(deployment: &Deployment, set: &ReplicaSet) -> Value {
    let mut labels = app_labels(&deployment.template);
    labels["pod-template-hash"] = json!(set.hash);
    labels
}

pub(super) fn job_labels(job: &Job) -> Value {
    json!({
        "batch.kubernetes.io/controller-uid": job.identity.uid,
        "batch.kubernetes.io/job-name": job.identity.name,
        "controller-uid": job.identity.uid,
        "job-name": job.identity.name,
    })
}

pub(super) fn deployment(deployment: &Deployment) -> Value {
    let identity = &deployment.identity;
    let template = &deployment.template;
    let mut draft = Draft::new("apps/v1", "Deployment", identity);
    draft.metadata["labels"] = app_labels(template);
    draft.metadata["generation"] = json!(deployment.generation);
    draft.object["spec"] = json!({
        "progressDeadlineSeconds": 600,
        "replicas": deployment.replicas,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": {"app": template.app}},
        "strategy": {
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1},
            "type": "RollingUpdate",
        },
    });
    let pods = pod_template(template, &deployment.tag, app_labels(template));
    draft.object["spec"]["template"] = pods;
    draft.managed_by("helm", identity.created);
    draft.metadata["annotations"] = json!({REVISION: deployment.revision.to_string()});
    draft.status(deployment_status(deployment), MANAGER, identity.written);
    draft.finish()
}

/// Returns the conditions `Available` and `Progressing` of a deployment.
fn conditions(deployment: &Deployment) -> Value {
    let now = &deployment.status;
    let changed = time(now.changed);
    let is_done = now.updated == now.replicas && now.ready == now.replicas;
    let is_available = now.ready + 1 >= now.replicas;
    let (reason, verb) = if is_done {
        ("NewReplicaSetAvailable", "has successfully progressed")
    } else {
        ("ReplicaSetUpdated", "is progressing")
    };
    let (availability, message) = if is_available {
        ("MinimumReplicasAvailable", "has minimum availability")
    } else {
        (
            "MinimumReplicasUnavailable",
            "does not have minimum availability",
        )
    };
    json!([
        {
            "lastTransitionTime": changed,
            "lastUpdateTime": changed,
            "message": format!("Deployment {message}."),
            "reason": availability,
            "status": if is_available { "True" } else { "False" },
            "type": "Available",
        },
        {
            "lastTransitionTime": time(deployment.identity.created),
            "lastUpdateTime": changed,
            "message": format!("ReplicaSet \"{}\" {verb}.", now.set),
            "reason": reason,
            "status": "True",
            "type": "Progressing",
        },
    ])
}

fn deployment_status(deployment: &Deployment) -> Value {
    let now = &deployment.status;
    let mut status = json!({
        "conditions": conditions(deployment),
        "observedGeneration": now.observed,
    });
    put_counts(
        &mut status,
        &[
            ("availableReplicas", now.ready),
            ("readyReplicas", now.ready),
            ("replicas", now.replicas),
            (
                "unavailableReplicas",
                now.replicas - now.ready.min(now.replicas),
            ),
            ("updatedReplicas", now.updated),
        ],
    );
    status
}

/// Adds the counts to a status; omits zeros, like Go's `omitempty`.
fn put_counts(status: &mut Value, counts: &[(&str, usize)]) {
    for (name, count) in counts.iter().filter(|(_, count)| *count > 0) {
        status[name] = json!(count);
    }
}

pub(super) fn replica_set(set: &ReplicaSet, cluster: &Cluster) -> Option<Value> {
    let deployment = cluster.deployments.get(set.deployment)?;
    let template = &deployment.template;
    let labels = set_labels(deployment, set);
    let mut draft = Draft::new("apps/v1", "ReplicaSet", &set.identity);
    draft.metadata["labels"] = labels.clone();
    draft.metadata["generation"] = json!(set.generation);
    draft.metadata["annotations"] = json!({
        "deployment.kubernetes.io/desired-replicas": deployment.usual_replicas.to_string(),
        "deployment.kubernetes.io/max-replicas": (deployment.usual_replicas + 1).to_string(),
        REVISION: set.revision.to_string(),
    });
    draft.owner("apps/v1", "Deployment", &deployment.identity);
    let selector = json!({"app": template.app, "pod-template-hash": set.hash});
    draft.object["spec"] = json!({
        "replicas": set.replicas,
        "selector": {"matchLabels": selector},
    });
    let pods = pod_template(template, &set.tag, labels);
    draft.object["spec"]["template"] = pods;
    draft.managed_by(MANAGER, set.identity.created);
    let mut status = json!({"replicas": set.status.replicas});
    let ready = set.status.ready;
    let total = set.status.replicas;
    put_counts(
        &mut status,
        &[
            ("availableReplicas", ready),
            ("fullyLabeledReplicas", total),
            ("observedGeneration", set.status.observed as usize),
            ("readyReplicas", ready),
        ],
    );
    draft.status(status, MANAGER, set.identity.written);
    Some(draft.finish())
}

pub(super) fn daemon_set(set: &DaemonSet) -> Value {
    let mut draft = Draft::new("apps/v1", "DaemonSet", &set.identity);
    draft.metadata["labels"] = app_labels(&set.template);
    draft.metadata["generation"] = json!(1);
    draft.metadata["annotations"] = json!({"deprecated.daemonset.template.generation": "1"});
    draft.object["spec"] = json!({
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": {"app": set.template.app}},
        "template": pod_template(&set.template, &set.tag, app_labels(&set.template)),
        "updateStrategy": {
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            "type": "RollingUpdate",
        },
    });
    draft.managed_by("kubeadm", set.identity.created);
    let status = json!({
        "currentNumberScheduled": set.pods,
        "desiredNumberScheduled": set.pods,
        "numberAvailable": set.pods,
        "numberMisscheduled": 0,
        "numberReady": set.pods,
        "observedGeneration": 1,
        "updatedNumberScheduled": set.pods,
    });
    draft.status(status, MANAGER, set.identity.written);
    draft.finish()
}
