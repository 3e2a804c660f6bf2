//! Tests of the changes in the cluster.

use std::collections::BTreeMap;
use std::hash::Hasher;

use serde_json::Value;

use super::support::{Store, churn, start, workload};
use crate::workload::{Operation, Workload};

const OPERATIONS: usize = 10_000;

#[test]
fn ten_thousand_changes_fold() {
    let table = [
        (10, 200, OPERATIONS, 1),
        (2, 30, 3_000, 2),
        (0, 10, 2_000, 3),
        (1, 12, 2_000, 4),
        (3, 0, 500, 5),
    ];
    for (nodes, pods, operations, seed) in table {
        let mut workload = workload(nodes, pods, seed);
        let mut store = Store::initial(&mut workload);
        for (i, operation) in churn(&mut workload).take(operations).enumerate() {
            store.fold(operation);
            if i % 50 == 0 {
                pods_are_near_replicas(&store);
            }
        }
        assert_eq!(store.of("nodes").count(), nodes);
        let now = store.of("pods").count();
        assert!(
            now.abs_diff(pods) <= 8 + pods / 20,
            "{now} pods instead of {pods}"
        );
        assert!(store.of("events").count() <= 201);
    }
}

/// Asserts that the number of each deployment's pods differs from its replicas by at most one.
fn pods_are_near_replicas(store: &Store) {
    let mut pods: BTreeMap<String, u64> = BTreeMap::new();
    let set_of = |pod: &Value| pod["metadata"]["ownerReferences"][0]["uid"].to_string();
    for pod in store.of("pods") {
        *pods.entry(set_of(pod)).or_default() += 1;
    }
    let mut of_deployments: BTreeMap<String, u64> = BTreeMap::new();
    for set in store.of("replicasets") {
        let count = pods
            .get(&set["metadata"]["uid"].to_string())
            .copied()
            .unwrap_or(0);
        *of_deployments.entry(set_of(set)).or_default() += count;
    }
    for deployment in store.of("deployments") {
        let count = of_deployments[&deployment["metadata"]["uid"].to_string()];
        let replicas = deployment["spec"]["replicas"].as_u64().unwrap();
        let name = &deployment["metadata"]["name"];
        assert!(
            count.abs_diff(replicas) <= 1,
            "{name}: {count} of {replicas}"
        );
    }
}

#[test]
fn churn_resembles_a_live_cluster() {
    let mut workload = workload(20, 400, 6);
    workload.initial().for_each(drop);
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for operation in churn(&mut workload).take(OPERATIONS) {
        let verb = match &operation {
            Operation::Create { .. } => "create",
            Operation::Update {
                subresource: None, ..
            } => "update",
            Operation::Update { .. } => "status",
            Operation::Delete { .. } => "delete",
        };
        *counts
            .entry((operation.target().resource, verb))
            .or_default() += 1;
    }
    let of = |resource, verb| counts.get(&(resource, verb)).copied().unwrap_or(0);
    assert!(of("leases", "update") > OPERATIONS / 2, "{counts:?}");
    let all = [
        ("nodes", "status"),
        ("nodes", "update"),
        ("pods", "create"),
        ("pods", "update"),
        ("pods", "status"),
        ("pods", "delete"),
        ("deployments", "update"),
        ("deployments", "status"),
        ("replicasets", "create"),
        ("replicasets", "update"),
        ("replicasets", "status"),
        ("replicasets", "delete"),
        ("endpointslices", "update"),
        ("configmaps", "update"),
        ("jobs", "create"),
        ("jobs", "status"),
        ("jobs", "delete"),
        ("cronjobs", "status"),
        ("events", "create"),
        ("events", "delete"),
    ];
    for (resource, verb) in all {
        assert!(
            of(resource, verb) > 0,
            "no {verb} of {resource}: {counts:?}"
        );
    }
}

#[test]
fn endpoints_never_name_a_pod_that_was_deleted_before() {
    let mut workload = workload(10, 150, 9);
    let mut store = Store::initial(&mut workload);
    for operation in churn(&mut workload).take(3_000) {
        let is_slice = operation.target().resource == "endpointslices";
        let target = operation.target().clone();
        store.fold(operation);
        if is_slice {
            let uids: Vec<_> = store
                .of("pods")
                .map(|pod| &pod["metadata"]["uid"])
                .collect();
            for endpoint in store.0[&target]["endpoints"].as_array().unwrap() {
                assert!(uids.contains(&&endpoint["targetRef"]["uid"]), "{endpoint}");
            }
        }
    }
}

#[test]
fn a_seed_determines_the_operations() {
    let hash = |seed| {
        let mut workload = workload(5, 60, seed);
        let mut hash = Fnv::default();
        let initial: Vec<_> = workload.initial().collect();
        initial.iter().for_each(|operation| hash.add(operation));
        churn(&mut workload)
            .take(1_000)
            .for_each(|operation| hash.add(&operation));
        hash.finish()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
    // The hash changes if the objects' shapes change. Then earlier runs cannot be reproduced, and
    // the change log of the release must say so.
    assert_eq!(hash(1), 13_124_968_179_405_422_431);
}

#[test]
fn timestamps_always_advance() {
    let mut workload = workload(2, 10, 1);
    let renewed = |workload: &mut Workload| {
        loop {
            if let Operation::Update { target, object, .. } = workload.churn(start())
                && target.resource == "leases"
            {
                return object["spec"]["renewTime"].to_string();
            }
        }
    };
    let first = renewed(&mut workload);
    assert!(renewed(&mut workload) > first);
}

/// An FNV-1a hasher. The hashes of the standard library may change between its versions.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, operation: &Operation) {
        match operation {
            Operation::Create { target, object } => {
                self.write(format!("create {target:?} {object}").as_bytes());
            }
            Operation::Update {
                target,
                object,
                subresource,
            } => {
                self.write(format!("update {target:?} {subresource:?} {object}").as_bytes());
            }
            Operation::Delete { target } => self.write(format!("delete {target:?}").as_bytes()),
        }
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
