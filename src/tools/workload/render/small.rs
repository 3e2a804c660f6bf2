//! Renders namespaces, leases, service accounts, config maps, secrets and Events.

use serde_json::{Value, json};

use crate::workload::clock::{micro_time, time};
use crate::workload::cluster::{Cluster, ConfigMap, Contents, Event, Identity, Lease, Secret};
use crate::workload::render::metadata::Draft;

/// The number of routes in a settings file, one per line.
const SETTINGS: usize = 24;
/// The number of base64 lines in a certificate.
const CERTIFICATE: usize = 16;

pub(super) fn namespace(identity: &Identity) -> Value {
    let mut draft = Draft::new("v1", "Namespace", identity);
    draft.metadata["labels"] = json!({"kubernetes.io/metadata.name": identity.name});
    draft.managed_by("kubectl-create", identity.created);
    draft.object["spec"] = json!({"finalizers": ["kubernetes"]});
    draft.object["status"] = json!({"phase": "Active"});
    draft.finish()
}

pub(super) fn lease(lease: &Lease, cluster: &Cluster) -> Value {
    let mut draft = Draft::new("coordination.k8s.io/v1", "Lease", &lease.identity);
    let mut spec = json!({
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": if lease.node.is_some() { 40 } else { 15 },
        "renewTime": micro_time(lease.renewed),
    });
    let mut manager = lease.identity.name.as_str();
    if let Some(node) = lease.node.and_then(|node| cluster.nodes.get(node)) {
        let Identity { name, uid, .. } = &node.identity;
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
        draft.metadata["ownerReferences"] = json!([owner]);
        manager = "kubelet";
    } else {
        spec["acquireTime"] = json!(micro_time(lease.acquired));
        spec["leaseTransitions"] = json!(3);
    }
    draft.object["spec"] = spec;
    draft.managed_by(manager, lease.identity.written);
    draft.finish()
}

pub(super) fn service_account(identity: &Identity) -> Value {
    Draft::new("v1", "ServiceAccount", identity).finish()
}

pub(super) fn config_map(map: &ConfigMap) -> Value {
    let mut draft = Draft::new("v1", "ConfigMap", &map.identity);
    let (data, manager) = match map.contents {
        Contents::RootCertificate => (json!({"ca.crt": certificate()}), "kube-controller-manager"),
        Contents::Settings => (json!({"settings.yaml": settings(map)}), "helm"),
    };
    draft.object["data"] = data;
    draft.managed_by(manager, map.identity.written);
    draft.finish()
}

/// Returns a text in the form of a certificate. The text is not a real certificate.
fn certificate() -> String {
    let line = "RXhhbXBsZSBvbmx5LCBub3QgYSBjZXJ0aWZpY2F0ZS4g".repeat(2);
    let lines = vec![&line[..64]; CERTIFICATE].join("\n");
    format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
}

fn settings(map: &ConfigMap) -> String {
    let mut text = format!("# {}\nrevision: {}\n", map.identity.name, map.edits + 1);
    for i in 0..SETTINGS {
        let weight = (i * 37 + map.edits as usize * 11) % 100;
        text.push_str(&format!(
            "route-{i:02}: {{weight: {weight}, timeout: {}ms}}\n",
            250 + i * 50
        ));
    }
    text
}

pub(super) fn secret(secret: &Secret) -> Value {
    let mut draft = Draft::new("v1", "Secret", &secret.identity);
    draft.object["data"] = json!({"key": secret.key, "password": secret.password});
    draft.object["type"] = json!("Opaque");
    draft.managed_by("external-secrets", secret.identity.written);
    draft.finish()
}

pub(super) fn event(event: &Event, cluster: &Cluster) -> Value {
    let mut draft = Draft::new("v1", "Event", &event.identity);
    let mut source = json!({"component": event.source});
    if let Some(node) = event.host.and_then(|node| cluster.nodes.get(node)) {
        source["host"] = json!(node.identity.name);
    }
    let at = time(event.identity.created);
    let involved = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "name": event.pod,
        "namespace": event.identity.namespace,
        "uid": event.uid,
    });
    draft.object["count"] = json!(1);
    draft.object["firstTimestamp"] = json!(at);
    draft.object["involvedObject"] = involved;
    draft.object["lastTimestamp"] = json!(at);
    draft.object["message"] = json!(event.message);
    draft.object["reason"] = json!(event.reason);
    draft.object["reportingComponent"] = json!(event.source);
    draft.object["reportingInstance"] = json!("");
    draft.object["source"] = source;
    draft.object["type"] = json!(if event.warning { "Warning" } else { "Normal" });
    draft.managed_by(event.source, event.identity.written);
    draft.finish()
}
