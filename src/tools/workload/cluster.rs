//! The records of what is in the cluster. Objects are rendered from them, so they are small.
//!
//! What an object's status says is recorded apart from what its spec says, because one operation
//! changes only one of them.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use crate::tools::workload::clock::Clock;
use crate::tools::workload::operation::Operation;

/// One object of the cluster.
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

/// What every object has. Times are seconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) created: i64,
    /// When it was last written.
    pub(super) written: i64,
}

pub(super) struct Node {
    pub(super) identity: Identity,
    pub(super) machine: String,
    pub(super) unschedulable: bool,
    pub(super) heartbeat: i64,
    /// Addresses given to pods so far.
    pub(super) addresses: usize,
}

pub(super) struct Lease {
    pub(super) identity: Identity,
    pub(super) holder: String,
    /// Microseconds.
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

impl ConfigMap {
    pub(super) fn is_settings(&self) -> bool {
        matches!(self.contents, Contents::Settings)
    }
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
    /// How many it had at the start; autoscaling comes back to it.
    pub(super) usual_replicas: usize,
    pub(super) generation: u32,
    pub(super) revision: u32,
    pub(super) tag: String,
    /// Oldest first.
    pub(super) sets: Vec<u32>,
    pub(super) slice: usize,
    /// An activity is at work on its pods, and no other may start.
    pub(super) busy: bool,
    pub(super) status: DeploymentStatus,
}

#[derive(Default, PartialEq, Eq)]
pub(super) struct DeploymentStatus {
    pub(super) observed: u32,
    pub(super) replicas: usize,
    pub(super) updated: usize,
    pub(super) ready: usize,
    /// The replica set that its condition speaks of.
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
    /// A job of it runs.
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

/// How far a pod has come, as its status tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nobody has looked at it.
    Pending,
    /// Its node pulls and starts.
    Creating,
    /// All containers are ready.
    Running,
    /// The first container has ended, and waits to be started again.
    Crashed,
    /// Its job is done.
    Succeeded,
}

pub(super) struct Pod {
    pub(super) identity: Identity,
    pub(super) owner: Owner,
    pub(super) node: Option<usize>,
    pub(super) address: String,
    pub(super) phase: Phase,
    /// When the node took it.
    pub(super) taken: i64,
    /// When its containers last started.
    pub(super) started: i64,
    /// When it came to its phase.
    pub(super) since: i64,
    pub(super) restarts: u32,
    pub(super) deleting: Option<i64>,
    /// Names the volume of its token.
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

/// Everything there is.
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
    /// Jobs beyond this number are deleted, oldest first.
    pub(super) max_jobs: usize,
    pub(super) pods: BTreeMap<u32, Pod>,
    pub(super) services: Vec<Service>,
    pub(super) endpoint_slices: Vec<EndpointSlice>,
    /// A node is being emptied, and no other may be.
    pub(super) draining: bool,
    /// Oldest first.
    pub(super) events: VecDeque<(u32, Event)>,
    /// The last number given to a replica set, job, pod or event.
    pub(super) last_id: u32,
}

impl Cluster {
    /// A number for a replica set, job, pod or event.
    pub(super) fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Every object, owners before what they own.
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
        all.extend(self.events.iter().map(|(id, _)| Id::Event(*id)));
        all
    }

    /// The operation that tells a record's change; none if the record is gone.
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

    /// The operation that tells a new record.
    pub(super) fn created(&self, id: Id) -> Option<Operation> {
        self.render(id).map(Operation::create)
    }

    /// The operation that tells that a record goes; the caller removes it.
    pub(super) fn deleted(&self, id: Id) -> Option<Operation> {
        let target = self.target(id)?;
        Some(Operation::Delete { target })
    }

    /// Deletes the oldest event.
    pub(super) fn expire_event(&mut self) -> Option<Operation> {
        let oldest = self.events.front()?.0;
        let operation = self.deleted(Id::Event(oldest));
        self.events.pop_front();
        operation
    }

    pub(super) fn event(&self, id: u32) -> Option<&Event> {
        let at = self.events.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.events.get(at).map(|(_, event)| event)
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
            Id::Event(n) => &self.event(n)?.identity,
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
            // Never written again.
            Id::Namespace(_)
            | Id::ServiceAccount(_)
            | Id::Secret(_)
            | Id::DaemonSet(_)
            | Id::Service(_)
            | Id::Event(_) => return None,
        })
    }
}
