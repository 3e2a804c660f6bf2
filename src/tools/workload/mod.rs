//! A synthetic cluster, and a stream of changes that looks like life.
//!
//! Pure: it holds records of what is there, and renders an object when one is asked for. The same
//! [`Config`] and the same moments give the same operations, byte for byte. Whoever drives it
//! decides how fast, and puts every object into a store as it stands: `uid`, `generation`,
//! `creationTimestamp` and `managedFields` are set, because owner references and references in
//! endpoint slices must hold; only `resourceVersion` is left to the store.

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

use crate::tools::workload::activity::Activity;
use crate::tools::workload::cluster::Cluster;
use crate::tools::workload::cluster::Id;
use crate::tools::workload::dice::Dice;
pub use crate::tools::workload::operation::ObjectPath;
pub use crate::tools::workload::operation::Operation;

/// Activities (a rollout, a drained node, a job) that go on at once, at least.
const MIN_ACTIVITIES: usize = 3;
/// Pods that allow one activity more.
const PODS_PER_ACTIVITY: usize = 150;
/// Events that are kept, whatever the size of the cluster.
const MAX_EVENTS: usize = 200;

/// What to build.
#[derive(Clone, Debug)]
pub struct Config {
    /// Nodes. With none, pods stay pending.
    pub nodes: usize,
    /// Pods at the start, those of daemon sets and finished jobs included. Later there are a few
    /// more or less.
    pub pods: usize,
    /// What all chance is drawn from.
    pub seed: u64,
    /// The moment of the start; most objects are older, up to forty days.
    pub now: SystemTime,
}

/// A cluster as it stands after the operations given out so far.
pub struct Workload {
    cluster: Cluster,
    dice: Dice,
    activities: Vec<Activity>,
    /// Leases and nodes take turns, so that each is as fresh as in a real cluster.
    next_lease: usize,
    next_node: usize,
}

impl Workload {
    /// Builds the records; no object is rendered yet.
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

    /// Creates what is there now, owners before what they own; to be taken whole before [`churn`].
    ///
    /// An object is rendered when the iterator comes to it.
    ///
    /// [`churn`]: Workload::churn
    pub fn initial(&mut self) -> impl Iterator<Item = Operation> {
        let cluster = &self.cluster;
        let create = |id| cluster.render(id).map(Operation::create);
        cluster.all().into_iter().filter_map(create)
    }

    /// The next change. The stream has no end, and never touches what is gone.
    ///
    /// Time never stands still nor goes back: a `now` that isn't later than the last is taken as
    /// one microsecond after it.
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
            .filter(|i| self.cluster.config_maps[*i].is_settings())
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
        while let Some(step) = self.activities[index].next_step() {
            let operation = perform::perform(step, &mut self.cluster, &mut self.dice);
            if operation.is_some() {
                return operation;
            }
        }
        self.activities.swap_remove(index);
        None
    }
}
