//! The records of the cluster's objects. They are small, because objects are rendered from them.
//!
//! The data of an object's status is recorded apart from the data of its spec, because an operation
//! changes only one of them.

use std::collections::BTreeMap;

use crate::workload::clock::Clock;
use crate::workload::operation::Operation;

/// The identifier of an object: its index in the vector of its kind, or the number of a replica
/// set, job, pod or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Namespace(usize),
    Node(usize),
    Lease(usize),
    ServiceAccount(usize),
    ConfigMap(usize),
    Secret(usize),
    Deployment(usize),
    ReplicaSet(u32),
    DaemonSet(usize),
    CronJob(usize),
    Job(u32),
    Pod(u32),
    Service(usize),
    EndpointSlice(usize),
    Event(u32),
}

/// The data that every object has. Times are in seconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) created: i64,
    /// The time when the object was last written.
    pub(super) written: i64,
}

pub(super) struct Node {
    pub(super) identity: Identity,
    pub(super) machine: String,
    pub(super) unschedulable: bool,
    pub(super) heartbeat: i64,
    /// The number of addresses that the node has given to pods so far.
    pub(super) addresses: usize,
}

pub(super) struct Lease {
    pub(super) identity: Identity,
    pub(super) holder: String,
    /// The time of acquisition in microseconds since 1970, like `renewed`.
    pub(super) acquired: i64,
    pub(super) renewed: i64,
    pub(super) node: Option<usize>,
}

pub(super) enum Contents {
    RootCertificate,
    Settings,
}

pub(super) struct ConfigMap {
    pub(super) identity: Identity,
    pub(super) contents: Contents,
    pub(super) edits: u32,
}

pub(super) struct Secret {
    pub(super) identity: Identity,
    pub(super) password: String,
    pub(super) key: String,
}

pub(super) struct Container {
    pub(super) name: String,
    pub(super) repository: String,
    pub(super) port: u16,
    pub(super) environment: Vec<(String, String)>,
    pub(super) millicores: u32,
    pub(super) mebibytes: u32,
}

pub(super) struct Template {
    pub(super) app: String,
    pub(super) containers: Vec<Container>,
    pub(super) account: String,
    pub(super) config_map: Option<String>,
    pub(super) secret: Option<String>,
    pub(super) privileged: bool,
    pub(super) once: bool,
}

pub(super) struct Deployment {
    pub(super) identity: Identity,
    pub(super) template: Template,
    pub(super) replicas: usize,
    /// The number of replicas at the start; autoscaling returns to it.
    pub(super) usual_replicas: usize,
    pub(super) generation: u32,
    pub(super) revision: u32,
    pub(super) tag: String,
    /// The numbers of the deployment's replica sets, oldest first.
    pub(super) sets: Vec<u32>,
    pub(super) slice: usize,
    /// True while an activity changes the deployment's pods; no other activity may use it then.
    pub(super) busy: bool,
    pub(super) status: DeploymentStatus,
}

#[derive(Default, PartialEq, Eq)]
pub(super) struct DeploymentStatus {
    pub(super) observed: u32,
    pub(super) replicas: usize,
    pub(super) updated: usize,
    pub(super) ready: usize,
    /// The name of the replica set that the status condition mentions.
    pub(super) set: String,
    pub(super) changed: i64,
}

pub(super) struct ReplicaSet {
    pub(super) identity: Identity,
    pub(super) deployment: usize,
    pub(super) hash: String,
    pub(super) tag: String,
    pub(super) revision: u32,
    pub(super) replicas: usize,
    pub(super) generation: u32,
    pub(super) pods: Vec<u32>,
    pub(super) status: ReplicaSetStatus,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct ReplicaSetStatus {
    pub(super) observed: u32,
    pub(super) replicas: usize,
    pub(super) ready: usize,
}

pub(super) struct DaemonSet {
    pub(super) identity: Identity,
    pub(super) template: Template,
    pub(super) hash: String,
    pub(super) tag: String,
    pub(super) pods: usize,
}

pub(super) struct CronJob {
    pub(super) identity: Identity,
    pub(super) template: Template,
    pub(super) tag: String,
    pub(super) scheduled: i64,
    /// True while a job of this cron job runs.
    pub(super) busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JobStatus {
    New,
    Active,
    Complete,
}

pub(super) struct Job {
    pub(super) identity: Identity,
    pub(super) cron_job: usize,
    pub(super) status: JobStatus,
    pub(super) completed: i64,
    pub(super) pod: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    ReplicaSet(u32),
    DaemonSet(usize),
    Job(u32),
}

/// The phase of a pod's life that its status shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// The pod is not scheduled, or its node has not started it yet.
    Pending,
    /// The node pulls the images and starts the containers.
    Creating,
    /// All containers of the pod are ready.
    Running,
    /// The first container has ended and waits for its restart.
    Crashed,
    /// The pod's job is complete.
    Succeeded,
}

pub(super) struct Pod {
    pub(super) identity: Identity,
    pub(super) owner: Owner,
    pub(super) node: Option<usize>,
    pub(super) address: String,
    pub(super) phase: Phase,
    /// The time when the node accepted the pod.
    pub(super) accepted: i64,
    /// The time when the pod's containers last started.
    pub(super) started: i64,
    /// The time when the pod entered its current phase.
    pub(super) phase_entered: i64,
    pub(super) restarts: u32,
    pub(super) deleting: Option<i64>,
    /// The random suffix in the name of the pod's token volume.
    pub(super) suffix: String,
    pub(super) container: String,
}

impl Pod {
    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.deleting.is_none()
    }
}

pub(super) struct Service {
    pub(super) identity: Identity,
    pub(super) app: Option<String>,
    pub(super) port: u16,
    pub(super) target_port: u16,
    pub(super) address: String,
}

pub(super) struct EndpointSlice {
    pub(super) identity: Identity,
    pub(super) service: usize,
    pub(super) generation: u32,
    pub(super) endpoints: Vec<Endpoint>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) address: String,
    pub(super) node: usize,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) ready: bool,
    pub(super) terminating: bool,
}

pub(super) struct Event {
    pub(super) identity: Identity,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) source: &'static str,
    pub(super) host: Option<usize>,
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The records of all objects of the cluster.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) clock: Clock,
    pub(super) namespaces: Vec<Identity>,
    pub(super) nodes: Vec<Node>,
    pub(super) leases: Vec<Lease>,
    pub(super) service_accounts: Vec<Identity>,
    pub(super) config_maps: Vec<ConfigMap>,
    pub(super) secrets: Vec<Secret>,
    pub(super) deployments: Vec<Deployment>,
    pub(super) replica_sets: BTreeMap<u32, ReplicaSet>,
    pub(super) daemon_sets: Vec<DaemonSet>,
    pub(super) cron_jobs: Vec<CronJob>,
    pub(super) jobs: BTreeMap<u32, Job>,
    /// The number of jobs to retain; excess complete jobs are deleted, oldest first.
    pub(super) max_jobs: usize,
    pub(super) pods: BTreeMap<u32, Pod>,
    pub(super) services: Vec<Service>,
    pub(super) endpoint_slices: Vec<EndpointSlice>,
    /// True while a node is drained; no other node may be drained then.
    pub(super) draining: bool,
    /// The Events with their numbers, oldest first.
    pub(super) events: BTreeMap<u32, Event>,
    /// The last number that was given to a replica set, job, pod or event.
    pub(super) last_id: u32,
}

impl Cluster {
    /// Returns a new number for a replica set, job, pod or event.
    pub(super) fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Returns the identifiers of all objects, owners before their dependents.
    pub(super) fn all(&self) -> Vec<Id> {
        let mut all = Vec::new();
        all.extend((0..self.namespaces.len()).map(Id::Namespace));
        all.extend((0..self.nodes.len()).map(Id::Node));
        all.extend((0..self.leases.len()).map(Id::Lease));
        all.extend((0..self.service_accounts.len()).map(Id::ServiceAccount));
        all.extend((0..self.config_maps.len()).map(Id::ConfigMap));
        all.extend((0..self.secrets.len()).map(Id::Secret));
        all.extend((0..self.services.len()).map(Id::Service));
        all.extend((0..self.daemon_sets.len()).map(Id::DaemonSet));
        all.extend((0..self.deployments.len()).map(Id::Deployment));
        all.extend(self.replica_sets.keys().copied().map(Id::ReplicaSet));
        all.extend((0..self.cron_jobs.len()).map(Id::CronJob));
        all.extend(self.jobs.keys().copied().map(Id::Job));
        all.extend(self.pods.keys().copied().map(Id::Pod));
        all.extend((0..self.endpoint_slices.len()).map(Id::EndpointSlice));
        all.extend(self.events.keys().copied().map(Id::Event));
        all
    }

    /// Returns the operation that updates the object of a changed record; `None`
    /// if the record does not exist.
    pub(super) fn updated(
        &mut self,
        id: Id,
        subresource: Option<&'static str>,
    ) -> Option<Operation> {
        let now = self.clock.seconds();
        self.identity_mut(id)?.written = now;
        let (target, object) = self.render(id)?;
        Some(Operation::Update {
            target,
            object,
            subresource,
        })
    }

    /// Returns the operation that creates the object of a new record.
    pub(super) fn created(&self, id: Id) -> Option<Operation> {
        let (target, object) = self.render(id)?;
        Some(Operation::Create { target, object })
    }

    /// Returns the operation that deletes the object of a record. The
    /// caller must remove the record.
    pub(super) fn deleted(&self, id: Id) -> Option<Operation> {
        let target = self.target(id)?;
        Some(Operation::Delete { target })
    }

    /// Removes the oldest Event, and returns the operation that deletes it.
    pub(super) fn expire_event(&mut self) -> Option<Operation> {
        let oldest = *self.events.first_key_value()?.0;
        let operation = self.deleted(Id::Event(oldest));
        self.events.remove(&oldest);
        operation
    }

    pub(super) fn identity(&self, id: Id) -> Option<&Identity> {
        Some(match id {
            Id::Namespace(i) => self.namespaces.get(i)?,
            Id::Node(i) => &self.nodes.get(i)?.identity,
            Id::Lease(i) => &self.leases.get(i)?.identity,
            Id::ServiceAccount(i) => self.service_accounts.get(i)?,
            Id::ConfigMap(i) => &self.config_maps.get(i)?.identity,
            Id::Secret(i) => &self.secrets.get(i)?.identity,
            Id::Deployment(i) => &self.deployments.get(i)?.identity,
            Id::ReplicaSet(n) => &self.replica_sets.get(&n)?.identity,
            Id::DaemonSet(i) => &self.daemon_sets.get(i)?.identity,
            Id::CronJob(i) => &self.cron_jobs.get(i)?.identity,
            Id::Job(n) => &self.jobs.get(&n)?.identity,
            Id::Pod(n) => &self.pods.get(&n)?.identity,
            Id::Service(i) => &self.services.get(i)?.identity,
            Id::EndpointSlice(i) => &self.endpoint_slices.get(i)?.identity,
            Id::Event(n) => &self.events.get(&n)?.identity,
        })
    }

    fn identity_mut(&mut self, id: Id) -> Option<&mut Identity> {
        Some(match id {
            Id::Node(i) => &mut self.nodes.get_mut(i)?.identity,
            Id::Lease(i) => &mut self.leases.get_mut(i)?.identity,
            Id::ConfigMap(i) => &mut self.config_maps.get_mut(i)?.identity,
            Id::Deployment(i) => &mut self.deployments.get_mut(i)?.identity,
            Id::ReplicaSet(n) => &mut self.replica_sets.get_mut(&n)?.identity,
            Id::CronJob(i) => &mut self.cron_jobs.get_mut(i)?.identity,
            Id::Job(n) => &mut self.jobs.get_mut(&n)?.identity,
            Id::Pod(n) => &mut self.pods.get_mut(&n)?.identity,
            Id::EndpointSlice(i) => &mut self.endpoint_slices.get_mut(i)?.identity,
            // Objects of these kinds are never updated.
            Id::Namespace(_)
            | Id::ServiceAccount(_)
            | Id::Secret(_)
            | Id::DaemonSet(_)
            | Id::Service(_)
            | Id::Event(_) => return None,
        })
    }
}
