//! The activities in a cluster, such as a rollout, split into steps of one operation each.
//!
//! An activity has exclusive use of the deployments with pods that it changes (`busy`), so the
//! objects are in the planned state when its steps run. Pods are replaced one by one, so the number
//! of a deployment's pods differs from its replicas by at most one.

use std::collections::VecDeque;

use crate::workload::cluster::{Cluster, Deployment, Job, JobStatus, Owner, Phase};
use crate::workload::dice::Dice;

/// The maximum number of pods that one node drain moves.
const MAX_EVICTIONS: usize = 12;
/// About one deployment in this number has one replica more than usual.
const DEPLOYMENTS_PER_SCALED_ONE: usize = 20;

/// A step of an activity, which causes one operation, or none if it changes no object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    ChangeTemplate(usize),
    Scale(usize, isize),
    DeploymentStatus(usize),
    CreateReplicaSet(u32, usize),
    ScaleReplicaSet(u32, isize),
    ReplicaSetStatus(u32),
    /// Deletes a deployment's oldest replica set if there are more than the history limit.
    TrimReplicaSets(usize),
    CreatePod(u32, Owner),
    Bind(u32),
    EnterPhase(u32, Phase),
    Terminate(u32),
    DeletePod(u32),
    EndpointSlice(usize),
    Cordon(usize, bool),
    Schedule(usize),
    CreateJob(u32, usize),
    JobStatus(u32, JobStatus),
    DeleteJob(u32),
    Event(u32, Reason),
    /// Makes the deployment available to the next activity.
    Release(usize),
    ReleaseCronJob(usize),
}

/// The reason of an Event about a pod.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    Scheduled,
    Started,
    Killing,
    Unhealthy,
    BackOff,
}

/// A running activity: the steps that remain.
pub(super) type Activity = VecDeque<Step>;

/// Chooses a random activity, such as a rollout or a node drain, and plans its steps. `None` if the
/// cluster has no object for it.
pub(super) fn start(cluster: &mut Cluster, dice: &mut Dice) -> Option<Activity> {
    let steps = match dice.below(100) {
        0..35 => rollout(cluster, dice)?,
        35..50 => drain(cluster, dice)?,
        50..65 => autoscale(cluster, dice)?,
        65..80 => job(cluster, dice)?,
        _ => crash(cluster, dice)?,
    };
    Some(steps.into())
}

/// Picks a random deployment that is not busy, and marks the deployment busy.
fn take_deployment(cluster: &mut Cluster, dice: &mut Dice) -> Option<usize> {
    let is_free = |i: &usize| !cluster.deployments[*i].busy;
    let free: Vec<usize> = (0..cluster.deployments.len()).filter(is_free).collect();
    let chosen = *dice.pick(&free)?;
    cluster.deployments[chosen].busy = true;
    Some(chosen)
}

fn newest_set(deployment: &Deployment) -> Option<u32> {
    deployment.sets.last().copied()
}

fn rollout(cluster: &mut Cluster, dice: &mut Dice) -> Option<Vec<Step>> {
    let deployment = take_deployment(cluster, dice)?;
    let new = cluster.next_id();
    let old = newest_set(&cluster.deployments[deployment])?;
    let mut steps = vec![
        Step::ChangeTemplate(deployment),
        Step::CreateReplicaSet(new, deployment),
        Step::DeploymentStatus(deployment),
    ];
    for pod in cluster.replica_sets.get(&old)?.pods.clone() {
        steps.push(Step::ScaleReplicaSet(new, 1));
        steps.extend(arrival(cluster, deployment, new));
        steps.push(Step::ScaleReplicaSet(old, -1));
        steps.extend(departure(deployment, old, pod));
    }
    steps.push(Step::TrimReplicaSets(deployment));
    steps.push(Step::Release(deployment));
    Some(steps)
}

/// Returns the steps that create, schedule and start a pod and send traffic to it.
fn arrival(cluster: &mut Cluster, deployment: usize, set: u32) -> Vec<Step> {
    let pod = cluster.next_id();
    let mut steps = vec![Step::CreatePod(pod, Owner::ReplicaSet(set))];
    steps.extend(startup(pod));
    steps.extend([
        Step::EndpointSlice(deployment),
        Step::ReplicaSetStatus(set),
        Step::DeploymentStatus(deployment),
    ]);
    steps
}

fn startup(pod: u32) -> [Step; 5] {
    [
        Step::Bind(pod),
        Step::Event(pod, Reason::Scheduled),
        Step::EnterPhase(pod, Phase::Creating),
        Step::Event(pod, Reason::Started),
        Step::EnterPhase(pod, Phase::Running),
    ]
}

/// Returns the steps that terminate a pod, stop its traffic, and delete it.
fn departure(deployment: usize, set: u32, pod: u32) -> [Step; 6] {
    [
        Step::Terminate(pod),
        Step::Event(pod, Reason::Killing),
        Step::EndpointSlice(deployment),
        Step::DeletePod(pod),
        Step::ReplicaSetStatus(set),
        Step::DeploymentStatus(deployment),
    ]
}

/// Returns the steps that cordon a node, replace deployments' pods on it, and uncordon it.
fn drain(cluster: &mut Cluster, dice: &mut Dice) -> Option<Vec<Step>> {
    if cluster.nodes.len() < 2 || cluster.draining {
        return None;
    }
    let node = dice.index(cluster.nodes.len())?;
    cluster.draining = true;
    let mut steps = vec![Step::Cordon(node, true)];
    let mut taken = Vec::new();
    for (pod, set) in evictable(cluster, node).into_iter().take(MAX_EVICTIONS) {
        let deployment = cluster.replica_sets.get(&set)?.deployment;
        if !taken.contains(&deployment) {
            cluster.deployments[deployment].busy = true;
            taken.push(deployment);
        }
        steps.extend([Step::Terminate(pod), Step::Event(pod, Reason::Killing)]);
        steps.extend(arrival(cluster, deployment, set));
        steps.extend([Step::DeletePod(pod), Step::EndpointSlice(deployment)]);
    }
    steps.push(Step::Cordon(node, false));
    steps.extend(taken.into_iter().map(Step::Release));
    Some(steps)
}

/// Returns the ready pods on a node, with their replica sets. Excludes pods of busy deployments.
fn evictable(cluster: &Cluster, node: usize) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for (id, pod) in &cluster.pods {
        if let Owner::ReplicaSet(set) = pod.owner
            && pod.node == Some(node)
            && pod.is_ready()
            && !cluster.deployments[cluster.replica_sets[&set].deployment].busy
        {
            found.push((*id, set));
        }
    }
    found
}

/// Adds one replica to a deployment. If enough deployments already have an extra replica, removes
/// the extra replica of one of them.
fn autoscale(cluster: &mut Cluster, dice: &mut Dice) -> Option<Vec<Step>> {
    let all = &cluster.deployments;
    let is_over = |i: &usize| all[*i].replicas > all[*i].usual_replicas;
    let over: Vec<usize> = (0..all.len()).filter(is_over).collect();
    if over.len() <= all.len() / DEPLOYMENTS_PER_SCALED_ONE {
        let deployment = take_deployment(cluster, dice)?;
        return Some(scale_steps(deployment, cluster));
    }
    let deployment = *dice.pick(&over)?;
    let record = cluster.deployments.get_mut(deployment)?;
    if std::mem::replace(&mut record.busy, true) {
        return None;
    }
    Some(scale_steps(deployment, cluster))
}

fn scale_steps(deployment: usize, cluster: &mut Cluster) -> Vec<Step> {
    let record = &cluster.deployments[deployment];
    let is_over = record.replicas > record.usual_replicas;
    let mut steps = Vec::new();
    if let Some(set) = newest_set(record) {
        let pods = cluster.replica_sets.get(&set).map(|set| &set.pods);
        let newest = pods.and_then(|pods| pods.last()).copied();
        if let Some(pod) = newest.filter(|_| is_over) {
            steps.extend([Step::Scale(deployment, -1), Step::ScaleReplicaSet(set, -1)]);
            steps.extend(departure(deployment, set, pod));
        } else if !is_over {
            steps.extend([Step::Scale(deployment, 1), Step::ScaleReplicaSet(set, 1)]);
            steps.extend(arrival(cluster, deployment, set));
        }
    }
    steps.push(Step::Release(deployment));
    steps
}

fn job(cluster: &mut Cluster, dice: &mut Dice) -> Option<Vec<Step>> {
    let cron_job = dice.index(cluster.cron_jobs.len())?;
    if cluster.nodes.is_empty() || cluster.cron_jobs[cron_job].busy {
        return None;
    }
    cluster.cron_jobs[cron_job].busy = true;
    let job = cluster.next_id();
    let pod = cluster.next_id();
    let mut steps = vec![
        Step::Schedule(cron_job),
        Step::CreateJob(job, cron_job),
        Step::CreatePod(pod, Owner::Job(job)),
        Step::JobStatus(job, JobStatus::Active),
    ];
    steps.extend(startup(pod));
    steps.push(Step::EnterPhase(pod, Phase::Succeeded));
    steps.push(Step::JobStatus(job, JobStatus::Complete));
    let excess = (cluster.jobs.len() + 1).saturating_sub(cluster.max_jobs);
    let is_done = |job: &(&u32, &Job)| job.1.status == JobStatus::Complete;
    for (old, record) in cluster.jobs.iter().filter(is_done).take(excess) {
        steps.extend(record.pod.map(Step::DeletePod));
        steps.push(Step::DeleteJob(*old));
    }
    steps.push(Step::ReleaseCronJob(cron_job));
    Some(steps)
}

/// Returns the steps that end a container, let it wait, and restart it.
fn crash(cluster: &mut Cluster, dice: &mut Dice) -> Option<Vec<Step>> {
    let deployment = take_deployment(cluster, dice)?;
    let set = newest_set(&cluster.deployments[deployment])?;
    let mut steps = Vec::new();
    let pods = &cluster.replica_sets.get(&set)?.pods;
    if let Some(pod) = dice.pick(pods).copied() {
        steps = vec![
            Step::Event(pod, Reason::Unhealthy),
            Step::EnterPhase(pod, Phase::Crashed),
            Step::EndpointSlice(deployment),
            Step::ReplicaSetStatus(set),
            Step::DeploymentStatus(deployment),
            Step::Event(pod, Reason::BackOff),
            Step::EnterPhase(pod, Phase::Running),
            Step::EndpointSlice(deployment),
            Step::ReplicaSetStatus(set),
            Step::DeploymentStatus(deployment),
        ];
    }
    steps.push(Step::Release(deployment));
    Some(steps)
}
