//! Makes the JSON of Services and EndpointSlices from the simulated workload.

use serde_json::{Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::{Cluster, Endpoint, EndpointSlice, Service};
use crate::workload::names;
use crate::workload::render::metadata::Draft;
use crate::workload::render::node;

pub(super) fn service(service: &Service) -> Value {
    let mut draft = Draft::new("v1", "Service", &service.identity);
    let mut spec = json!({
        "clusterIP": service.address,
        "clusterIPs": [service.address],
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{
            "name": port_name(service),
            "port": service.port,
            "protocol": protocol(service),
            "targetPort": service.target_port,
        }],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    });
    let mut labels = json!({"component": "apiserver", "provider": "kubernetes"});
    if let Some(app) = &service.app {
        spec["selector"] = json!({"app": app});
        labels = json!({"app": app, "app.kubernetes.io/managed-by": "Helm"});
    }
    draft.metadata["labels"] = labels;
    draft.object["spec"] = spec;
    draft.managed_by("helm", service.identity.created);
    draft.object["status"] = json!({"loadBalancer": {}});
    draft.finish()
}

fn port_name(service: &Service) -> &'static str {
    match service.port {
        53 => "dns",
        443 => "https",
        _ => "http",
    }
}

fn protocol(service: &Service) -> &'static str {
    match service.port {
        53 => "UDP",
        _ => "TCP",
    }
}

/// Renders an endpoint slice; `None` if the slice's service does not exist.
pub(super) fn endpoint_slice(slice: &EndpointSlice, cluster: &Cluster) -> Option<Value> {
    let service = cluster.services.get(slice.service)?;
    let mut draft = Draft::new("discovery.k8s.io/v1", "EndpointSlice", &slice.identity);
    let name = &service.identity.name;
    draft.metadata["generateName"] = json!(format!("{name}-"));
    draft.metadata["generation"] = json!(slice.generation);
    draft.metadata["labels"] = json!({
        "app": service.app,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "kubernetes.io/service-name": name,
    });
    let changed =
        json!({"endpoints.kubernetes.io/last-change-trigger-time": time(slice.identity.written)});
    draft.metadata["annotations"] = changed;
    draft.owner("v1", "Service", &service.identity);
    draft.object["addressType"] = json!("IPv4");
    let namespace = &slice.identity.namespace;
    let endpoints = slice.endpoints.iter().map(|one| endpoint(one, namespace));
    draft.object["endpoints"] = Value::Array(endpoints.collect());
    let port = json!({
        "name": port_name(service),
        "port": service.target_port,
        "protocol": protocol(service),
    });
    draft.object["ports"] = json!([port]);
    draft.managed_by("kube-controller-manager", slice.identity.written);
    Some(draft.finish())
}

fn endpoint(endpoint: &Endpoint, namespace: &str) -> Value {
    json!({
        "addresses": [endpoint.address],
        "conditions": {
            "ready": endpoint.ready,
            "serving": endpoint.ready || endpoint.terminating,
            "terminating": endpoint.terminating,
        },
        "nodeName": names::node(endpoint.node),
        "targetRef": {
            "kind": "Pod",
            "name": endpoint.pod,
            "namespace": namespace,
            "uid": endpoint.uid,
        },
        "zone": node::zone(endpoint.node),
    })
}
