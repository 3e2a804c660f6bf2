//! The truth: a simulated cluster, and a record of its state at every version.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::api::GroupVersionResource;
use crate::shutdown::Shutdown;
use crate::tools::sim::Simulator;

/// (namespace, name) of every pod that there may be. In storage order the second namespace comes
/// first.
pub(super) const PODS: [(&str, &str); 6] = [
    ("default", "x"),
    ("default", "y"),
    ("default-b", "x"),
    ("default-b", "z"),
    ("kube-system", "x"),
    ("kube-system", "y"),
];
pub(super) const APPS: [&str; 2] = ["web", "db"];
pub(super) const NODES: [&str; 2] = ["n1", "n2"];

/// What a client believes, or what is: objects by `namespace/name`.
pub(super) type View = BTreeMap<String, Arc<Value>>;

/// A version, and the history that it belongs to: another one begins when a backup is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Revision {
    pub(super) history: usize,
    pub(super) version: u64,
}

/// A cluster, its past included.
pub(super) struct Cluster {
    pub(super) simulator: Simulator,
    histories: Vec<History>,
    uids: u32,
}

struct History {
    first: u64,
    /// The state at `first`, and at each version after it.
    states: Vec<View>,
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn config_maps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

pub(super) fn key_of(pod: usize) -> String {
    let (namespace, name) = PODS[pod];
    format!("{namespace}/{name}")
}

// === impl Cluster ===

impl Cluster {
    pub(super) fn new(shutdown: Shutdown) -> Self {
        let simulator = Simulator::new(shutdown);
        let history = History {
            first: simulator.compact().0,
            states: vec![View::new()],
        };
        Self {
            simulator,
            histories: vec![history],
            uids: 0,
        }
    }

    pub(super) fn now(&self) -> Revision {
        let last = self.histories.len() - 1;
        Revision {
            history: last,
            version: self.histories[last].last(),
        }
    }

    /// Where `version` belongs: histories don't overlap, as each begins at half the last one's end.
    pub(super) fn revision_of(&self, version: u64) -> Option<Revision> {
        let has = |history: &History| (history.first..=history.last()).contains(&version);
        let history = self.histories.iter().rposition(has)?;
        Some(Revision { history, version })
    }

    /// The version `behind` versions ago, of the current history.
    pub(super) fn earlier(&self, behind: u64) -> Revision {
        let now = self.now();
        let first = self.histories[now.history].first;
        Revision {
            version: now.version.saturating_sub(behind).max(first),
            ..now
        }
    }

    pub(super) fn state(&self, at: Revision) -> &View {
        let history = &self.histories[at.history];
        let index = usize::try_from(at.version - history.first).expect("small numbers");
        &history.states[index]
    }

    pub(super) fn put(&mut self, pod: usize, app: usize, node: usize) {
        let (namespace, name) = PODS[pod];
        let key = key_of(pod);
        let known = self.state(self.now()).get(&key);
        let uid = known.map(|known| known["metadata"]["uid"].clone());
        let uid = uid.unwrap_or_else(|| {
            self.uids += 1;
            format!("uid-{}", self.uids).into()
        });
        let phase = ["Pending", "Running"][(app + node) % 2];
        let mut object = json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid, "labels": {"app": APPS[app]},
            },
            "spec": {"nodeName": NODES[node]},
            "status": {"phase": phase},
        });
        let put = self.simulator.put(&pods(), Some(namespace), object.clone());
        put.expect("stored");
        let version = self.now().version + 1;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.commit(|state| {
            state.insert(key, Arc::new(object));
        });
    }

    pub(super) fn delete(&mut self, pod: usize) {
        let (namespace, name) = PODS[pod];
        let deleted = self.simulator.delete(&pods(), Some(namespace), name);
        let key = key_of(pod);
        let was_there = self.state(self.now()).contains_key(&key);
        assert_eq!(deleted.is_ok(), was_there, "{key}");
        if was_there {
            self.commit(|state| {
                state.remove(&key);
            });
        }
    }

    /// Something else changes.
    pub(super) fn tick(&mut self) {
        let map = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "m", "namespace": "default", "uid": "m"},
        });
        let put = self.simulator.put(&config_maps(), Some("default"), map);
        put.expect("stored");
        self.commit(|_| {});
    }

    /// A backup is restored: another history begins, at a lower version.
    pub(super) fn restore_backup(&mut self) {
        let version = self.simulator.restore_backup().0;
        let mut state = self.state(self.now()).clone();
        for object in state.values_mut() {
            Arc::make_mut(object)["metadata"]["resourceVersion"] = version.to_string().into();
        }
        self.histories.push(History {
            first: version,
            states: vec![state],
        });
    }

    fn commit(&mut self, change: impl FnOnce(&mut View)) {
        let mut state = self.state(self.now()).clone();
        change(&mut state);
        let history = self.histories.last_mut().expect("there is always one");
        history.states.push(state);
    }
}

impl History {
    fn last(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }
}
