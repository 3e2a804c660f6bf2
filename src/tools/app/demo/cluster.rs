//! The changes of the demo's cluster, and the comparison of the cluster with
//! what the clients' watches show.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use kubefan_core::api::{GroupVersionResource, ObjectKey, ResourceVersion};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::agents::{Agents, Fingerprint, Watched};
use crate::sim::Simulator;
use crate::workload::{Operation, Workload};

/// How often due changes are made. Timers have a resolution of one millisecond, so a fast churn
/// makes several changes per tick.
const TICK: Duration = Duration::from_millis(20);
/// The time from one comparison to the next.
const ROUND: Duration = Duration::from_secs(2);
/// The time without changes before a comparison, so that events in flight do not count as missing.
const STILL: Duration = Duration::from_millis(500);

/// How many watches show exactly the objects of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// Watches that show exactly the objects that the cluster has and that they select.
    pub current: usize,
    /// All watches of the simulated clients.
    pub all: usize,
}

/// The cluster that the simulated API server serves.
pub(super) struct Cluster {
    pub(super) simulator: Simulator,
    pub(super) workload: Workload,
    /// Changes per second.
    pub(super) churn: u32,
    pub(super) agents: Agents,
    pub(super) views: watch::Sender<Views>,
}

impl Cluster {
    /// Makes changes, and compares every other second; never returns.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut due, mut changed, mut compared) = (0.0, Instant::now(), Instant::now());
        loop {
            ticks.tick().await;
            let passed = changed.elapsed().min(ROUND);
            changed = Instant::now();
            due += f64::from(self.churn) * passed.as_secs_f64();
            let since = compared.elapsed();
            if since >= ROUND {
                self.views.send_replace(self.compare());
                compared = Instant::now();
            } else if since < ROUND.saturating_sub(STILL) {
                while due >= 1.0 {
                    due -= 1.0;
                    apply(&self.simulator, self.workload.churn(SystemTime::now()));
                }
            }
        }
    }

    fn compare(&self) -> Views {
        let mut expected: HashMap<&Watched, Option<Fingerprint>> = HashMap::new();
        let mut views = Views::default();
        for (watched, shown) in self.agents.views() {
            let expected = expected.entry(watched).or_insert_with(|| {
                let objects = self
                    .simulator
                    .versions(&watched.gvr, &watched.field_selector);
                let versions = |objects: Vec<(ObjectKey, ResourceVersion)>| {
                    objects.into_iter().map(|(_, version)| version.0)
                };
                objects
                    .ok()
                    .map(|objects| Fingerprint::of(versions(objects)))
            });
            views.all += 1;
            views.current += usize::from(*expected == Some(shown));
        }
        views
    }
}

pub(super) fn apply(simulator: &Simulator, operation: Operation) {
    let target = operation.target().clone();
    let gvr = GroupVersionResource::new(target.group, target.version, target.resource);
    let namespace = target.namespace.as_deref();
    let done = match operation {
        Operation::Create { object, .. } | Operation::Update { object, .. } => {
            simulator.put(&gvr, namespace, object)
        }
        Operation::Delete { .. } => simulator.delete(&gvr, namespace, &target.name),
    };
    if let Err(status) = done {
        // A user of the demo may have deleted the object.
        tracing::debug!(%gvr, name = target.name, reason = status.message, "change failed");
    }
}
