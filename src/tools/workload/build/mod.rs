//! Builds the initial cluster: its objects, their numbers and their ages.

mod apps;
mod system;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::workload::clock::Clock;
use crate::workload::cluster::{Cluster, ConfigMap, Contents, Identity, Lease, Node, Secret};
use crate::workload::dice::Dice;
use crate::workload::{Config, activity, names, records};

const DAY: i64 = 86_400;
const MICROS: i64 = 1_000_000;
/// The age of the cluster, in seconds.
const AGE: i64 = 40 * DAY;
const PODS_PER_TENANT: usize = 90;
const EVENTS: usize = 20;
const KUBE_SYSTEM: &str = "kube-system";

/// Builds all records of the initial cluster.
pub(super) fn cluster(config: &Config, dice: &mut Dice) -> Cluster {
    let mut builder = Builder {
        cluster: Cluster {
            clock: Clock::new(config.now),
            ..Cluster::default()
        },
        dice,
    };
    builder.nodes(config.nodes);
    let tenants = builder.namespaces(config.pods);
    builder.control_plane();
    let mut left = config.pods - builder.daemon_sets(config);
    if left >= 8 {
        left -= builder.dns();
    }
    left -= builder.finished_jobs(&tenants, left);
    builder.deployments(&tenants, left);
    builder.slices();
    builder.events();
    builder.cluster
}

struct Builder<'a> {
    cluster: Cluster,
    dice: &'a mut Dice,
}

impl Builder<'_> {
    fn now(&self) -> i64 {
        self.cluster.clock.seconds()
    }

    fn identity(&mut self, namespace: &str, name: impl Into<String>, age: i64) -> Identity {
        let created = self.now() - age;
        Identity {
            namespace: namespace.to_owned(),
            name: name.into(),
            uid: self.dice.uid(),
            created,
            written: created + self.dice.between(0, age.min(60)),
        }
    }

    fn nodes(&mut self, count: usize) {
        for index in 0..count {
            let age = self.dice.between(AGE / 2, AGE);
            let name = names::node(index);
            let identity = self.identity("", &name, age);
            let heartbeat = self.now() - self.dice.between(1, 280);
            self.cluster.nodes.push(Node {
                identity,
                machine: self.dice.hex(2),
                unschedulable: false,
                heartbeat,
                addresses: 0,
            });
            self.lease("kube-node-lease", &name, name.clone(), Some(index));
        }
    }

    fn lease(&mut self, namespace: &str, name: &str, holder: String, node: Option<usize>) {
        let age = self.dice.between(AGE / 4, AGE / 2);
        let identity = self.identity(namespace, name, age);
        let now = self.cluster.clock.micros();
        self.cluster.leases.push(Lease {
            acquired: identity.created * MICROS + self.dice.between(0, MICROS - 1),
            renewed: now - self.dice.between(1, 9 * MICROS),
            identity,
            holder,
            node,
        });
    }

    /// Adds all namespaces, and returns the names of the tenants' namespaces.
    fn namespaces(&mut self, pods: usize) -> Vec<String> {
        let count = (pods / PODS_PER_TENANT).max(2);
        let tenants: Vec<_> = (0..count).map(|i| numbered(&names::TENANTS, i)).collect();
        let system = names::SYSTEM_NAMESPACES.map(str::to_owned);
        for name in system.iter().chain(&tenants) {
            let identity = self.identity("", name, AGE);
            self.cluster.namespaces.push(identity);
            self.account(name, "default");
            self.config_map(name, "kube-root-ca.crt", Contents::RootCertificate);
        }
        tenants
    }

    fn account(&mut self, namespace: &str, name: &str) {
        let identity = self.identity(namespace, name, AGE);
        self.cluster.service_accounts.push(identity);
    }

    fn config_map(&mut self, namespace: &str, name: &str, contents: Contents) {
        let age = self.dice.between(AGE / 2, AGE);
        let identity = self.identity(namespace, name, age);
        self.cluster.config_maps.push(ConfigMap {
            identity,
            contents,
            edits: 0,
        });
    }

    fn secret(&mut self, namespace: &str, name: &str) {
        let age = self.dice.between(AGE / 2, AGE);
        let identity = self.identity(namespace, name, age);
        let password = STANDARD.encode(self.dice.hex(2));
        let key = STANDARD.encode(self.dice.bytes(900));
        self.cluster.secrets.push(Secret {
            identity,
            password,
            key,
        });
    }

    fn control_plane(&mut self) {
        for name in ["kube-controller-manager", "kube-scheduler"] {
            let holder = format!("control-plane-0_{}", self.dice.uid());
            self.lease(KUBE_SYSTEM, name, holder, None);
        }
        self.service("default", "kubernetes", None, (443, 6443), "10.96.0.1");
    }

    fn events(&mut self) {
        let pods: Vec<u32> = self.cluster.pods.keys().copied().collect();
        for _ in 0..EVENTS.min(pods.len()) {
            if let Some(pod) = self.dice.pick(&pods) {
                let id = self.cluster.next_id();
                let reason = activity::Reason::Unhealthy;
                records::new_event(id, *pod, reason, &mut self.cluster, self.dice);
            }
        }
    }
}

/// Returns the word for `index`. After all words have been used once, a number is appended.
fn numbered(words: &[&str], index: usize) -> String {
    let word = words[index % words.len()];
    match index / words.len() {
        0 => word.to_owned(),
        round => format!("{word}-{}", round + 1),
    }
}
