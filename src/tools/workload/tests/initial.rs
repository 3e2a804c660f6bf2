//! Tests of the initial cluster.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::support::{Store, churn, workload};
use crate::workload::Operation;

const KIB: usize = 1024;

#[test]
fn counts_match_the_configuration() {
    for (nodes, pods) in [
        (50, 1_000),
        (3, 10),
        (1, 1),
        (0, 20),
        (5, 0),
        (0, 0),
        (100, 50),
        (1, 300),
    ] {
        let store = Store::initial(&mut workload(nodes, pods, 1));
        assert_eq!(store.of("nodes").count(), nodes, "{nodes} {pods}");
        assert_eq!(store.of("pods").count(), pods, "{nodes} {pods}");
        assert_eq!(store.of("leases").count(), nodes + 2, "{nodes} {pods}");
    }
}

#[test]
fn every_kind_is_created() {
    let store = Store::initial(&mut workload(50, 1_000, 1));
    let kinds = [
        ("namespaces", 10),
        ("deployments", 150),
        ("replicasets", 150),
        ("daemonsets", 2),
        ("services", 150),
        ("endpointslices", 150),
        ("configmaps", 150),
        ("secrets", 150),
        ("serviceaccounts", 150),
        ("jobs", 8),
        ("cronjobs", 8),
        ("events", 10),
    ];
    for (resource, least) in kinds {
        let count = store.of(resource).count();
        assert!(count >= least, "{count} {resource}");
    }
}

#[test]
fn pods_are_of_real_size() {
    let store = Store::initial(&mut workload(50, 1_000, 1));
    let mut sizes: Vec<_> = store.of("pods").map(|pod| pod.to_string().len()).collect();
    sizes.sort_unstable();
    let median = sizes[sizes.len() / 2];
    assert!(
        (6 * KIB..12 * KIB).contains(&sizes[0]),
        "smallest {}",
        sizes[0]
    );
    assert!((7_500..9_000).contains(&median), "median {median}");
    let largest = sizes[sizes.len() - 1];
    assert!(largest <= 12 * KIB, "largest {largest}");
}

#[test]
fn referenced_objects_are_created_first() {
    let mut seen = std::collections::BTreeSet::new();
    let mut namespaces = std::collections::BTreeSet::new();
    for operation in workload(10, 200, 3).initial() {
        let Operation::Create { target, object } = operation else {
            panic!("not a create: {operation:?}");
        };
        let metadata = &object["metadata"];
        for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
            assert!(
                seen.contains(&owner["uid"].to_string()),
                "{owner} of {target:?}"
            );
        }
        if let Some(namespace) = &target.namespace {
            assert!(namespaces.contains(namespace), "{target:?}");
        }
        if target.resource == "namespaces" {
            namespaces.insert(target.name.clone());
        }
        assert!(
            seen.insert(metadata["uid"].to_string()),
            "uid twice: {target:?}"
        );
    }
}

#[test]
fn endpoints_are_the_ready_pods() {
    let store = Store::initial(&mut workload(10, 200, 3));
    let mut endpoints = 0;
    for slice in store.of("endpointslices") {
        for endpoint in slice["endpoints"].as_array().unwrap() {
            let reference = &endpoint["targetRef"];
            let pod = store
                .of("pods")
                .find(|pod| pod["metadata"]["uid"] == reference["uid"]);
            let pod = pod.expect("the pod of an endpoint exists");
            assert_eq!(endpoint["addresses"][0], pod["status"]["podIP"]);
            assert_eq!(endpoint["nodeName"], pod["spec"]["nodeName"]);
            endpoints += 1;
        }
    }
    let replicas = store
        .of("deployments")
        .map(|one| one["spec"]["replicas"].as_u64().unwrap());
    assert_eq!(endpoints, replicas.sum::<u64>());
}

/// Checks that every object survives a round trip through the Rust type of its
/// kind, so no field is misspelt.
#[test]
fn every_object_parses_as_its_kubernetes_type() {
    let mut workload = workload(5, 120, 7);
    let initial: Vec<_> = workload.initial().collect();
    let later = churn(&mut workload).take(2_000);
    for operation in initial.into_iter().chain(later) {
        let resource = operation.target().resource;
        if let Operation::Create { object, .. } | Operation::Update { object, .. } = operation {
            round_trip(resource, &object);
        }
    }
}

fn round_trip(resource: &str, object: &Value) {
    let check = match resource {
        "namespaces" => through::<Namespace>,
        "nodes" => through::<Node>,
        "leases" => through::<Lease>,
        "serviceaccounts" => through::<ServiceAccount>,
        "configmaps" => through::<ConfigMap>,
        "secrets" => through::<Secret>,
        "services" => through::<Service>,
        "daemonsets" => through::<DaemonSet>,
        "deployments" => through::<Deployment>,
        "replicasets" => through::<ReplicaSet>,
        "cronjobs" => through::<CronJob>,
        "jobs" => through::<Job>,
        "pods" => through::<Pod>,
        "endpointslices" => through::<EndpointSlice>,
        "events" => through::<Event>,
        other => panic!("no such resource: {other}"),
    };
    let mut known = object.clone();
    // Go encodes null members of conditions, and the crate `k8s_openapi` omits them.
    let conditions = known.pointer_mut("/status/conditions");
    for condition in conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let members = condition.as_object_mut().unwrap();
        members.retain(|_, value| !value.is_null());
    }
    pretty_eq(&check(object), &known);
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone())
        .unwrap_or_else(|error| panic!("{error}: {object:#}"));
    serde_json::to_value(typed).unwrap()
}

fn pretty_eq(left: &Value, right: &Value) {
    assert!(left == right, "{left:#}\n\nis not\n\n{right:#}");
}

#[test]
fn a_thousand_pods_come_with_their_related_objects() {
    let count = workload(50, 1_000, 1).initial().count();
    assert!(count > 2_000, "{count}");
}
