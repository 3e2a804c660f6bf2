//! Builds the deployments and the objects that belong to them.

use std::collections::BTreeMap;

use crate::workload::build::{AGE, Builder, DAY, KUBE_SYSTEM, numbered};
use crate::workload::cluster::{
    Container, Contents, Deployment, DeploymentStatus, EndpointSlice, Owner, Phase, Service,
    Template,
};
use crate::workload::{names, perform, records};

/// The numbers of replicas to pick each deployment's number from.
const REPLICAS: [usize; 12] = [1, 2, 2, 2, 3, 3, 3, 4, 5, 6, 8, 12];

impl Builder<'_> {
    /// Adds the cluster's DNS, and returns the number of its pods.
    pub(super) fn dns(&mut self) -> usize {
        self.deployment(KUBE_SYSTEM, "coredns", 2);
        let address = "10.96.0.10";
        self.service(
            KUBE_SYSTEM,
            "kube-dns",
            Some("coredns"),
            (53, 8080),
            address,
        );
        2
    }

    pub(super) fn deployments(&mut self, tenants: &[String], mut left: usize) {
        let mut made = 0;
        while left > 0 {
            let drawn = self.dice.pick(&REPLICAS).copied().unwrap_or(1);
            let replicas = drawn.min(left);
            let name = numbered(&names::APPS, made / tenants.len());
            let tenant = &tenants[made % tenants.len()];
            self.deployment(tenant, &name, replicas);
            let address = format!(
                "10.{}.{}.{}",
                97 + made / 50_000,
                made / 200 % 250,
                made % 200 + 1
            );
            self.service(tenant, &name, Some(&name), (80, 8080), &address);
            left -= replicas;
            made += 1;
        }
    }

    pub(super) fn deployment(&mut self, namespace: &str, name: &str, replicas: usize) {
        self.account(namespace, name);
        self.config_map(namespace, &format!("{name}-settings"), Contents::Settings);
        self.secret(namespace, &format!("{name}-credentials"));
        let age = self.dice.between(AGE / 2, AGE);
        let identity = self.identity(namespace, name, age);
        let template = self.template(namespace, name);
        let revision = self.dice.between(1, 30) as u32;
        let deployment = self.cluster.deployments.len();
        self.cluster.deployments.push(Deployment {
            identity,
            template,
            replicas,
            usual_replicas: replicas,
            generation: revision,
            revision,
            tag: format!("v2.{}.{}", revision, self.dice.below(9)),
            sets: Vec::new(),
            slice: usize::MAX,
            busy: false,
            status: DeploymentStatus::default(),
        });
        for ago in (1..=self.old_replica_sets(revision)).rev() {
            self.old_replica_set(deployment, ago);
        }
        self.replica_set(deployment, replicas);
    }

    /// Picks a deployment's number of old replica sets: none for most, a full history for some.
    pub(super) fn old_replica_sets(&mut self, revision: u32) -> u32 {
        match self.dice.below(4) {
            0 => (revision - 1).min(perform::HISTORY_LIMIT as u32),
            _ => 0,
        }
    }

    pub(super) fn old_replica_set(&mut self, deployment: usize, ago: u32) {
        let id = self.cluster.next_id();
        records::new_replica_set(id, deployment, &mut self.cluster, self.dice);
        let created = self.now() - AGE / 4 - i64::from(ago) * DAY;
        if let Some(set) = self.cluster.replica_sets.get_mut(&id) {
            set.identity.created = created;
            set.identity.written = created + DAY;
            set.revision -= ago;
            set.tag = format!("v2.{}.0", set.revision);
        }
        perform::observe_replica_set(id, &mut self.cluster);
    }

    pub(super) fn replica_set(&mut self, deployment: usize, replicas: usize) {
        let id = self.cluster.next_id();
        records::new_replica_set(id, deployment, &mut self.cluster, self.dice);
        let age = self.dice.between(3_600, AGE / 4);
        let created = self.now() - age;
        if let Some(set) = self.cluster.replica_sets.get_mut(&id) {
            set.identity.created = created;
            set.identity.written = created + 30;
            set.replicas = replicas;
        }
        for _ in 0..replicas {
            self.pod(Owner::ReplicaSet(id), None, Phase::Running);
        }
        perform::observe_replica_set(id, &mut self.cluster);
        perform::observe_deployment(deployment, &mut self.cluster);
        let deployment = &mut self.cluster.deployments[deployment];
        deployment.identity.written = created + 31;
        deployment.status.changed = created + 31;
    }

    pub(super) fn template(&mut self, namespace: &str, app: &str) -> Template {
        let has_sidecar = self.dice.below(7) == 0;
        let variables = self.dice.between(2, if has_sidecar { 4 } else { 8 });
        let mut containers = vec![self.container(namespace, app, variables as usize)];
        if has_sidecar {
            containers.push(self.container(namespace, "proxy", 1));
        }
        Template {
            app: app.to_owned(),
            containers,
            account: app.to_owned(),
            config_map: Some(format!("{app}-settings")),
            secret: Some(format!("{app}-credentials")),
            privileged: false,
            once: false,
        }
    }

    pub(super) fn container(&mut self, namespace: &str, name: &str, variables: usize) -> Container {
        let first = self.dice.index(names::ENVIRONMENT.len()).unwrap_or(0);
        let fill = |(key, value): &(&str, &str)| {
            let value = value
                .replace("{app}", name)
                .replace("{namespace}", namespace);
            ((*key).to_owned(), value)
        };
        let turned = names::ENVIRONMENT.iter().cycle().skip(first);
        Container {
            name: name.to_owned(),
            repository: format!("registry.example.com/{namespace}/{name}"),
            port: if name == "proxy" { 15001 } else { 8080 },
            environment: turned.take(variables).map(fill).collect(),
            // Never an integral number of cores or gibibytes, because Kubernetes
            // uses other units for them.
            millicores: 50 * self.dice.between(1, 19) as u32,
            mebibytes: 64 * self.dice.between(1, 15) as u32,
        }
    }

    pub(super) fn service(
        &mut self,
        namespace: &str,
        name: &str,
        app: Option<&str>,
        (port, target_port): (u16, u16),
        address: &str,
    ) {
        let identity = self.identity(namespace, name, AGE / 2);
        self.cluster.services.push(Service {
            identity,
            app: app.map(str::to_owned),
            port,
            target_port,
            address: address.to_owned(),
        });
    }

    /// Adds one endpoint slice for each service that selects a deployment.
    pub(super) fn slices(&mut self) {
        let mut deployments = BTreeMap::new();
        for (i, deployment) in self.cluster.deployments.iter().enumerate() {
            let of = deployment.identity.clone();
            deployments.insert((of.namespace, of.name), i);
        }
        for service in 0..self.cluster.services.len() {
            let Service { identity, app, .. } = &self.cluster.services[service];
            let Some(app) = app else { continue };
            let key = (identity.namespace.clone(), app.clone());
            let Some(deployment) = deployments.get(&key).copied() else {
                continue;
            };
            let name = format!("{}-{}", identity.name, self.dice.suffix(5));
            let identity = self.identity(&key.0, name, AGE / 2);
            self.cluster.deployments[deployment].slice = self.cluster.endpoint_slices.len();
            self.cluster.endpoint_slices.push(EndpointSlice {
                identity,
                service,
                generation: 1,
                endpoints: perform::endpoints_of(deployment, &self.cluster),
            });
        }
    }
}
