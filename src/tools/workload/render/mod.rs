//! Renders records to objects as an API server would return them.

mod batch;
mod controllers;
mod managed_fields;
mod metadata;
mod network;
mod node;
mod pod;
mod pod_template;
mod small;

use serde_json::Value;

use crate::workload::cluster::{Cluster, Id};
use crate::workload::operation::ObjectPath;

impl Cluster {
    /// Renders an object, and returns it with its path; `None` if its record does not exist.
    pub(super) fn render(&self, id: Id) -> Option<(ObjectPath, Value)> {
        let object = match id {
            Id::Namespace(i) => small::namespace(self.namespaces.get(i)?),
            Id::Node(i) => node::node(i, self.nodes.get(i)?),
            Id::Lease(i) => small::lease(self.leases.get(i)?, self),
            Id::ServiceAccount(i) => small::service_account(self.service_accounts.get(i)?),
            Id::ConfigMap(i) => small::config_map(self.config_maps.get(i)?),
            Id::Secret(i) => small::secret(self.secrets.get(i)?),
            Id::Deployment(i) => controllers::deployment(self.deployments.get(i)?),
            Id::ReplicaSet(n) => controllers::replica_set(self.replica_sets.get(&n)?, self)?,
            Id::DaemonSet(i) => controllers::daemon_set(self.daemon_sets.get(i)?),
            Id::CronJob(i) => batch::cron_job(self.cron_jobs.get(i)?),
            Id::Job(n) => batch::job(self.jobs.get(&n)?, self)?,
            Id::Pod(n) => pod::pod(self.pods.get(&n)?, self)?,
            Id::Service(i) => network::service(self.services.get(i)?),
            Id::EndpointSlice(i) => network::endpoint_slice(self.endpoint_slices.get(i)?, self)?,
            Id::Event(n) => small::event(self.events.get(&n)?, self),
        };
        Some((self.target(id)?, object))
    }

    /// Returns the path of an object; `None` if its record does not exist.
    pub(super) fn target(&self, id: Id) -> Option<ObjectPath> {
        let identity = self.identity(id)?;
        let (group, resource) = match id {
            Id::Namespace(_) => ("", "namespaces"),
            Id::Node(_) => ("", "nodes"),
            Id::Lease(_) => ("coordination.k8s.io", "leases"),
            Id::ServiceAccount(_) => ("", "serviceaccounts"),
            Id::ConfigMap(_) => ("", "configmaps"),
            Id::Secret(_) => ("", "secrets"),
            Id::Deployment(_) => ("apps", "deployments"),
            Id::ReplicaSet(_) => ("apps", "replicasets"),
            Id::DaemonSet(_) => ("apps", "daemonsets"),
            Id::CronJob(_) => ("batch", "cronjobs"),
            Id::Job(_) => ("batch", "jobs"),
            Id::Pod(_) => ("", "pods"),
            Id::Service(_) => ("", "services"),
            Id::EndpointSlice(_) => ("discovery.k8s.io", "endpointslices"),
            Id::Event(_) => ("", "events"),
        };
        Some(ObjectPath {
            group,
            version: "v1",
            resource,
            namespace: Some(identity.namespace.clone()).filter(|name| !name.is_empty()),
            name: identity.name.clone(),
        })
    }
}
