//! Builds pods, and their owners other than deployments: daemon sets and jobs.

use crate::workload::build::{AGE, Builder, DAY, KUBE_SYSTEM};
use crate::workload::cluster::{Contents, CronJob, DaemonSet, JobStatus, Owner, Phase, Template};
use crate::workload::{Config, names, perform, records};

const PODS_PER_FINISHED_JOB: usize = 80;
const PROXY: &str = "kube-proxy";
const AGENT: &str = "node-agent";

impl Builder<'_> {
    /// Adds up to two daemon sets with at most half of all pods, and returns the number of their
    /// pods.
    pub(super) fn daemon_sets(&mut self, config: &Config) -> usize {
        let sets = (config.pods / 2) / config.nodes.max(1);
        let mut pods = 0;
        for name in [PROXY, AGENT].into_iter().take(sets) {
            self.account(KUBE_SYSTEM, name);
            self.config_map(KUBE_SYSTEM, name, Contents::Settings);
            let identity = self.identity(KUBE_SYSTEM, name, AGE);
            let template = self.template(KUBE_SYSTEM, name);
            let hash = self.dice.suffix(10);
            self.cluster.daemon_sets.push(DaemonSet {
                identity,
                template: Template {
                    privileged: true,
                    secret: None,
                    config_map: Some(name.to_owned()),
                    ..template
                },
                hash,
                tag: "v1.36.1".to_owned(),
                pods: config.nodes,
            });
            for node in 0..config.nodes {
                let owner = Owner::DaemonSet(self.cluster.daemon_sets.len() - 1);
                self.pod(owner, Some(node), Phase::Running);
            }
            pods += config.nodes;
        }
        pods
    }

    pub(super) fn pod(&mut self, owner: Owner, node: Option<usize>, phase: Phase) {
        let id = self.cluster.next_id();
        records::new_pod(id, owner, &mut self.cluster, self.dice);
        let age = match owner {
            Owner::DaemonSet(_) => self.dice.between(DAY, AGE / 2),
            Owner::ReplicaSet(set) => {
                let made = self.cluster.replica_sets[&set].identity.created;
                self.dice.between(600, (self.now() - made).max(600))
            }
            Owner::Job(job) => self.now() - self.cluster.jobs[&job].identity.created,
        };
        let created = self.now() - age;
        let node = node.or_else(|| perform::pick_node(&self.cluster, self.dice));
        let address = perform::give_address(&mut self.cluster, node);
        let restarts = match self.dice.below(20) {
            0 if phase == Phase::Running => self.dice.between(1, 4),
            _ => 0,
        };
        let Some(pod) = self.cluster.pods.get_mut(&id) else {
            return;
        };
        pod.identity.created = created;
        pod.identity.written = created + 9;
        pod.node = node;
        if node.is_some() {
            pod.address = address;
            pod.phase = phase;
            pod.restarts = restarts as u32;
            pod.accepted = created;
            pod.started = created + self.dice.between(2, 8);
            pod.phase_entered = pod.started + 1;
        }
    }

    /// Adds cron jobs and their finished jobs, and returns the number of the jobs' pods.
    pub(super) fn finished_jobs(&mut self, tenants: &[String], left: usize) -> usize {
        let count = left / PODS_PER_FINISHED_JOB;
        for (i, tenant) in tenants.iter().enumerate() {
            let name = names::CRON_JOBS[i % names::CRON_JOBS.len()];
            let age = self.dice.between(AGE / 2, AGE);
            let identity = self.identity(tenant, name, age);
            let template = self.template(tenant, name);
            let scheduled = self.now() - self.now() % 600;
            self.cluster.cron_jobs.push(CronJob {
                identity,
                template: Template {
                    once: true,
                    account: "default".to_owned(),
                    config_map: None,
                    secret: None,
                    ..template
                },
                tag: format!("v1.{}.0", self.dice.below(9)),
                scheduled,
                busy: false,
            });
        }
        for i in 0..count {
            self.finished_job(i % tenants.len(), count - i);
        }
        self.cluster.max_jobs = count + 2;
        count
    }

    pub(super) fn finished_job(&mut self, cron_job: usize, runs_ago: usize) {
        let id = self.cluster.next_id();
        let scheduled = self.cluster.cron_jobs[cron_job].scheduled - 600 * runs_ago as i64;
        records::new_job(id, cron_job, scheduled, &mut self.cluster, self.dice);
        let has_nodes = !self.cluster.nodes.is_empty();
        if let Some(job) = self.cluster.jobs.get_mut(&id) {
            job.identity.created = scheduled;
            job.identity.written = scheduled + 40;
            job.completed = scheduled + 40;
            job.status = JobStatus::Active;
            // Without nodes, the pod of the job cannot have run.
            if has_nodes {
                job.status = JobStatus::Complete;
            }
        }
        self.pod(Owner::Job(id), None, Phase::Succeeded);
    }
}
