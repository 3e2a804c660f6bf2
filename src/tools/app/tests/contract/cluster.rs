//! The simulated cluster, with a record of the state of its pods at every resource version. The
//! tests compare with this record what clients receive.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubefan_core::api::GroupVersionResource;
use kubefan_core::shutdown::Shutdown;
use serde_json::{Value, json};

use crate::sim::Simulator;

/// The namespace and name of every pod that a scenario may create. In the API server's storage
/// order (by `namespace/name`) the pods of `default-b` precede those of `default`.
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

/// Objects by `namespace/name`: the state of the cluster, or the state that a client has seen.
pub(super) type View = BTreeMap<String, Arc<Value>>;

/// A resource version and the history that it belongs to. Restoring a backup starts a new history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Revision {
    pub(super) history: usize,
    pub(super) version: u64,
}

/// The simulated cluster and its recorded past.
pub(super) struct Cluster {
    pub(super) simulator: Simulator,
    histories: Vec<History>,
    uids: u32,
}

struct History {
    first: u64,
    /// The states at `first` and at each following version.
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

    /// Finds the history of `version`; `None` if no history has it. A new history begins at half of
    /// the version that the one before reached, so they normally do not overlap; if they do, the
    /// newest one is returned.
    pub(super) fn revision_of(&self, version: u64) -> Option<Revision> {
        let has = |history: &History| (history.first..=history.last()).contains(&version);
        let history = self.histories.iter().rposition(has)?;
        Some(Revision { history, version })
    }

    /// Returns the revision `behind` versions before the current one, but
    /// not before the current history.
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
        let index = usize::try_from(at.version - history.first).expect("versions are small");
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

    /// Changes an object of another resource: the version grows, and the pods do not change.
    pub(super) fn tick(&mut self) {
        let map = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "m", "namespace": "default", "uid": "m"},
        });
        let put = self.simulator.put(&config_maps(), Some("default"), map);
        put.expect("stored");
        self.commit(|_| {});
    }

    /// Restores a backup: a new history begins at half the current version, with the present pods.
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
