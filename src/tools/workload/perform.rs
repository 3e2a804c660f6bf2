//! Executes the steps of activities: changes the records, and returns the resulting operation.

use crate::workload::activity::Step;
use crate::workload::cluster::{
    Cluster, DeploymentStatus, Endpoint, Id, JobStatus, Owner, Phase, Pod, ReplicaSetStatus,
};
use crate::workload::dice::Dice;
use crate::workload::operation::Operation;
use crate::workload::records;

/// The number of old replica sets that a deployment retains; they have no pods.
pub(super) const HISTORY_LIMIT: usize = 3;
const STATUS: Option<&str> = Some("status");

/// Executes one step. Returns `None` if the step changes no object.
pub(super) fn perform(step: Step, cluster: &mut Cluster, dice: &mut Dice) -> Option<Operation> {
    match step {
        Step::ChangeTemplate(id) => change_template(id, cluster, dice),
        Step::Scale(id, by) => scale(id, by, cluster),
        Step::DeploymentStatus(id) => {
            observe_deployment(id, cluster).then(|| cluster.updated(Id::Deployment(id), STATUS))?
        }
        Step::CreateReplicaSet(id, deployment) => {
            records::new_replica_set(id, deployment, cluster, dice);
            cluster.created(Id::ReplicaSet(id))
        }
        Step::ScaleReplicaSet(id, by) => scale_replica_set(id, by, cluster),
        Step::ReplicaSetStatus(id) => {
            observe_replica_set(id, cluster).then(|| cluster.updated(Id::ReplicaSet(id), STATUS))?
        }
        Step::TrimReplicaSets(deployment) => trim_replica_sets(deployment, cluster),
        Step::CreatePod(id, owner) => {
            records::new_pod(id, owner, cluster, dice);
            cluster.created(Id::Pod(id))
        }
        Step::Bind(id) => bind(id, cluster, dice),
        Step::EnterPhase(id, phase) => enter_phase(id, phase, cluster),
        Step::Terminate(id) => terminate(id, cluster),
        Step::DeletePod(id) => delete_pod(id, cluster),
        Step::EndpointSlice(deployment) => update_slice(deployment, cluster),
        Step::Cordon(node, unschedulable) => {
            cluster.nodes.get_mut(node)?.unschedulable = unschedulable;
            cluster.draining = unschedulable;
            cluster.updated(Id::Node(node), None)
        }
        Step::Schedule(cron_job) => schedule(cron_job, cluster),
        Step::CreateJob(id, cron_job) => create_job(id, cron_job, cluster, dice),
        Step::JobStatus(id, status) => job_status(id, status, cluster),
        Step::DeleteJob(id) => delete_job(id, cluster),
        Step::Event(pod, reason) => {
            let id = cluster.next_id();
            records::new_event(id, pod, reason, cluster, dice);
            cluster.created(Id::Event(id))
        }
        Step::Release(deployment) => {
            cluster.deployments.get_mut(deployment)?.busy = false;
            None
        }
        Step::ReleaseCronJob(cron_job) => {
            cluster.cron_jobs.get_mut(cron_job)?.busy = false;
            None
        }
    }
}

fn change_template(id: usize, cluster: &mut Cluster, dice: &mut Dice) -> Option<Operation> {
    let deployment = cluster.deployments.get_mut(id)?;
    deployment.generation += 1;
    deployment.revision += 1;
    deployment.tag = format!("v2.{}.{}", deployment.revision, dice.below(9));
    cluster.updated(Id::Deployment(id), None)
}

fn scale(id: usize, by: isize, cluster: &mut Cluster) -> Option<Operation> {
    let deployment = cluster.deployments.get_mut(id)?;
    deployment.generation += 1;
    deployment.replicas = deployment.replicas.saturating_add_signed(by);
    cluster.updated(Id::Deployment(id), None)
}

fn scale_replica_set(id: u32, by: isize, cluster: &mut Cluster) -> Option<Operation> {
    let set = cluster.replica_sets.get_mut(&id)?;
    set.generation += 1;
    set.replicas = set.replicas.saturating_add_signed(by);
    cluster.updated(Id::ReplicaSet(id), None)
}

fn trim_replica_sets(deployment: usize, cluster: &mut Cluster) -> Option<Operation> {
    let sets = &mut cluster.deployments.get_mut(deployment)?.sets;
    if sets.len() <= HISTORY_LIMIT + 1 {
        return None;
    }
    let oldest = sets.remove(0);
    let operation = cluster.deleted(Id::ReplicaSet(oldest));
    cluster.replica_sets.remove(&oldest);
    operation
}

fn bind(id: u32, cluster: &mut Cluster, dice: &mut Dice) -> Option<Operation> {
    let node = pick_node(cluster, dice)?;
    cluster.pods.get_mut(&id)?.node = Some(node);
    cluster.updated(Id::Pod(id), None)
}

fn enter_phase(id: u32, phase: Phase, cluster: &mut Cluster) -> Option<Operation> {
    let now = cluster.clock.seconds();
    let node = cluster.pods.get(&id)?.node?;
    if phase == Phase::Creating {
        let address = give_address(cluster, Some(node));
        let pod = cluster.pods.get_mut(&id)?;
        pod.address = address;
        pod.accepted = now;
    }
    let pod = cluster.pods.get_mut(&id)?;
    pod.restarts += u32::from(pod.phase == Phase::Crashed);
    if phase == Phase::Running {
        pod.started = now;
    }
    pod.phase = phase;
    pod.phase_entered = now;
    cluster.updated(Id::Pod(id), STATUS)
}

fn terminate(id: u32, cluster: &mut Cluster) -> Option<Operation> {
    let now = cluster.clock.seconds();
    cluster.pods.get_mut(&id)?.deleting = Some(now);
    cluster.updated(Id::Pod(id), None)
}

fn delete_pod(id: u32, cluster: &mut Cluster) -> Option<Operation> {
    let operation = cluster.deleted(Id::Pod(id));
    let pod = cluster.pods.remove(&id)?;
    match pod.owner {
        Owner::ReplicaSet(set) => {
            let set = cluster.replica_sets.get_mut(&set)?;
            set.pods.retain(|pod| *pod != id);
        }
        Owner::Job(job) => cluster.jobs.get_mut(&job)?.pod = None,
        Owner::DaemonSet(_) => {}
    }
    operation
}

fn update_slice(deployment: usize, cluster: &mut Cluster) -> Option<Operation> {
    let endpoints = endpoints_of(deployment, cluster);
    let at = cluster.deployments.get(deployment)?.slice;
    let slice = cluster.endpoint_slices.get_mut(at)?;
    if slice.endpoints == endpoints {
        return None;
    }
    slice.endpoints = endpoints;
    slice.generation += 1;
    cluster.updated(Id::EndpointSlice(at), None)
}

fn schedule(cron_job: usize, cluster: &mut Cluster) -> Option<Operation> {
    let now = cluster.clock.seconds();
    let record = cluster.cron_jobs.get_mut(cron_job)?;
    // At least one minute later than the last time, because the name of a job contains this minute.
    record.scheduled = (now - now % 60).max(record.scheduled + 60);
    cluster.updated(Id::CronJob(cron_job), STATUS)
}

fn create_job(
    id: u32,
    cron_job: usize,
    cluster: &mut Cluster,
    dice: &mut Dice,
) -> Option<Operation> {
    let scheduled = cluster.cron_jobs.get(cron_job)?.scheduled;
    records::new_job(id, cron_job, scheduled, cluster, dice);
    cluster.created(Id::Job(id))
}

fn job_status(id: u32, status: JobStatus, cluster: &mut Cluster) -> Option<Operation> {
    let now = cluster.clock.seconds();
    let job = cluster.jobs.get_mut(&id)?;
    job.status = status;
    job.completed = now;
    cluster.updated(Id::Job(id), STATUS)
}

fn delete_job(id: u32, cluster: &mut Cluster) -> Option<Operation> {
    let operation = cluster.deleted(Id::Job(id));
    cluster.jobs.remove(&id);
    operation
}

/// Picks a random schedulable node; `None` if there is none.
pub(super) fn pick_node(cluster: &Cluster, dice: &mut Dice) -> Option<usize> {
    let nodes = &cluster.nodes;
    let first = dice.index(nodes.len())?;
    let mut turned = (first..nodes.len()).chain(0..first);
    turned.find(|i| !nodes[*i].unschedulable)
}

/// Returns the next pod address of a node; empty if `node` is `None`.
pub(super) fn give_address(cluster: &mut Cluster, node: Option<usize>) -> String {
    let Some((i, node)) = node.and_then(|i| Some((i, cluster.nodes.get_mut(i)?))) else {
        return String::new();
    };
    node.addresses += 1;
    let last = node.addresses % 250 + 2;
    format!("10.{}.{}.{last}", 100 + i / 256 % 100, i % 256)
}

/// Returns the endpoints that a deployment's endpoint slice should have now.
pub(super) fn endpoints_of(deployment: usize, cluster: &Cluster) -> Vec<Endpoint> {
    let deployment = cluster.deployments.get(deployment).into_iter();
    let sets = deployment.flat_map(|deployment| &deployment.sets);
    let pods = sets
        .filter_map(|set| cluster.replica_sets.get(set))
        .flat_map(|set| &set.pods);
    let endpoint = |pod: &Pod| {
        Some(Endpoint {
            address: Some(pod.address.clone()).filter(|address| !address.is_empty())?,
            node: pod.node?,
            pod: pod.identity.name.clone(),
            uid: pod.identity.uid.clone(),
            ready: pod.is_ready(),
            terminating: pod.deleting.is_some(),
        })
    };
    pods.filter_map(|pod| cluster.pods.get(pod).and_then(endpoint))
        .collect()
}

/// Updates the status of a replica set from its pods. Returns true if the status changed.
pub(super) fn observe_replica_set(id: u32, cluster: &mut Cluster) -> bool {
    let Some(set) = cluster.replica_sets.get_mut(&id) else {
        return false;
    };
    let alive = set.pods.iter().filter_map(|pod| cluster.pods.get(pod));
    let alive = alive.filter(|pod| pod.deleting.is_none());
    let status = ReplicaSetStatus {
        observed: set.generation,
        replicas: alive.clone().count(),
        ready: alive.filter(|pod| pod.is_ready()).count(),
    };
    std::mem::replace(&mut set.status, status.clone()) != status
}

/// Updates the status of a deployment from its replica sets. Returns true if the status changed.
pub(super) fn observe_deployment(id: usize, cluster: &mut Cluster) -> bool {
    let now = cluster.clock.seconds();
    let Some(deployment) = cluster.deployments.get_mut(id) else {
        return false;
    };
    let mut status = DeploymentStatus {
        observed: deployment.generation,
        ..DeploymentStatus::default()
    };
    let sets = deployment.sets.iter();
    for set in sets.filter_map(|set| cluster.replica_sets.get(set)) {
        status.replicas += set.status.replicas;
        status.ready += set.status.ready;
        status.updated = set.status.replicas;
        status.set.clone_from(&set.identity.name);
    }
    status.changed = deployment.status.changed;
    if status == deployment.status {
        return false;
    }
    status.changed = now;
    deployment.status = status;
    true
}
