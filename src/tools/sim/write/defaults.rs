//! The few defaults that clients need for a complete display: phases, types, replica counts.

use rand::Rng;
use serde_json::{Map, Value, json};

use crate::sim::kinds::{Kind, custom};

/// Sets the defaults of a new object of `kind`.
pub(crate) fn fill_defaults(kind: &Kind, object: &mut Value) {
    if kind.is_custom {
        return;
    }
    match kind.resource.kind.as_str() {
        "Namespace" => namespace(object),
        "Pod" => {
            set(object, "spec", "restartPolicy", "Always");
            set(object, "spec", "terminationGracePeriodSeconds", 30);
            set(object, "spec", "dnsPolicy", "ClusterFirst");
            set(object, "spec", "schedulerName", "default-scheduler");
            set(object, "status", "phase", "Pending");
            let class = quality_of_service(&object["spec"]);
            set(object, "status", "qosClass", class);
        }
        "EndpointSlice" => add_null(object, &["endpoints", "ports"]),
        "Event" => add_null(object, &["firstTimestamp", "lastTimestamp", "eventTime"]),
        "Secret" if object.get("type").is_none() => object["type"] = "Opaque".into(),
        "Service" => service(object),
        "Deployment" | "ReplicaSet" | "StatefulSet" => {
            set(object, "spec", "replicas", 1);
            if kind.resource.kind == "Deployment" {
                set(
                    object,
                    "spec",
                    "strategy",
                    json!({
                        "type": "RollingUpdate",
                        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
                    }),
                );
                set(object, "spec", "revisionHistoryLimit", 10);
                set(object, "spec", "progressDeadlineSeconds", 600);
            }
            if kind.resource.kind == "StatefulSet" || kind.resource.kind == "ReplicaSet" {
                set(object, "status", "replicas", 0);
            }
            if object.get("status").is_none() {
                object["status"] = json!({});
            }
        }
        "CustomResourceDefinition" => custom::accept(object),
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if let Some(metadata) = object.get_mut("metadata") {
        set(metadata, "labels", "kubernetes.io/metadata.name", name);
    }
    set(object, "spec", "finalizers", json!(["kubernetes"]));
    set(object, "status", "phase", "Active");
}

/// Returns the QoS class of a pod, derived from its containers' requests and limits.
fn quality_of_service(spec: &Value) -> &'static str {
    let all = ["containers", "initContainers"].map(|key| spec[key].as_array());
    let all: Vec<_> = all.into_iter().flatten().flatten().collect();
    let amount = |container: &Value, kind: &str, of: &str| -> Option<Value> {
        container["resources"][kind].get(of).cloned()
    };
    let has_none = |container: &&Value| {
        let kinds = ["requests", "limits"].into_iter();
        let mut all =
            kinds.flat_map(|kind| ["cpu", "memory"].map(|of| amount(container, kind, of)));
        all.all(|amount| amount.is_none())
    };
    let is_guaranteed = |container: &&Value| {
        ["cpu", "memory"].into_iter().all(|of| {
            let limit = amount(container, "limits", of);
            let request = amount(container, "requests", of);
            limit.is_some() && (request.is_none() || request == limit)
        })
    };
    if all.iter().all(has_none) {
        return "BestEffort";
    }
    if all.iter().all(is_guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn service(object: &mut Value) {
    set(object, "spec", "type", "ClusterIP");
    set(object, "spec", "sessionAffinity", "None");
    let kind = object["spec"]["type"].as_str().unwrap_or_default();
    if kind != "ExternalName" {
        let mut random = rand::rng();
        let [a, b] = [random.random_range(0..=255), random.random_range(1..=254)];
        set(object, "spec", "clusterIP", format!("10.96.{a}.{b}"));
    }
    set(object, "status", "loadBalancer", json!({}));
}

/// Adds members as null, because the API server encodes them even if they are empty.
fn add_null(object: &mut Value, keys: &[&str]) {
    if let Some(members) = object.as_object_mut() {
        for key in keys {
            members.entry(*key).or_insert(Value::Null);
        }
    }
}

/// Sets `object.part.key` if it is absent.
fn set(object: &mut Value, part: &str, key: &str, value: impl Into<Value>) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    let part = members.entry(part).or_insert_with(|| Map::new().into());
    if let Some(part) = part.as_object_mut() {
        part.entry(key).or_insert_with(|| value.into());
    }
}
