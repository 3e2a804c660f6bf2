//! A synthetic cluster, and an endless stream of changes that resembles a live cluster.
//!
//! A [`Workload`] has no I/O and no clock. It stores small records, and renders an object
//! only when an operation needs it. Workloads with equal [`Config`]s and equal times produce
//! equal operations, byte for byte. The caller decides how fast to take operations, and
//! stores every object unchanged: `uid`, `generation`, `creationTimestamp` and
//! `managedFields` are already set, because owner references and endpoint slices refer to
//! them. The store sets only `resourceVersion`.

mod activity;
mod build;
mod clock;
mod cluster;
mod dice;
mod names;
mod operation;
mod perform;
mod records;
mod render;

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use crate::workload::activity::Activity;
use crate::workload::cluster::{Cluster, Contents, Id};
use crate::workload::dice::Dice;
pub use crate::workload::operation::{ObjectPath, Operation};

/// The number of concurrent activities (such as a rollout, a node drain or a job) in the smallest
/// cluster.
const MIN_ACTIVITIES: usize = 3;
/// One more concurrent activity is allowed for this number of pods.
const PODS_PER_ACTIVITY: usize = 150;
/// The number of Events to retain, in clusters of any size.
const MAX_EVENTS: usize = 200;

/// The size and the seed of a synthetic cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of nodes. Without nodes, all pods stay pending.
    pub nodes: usize,
    /// The number of pods at the start, including pods of daemon sets and finished jobs. Later the
    /// number varies a little.
    pub pods: usize,
    /// The seed of all random choices.
    pub seed: u64,
    /// The time at the start. Most objects are older than this, up to forty days.
    pub now: SystemTime,
}

/// The state of the synthetic cluster after all operations returned so far.
pub struct Workload {
    cluster: Cluster,
    dice: Dice,
    activities: Vec<Activity>,
    /// The index of the lease to renew next. Leases take turns, so that none becomes stale.
    next_lease: usize,
    next_node: usize,
}

impl Workload {
    /// Builds the records of the cluster, without rendering objects.
    pub fn new(config: Config) -> Self {
        let mut dice = Dice::new(config.seed);
        let cluster = build::cluster(&config, &mut dice);
        Self {
            cluster,
            dice,
            activities: Vec::new(),
            next_lease: 0,
            next_node: 0,
        }
    }

    /// Creates all objects of the cluster, owners before their dependents. The caller must consume
    /// all items of the iterator before it calls [`churn`].
    ///
    /// Each object is rendered only when the iterator reaches it.
    ///
    /// [`churn`]: Workload::churn
    pub fn initial(&mut self) -> impl Iterator<Item = Operation> {
        let cluster = &self.cluster;
        let all = cluster.all().into_iter();
        all.filter_map(|id| cluster.created(id))
    }

    /// Returns the next change. There is always one, and it never refers to a deleted object.
    ///
    /// The workload's time always advances: if `now` is not later than the last time, the last time
    /// plus one microsecond is used.
    pub fn churn(&mut self, now: SystemTime) -> Operation {
        self.cluster.clock.advance(now);
        if self.cluster.events.len() > MAX_EVENTS
            && let Some(expired) = self.cluster.expire_event()
        {
            return expired;
        }
        let drawn = match self.dice.below(100) {
            0..60 => None,
            60..63 => self.heartbeat(),
            63..65 => self.edit_config_map(),
            _ => self.advance_activity(),
        };
        drawn.unwrap_or_else(|| self.renew_lease())
    }

    fn renew_lease(&mut self) -> Operation {
        let index = self.next_lease % self.cluster.leases.len();
        self.next_lease = index + 1;
        self.cluster.leases[index].renewed = self.cluster.clock.micros();
        let lease = self.cluster.updated(Id::Lease(index), None);
        lease.expect("leases are never deleted")
    }

    fn heartbeat(&mut self) -> Option<Operation> {
        let index = self.next_node % self.cluster.nodes.len().max(1);
        let now = self.cluster.clock.seconds();
        let node = self.cluster.nodes.get_mut(index)?;
        if node.heartbeat == now {
            return None;
        }
        node.heartbeat = now;
        self.next_node = index + 1;
        self.cluster.updated(Id::Node(index), Some("status"))
    }

    fn edit_config_map(&mut self) -> Option<Operation> {
        let editable: Vec<usize> = (0..self.cluster.config_maps.len())
            .filter(|i| matches!(self.cluster.config_maps[*i].contents, Contents::Settings))
            .collect();
        let chosen = *self.dice.pick(&editable)?;
        self.cluster.config_maps[chosen].edits += 1;
        self.cluster.updated(Id::ConfigMap(chosen), None)
    }

    fn advance_activity(&mut self) -> Option<Operation> {
        let wanted = MIN_ACTIVITIES + self.cluster.pods.len() / PODS_PER_ACTIVITY;
        if self.activities.len() < wanted {
            let started = activity::start(&mut self.cluster, &mut self.dice);
            self.activities.extend(started);
        }
        let index = self.dice.index(self.activities.len())?;
        while let Some(step) = self.activities[index].pop_front() {
            let operation = perform::perform(step, &mut self.cluster, &mut self.dice);
            if operation.is_some() {
                return operation;
            }
        }
        self.activities.swap_remove(index);
        None
    }
}
