//! Creates records as Kubernetes controllers create objects.

use crate::workload::activity::Reason;
use crate::workload::cluster::{
    Cluster, Event, Id, Identity, Job, JobStatus, Owner, Phase, Pod, ReplicaSet, ReplicaSetStatus,
};
use crate::workload::dice::Dice;

fn new_identity(namespace: &str, name: String, cluster: &Cluster, dice: &mut Dice) -> Identity {
    Identity {
        namespace: namespace.to_owned(),
        name,
        uid: dice.uid(),
        created: cluster.clock.seconds(),
        written: cluster.clock.seconds(),
    }
}

/// Adds a replica set without pods for the current template of a deployment.
pub(super) fn new_replica_set(id: u32, deployment: usize, cluster: &mut Cluster, dice: &mut Dice) {
    let Some(owner) = cluster.deployments.get(deployment) else {
        return;
    };
    let hash = dice.suffix(10);
    let name = format!("{}-{hash}", owner.identity.name);
    let identity = new_identity(&owner.identity.namespace, name, cluster, dice);
    let set = ReplicaSet {
        identity,
        deployment,
        hash,
        tag: owner.tag.clone(),
        revision: owner.revision,
        replicas: 0,
        generation: 1,
        pods: Vec::new(),
        status: ReplicaSetStatus::default(),
    };
    cluster.replica_sets.insert(id, set);
    cluster.deployments[deployment].sets.push(id);
}

/// Adds a job that is due at `scheduled`. Its name ends with this minute, as in names that the cron
/// job controller gives.
pub(super) fn new_job(
    id: u32,
    cron_job: usize,
    scheduled: i64,
    cluster: &mut Cluster,
    dice: &mut Dice,
) {
    let Some(owner) = cluster.cron_jobs.get(cron_job) else {
        return;
    };
    let of = &owner.identity;
    let name = format!("{}-{}", of.name, scheduled / 60);
    let identity = new_identity(&of.namespace, name, cluster, dice);
    let job = Job {
        identity,
        cron_job,
        status: JobStatus::New,
        completed: 0,
        pod: None,
    };
    cluster.jobs.insert(id, job);
}

/// Adds a pending pod to the cluster and to its owner. Returns `None` if the owner does not exist.
pub(super) fn new_pod(id: u32, owner: Owner, cluster: &mut Cluster, dice: &mut Dice) -> Option<()> {
    let of = owner_of(owner, cluster)?;
    let name = format!("{}-{}", of.name, dice.suffix(5));
    let identity = new_identity(&of.namespace, name, cluster, dice);
    let pod = Pod {
        identity,
        owner,
        node: None,
        address: String::new(),
        phase: Phase::Pending,
        accepted: 0,
        started: 0,
        phase_entered: 0,
        restarts: 0,
        deleting: None,
        suffix: dice.suffix(5),
        container: dice.hex(4),
    };
    cluster.pods.insert(id, pod);
    match owner {
        Owner::ReplicaSet(set) => cluster.replica_sets.get_mut(&set)?.pods.push(id),
        Owner::Job(job) => cluster.jobs.get_mut(&job)?.pod = Some(id),
        Owner::DaemonSet(_) => {}
    }
    Some(())
}

fn owner_of(owner: Owner, cluster: &Cluster) -> Option<Identity> {
    let id = match owner {
        Owner::ReplicaSet(set) => Id::ReplicaSet(set),
        Owner::DaemonSet(set) => Id::DaemonSet(set),
        Owner::Job(job) => Id::Job(job),
    };
    cluster.identity(id).cloned()
}

/// Adds an Event about a pod; does nothing if the pod does not exist.
pub(super) fn new_event(id: u32, pod: u32, reason: Reason, cluster: &mut Cluster, dice: &mut Dice) {
    let Some(of) = cluster.pods.get(&pod) else {
        return;
    };
    let Identity {
        namespace,
        name,
        uid,
        ..
    } = of.identity.clone();
    let node = of.node.and_then(|i| cluster.nodes.get(i));
    let node = node.map_or("", |node| node.identity.name.as_str());
    let (reason, source, message) = match reason {
        Reason::Scheduled => (
            "Scheduled",
            "default-scheduler",
            format!("Successfully assigned {namespace}/{name} to {node}"),
        ),
        Reason::Started => ("Started", "kubelet", "Container started".to_owned()),
        Reason::Killing => ("Killing", "kubelet", "Stopping container".to_owned()),
        Reason::Unhealthy => (
            "Unhealthy",
            "kubelet",
            "Readiness probe failed: HTTP probe failed with statuscode: 503".to_owned(),
        ),
        Reason::BackOff => (
            "BackOff",
            "kubelet",
            format!("Back-off restarting failed container in pod {name}_{namespace}({uid})"),
        ),
    };
    let host = of.node.filter(|_| source == "kubelet");
    let event = Event {
        identity: new_identity(&namespace, format!("{name}.{}", dice.hex(1)), cluster, dice),
        pod: name,
        uid,
        source,
        host,
        warning: matches!(reason, "Unhealthy" | "BackOff"),
        reason,
        message,
    };
    cluster.events.insert(id, event);
}
