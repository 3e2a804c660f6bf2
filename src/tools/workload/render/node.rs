//! Renders nodes.

use serde_json::{Value, json};

use crate::workload::clock::time;
use crate::workload::cluster::Node;
use crate::workload::names;
use crate::workload::render::metadata::Draft;

const ZONES: [&str; 3] = ["eu-north-1a", "eu-north-1b", "eu-north-1c"];
/// The number of container images in a node's status.
const IMAGES: usize = 24;
/// A condition per line: its type, status, reason and message.
const CONDITIONS: &str = "\
MemoryPressure False KubeletHasSufficientMemory kubelet has sufficient memory available
DiskPressure False KubeletHasNoDiskPressure kubelet has no disk pressure
PIDPressure False KubeletHasSufficientPID kubelet has sufficient PID available
Ready True KubeletReady kubelet is posting ready status
";

pub(super) fn zone(index: usize) -> &'static str {
    ZONES[index % ZONES.len()]
}

pub(super) fn address(index: usize) -> String {
    format!("172.18.{}.{}", index / 250, index % 250 + 2)
}

fn pod_cidr(index: usize) -> String {
    format!("10.{}.{}.0/24", 100 + index / 256 % 100, index % 256)
}

pub(super) fn node(index: usize, node: &Node) -> Value {
    let mut draft = Draft::new("v1", "Node", &node.identity);
    let name = &node.identity.name;
    draft.metadata["labels"] = json!({
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "standard-16",
        "topology.kubernetes.io/region": "eu-north-1",
        "topology.kubernetes.io/zone": zone(index),
    });
    draft.metadata["annotations"] = json!({
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    draft.object["spec"] = spec(index, node);
    draft.managed_by("kubelet", node.identity.created);
    draft.status(status(index, node), "kubelet", node.identity.written);
    draft.finish()
}

fn spec(index: usize, node: &Node) -> Value {
    let cidr = pod_cidr(index);
    let provider = format!("example://{}/{}", zone(index), node.identity.name);
    let mut spec = json!({"podCIDR": cidr, "podCIDRs": [cidr], "providerID": provider});
    if node.unschedulable {
        spec["unschedulable"] = json!(true);
        let taint = json!({
            "effect": "NoSchedule",
            "key": "node.kubernetes.io/unschedulable",
        });
        spec["taints"] = json!([taint]);
    }
    spec
}

fn status(index: usize, node: &Node) -> Value {
    let mut status = json!({
        "addresses": [
            {"address": address(index), "type": "InternalIP"},
            {"address": node.identity.name, "type": "Hostname"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": node.identity.uid,
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.41",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.1",
            "machineID": node.machine,
            "operatingSystem": "linux",
            "osImage": "Debian GNU/Linux 13 (trixie)",
            "systemUUID": node.identity.uid,
        },
    });
    status["allocatable"] = resources("15890m", "60", "109");
    status["capacity"] = resources("16", "64", "110");
    status["conditions"] = conditions(node);
    status["images"] = Value::Array(images(index));
    status
}

fn resources(cpu: &str, gibibytes: &str, pods: &str) -> Value {
    json!({
        "cpu": cpu,
        "ephemeral-storage": "203056560Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": format!("{gibibytes}Gi"),
        "pods": pods,
    })
}

fn conditions(node: &Node) -> Value {
    let condition = |row: &str| {
        let mut cells = row.splitn(4, ' ');
        let mut cell = || cells.next().unwrap_or_default();
        let (kind, status, reason, message) = (cell(), cell(), cell(), cell());
        json!({
            "lastHeartbeatTime": time(node.heartbeat),
            "lastTransitionTime": time(node.identity.created + 20),
            "message": message,
            "reason": reason,
            "status": status,
            "type": kind,
        })
    };
    CONDITIONS.lines().map(condition).collect()
}

fn images(index: usize) -> Vec<Value> {
    let image = |i: usize| {
        let app = names::APPS[(index + i) % names::APPS.len()];
        let tenant = names::TENANTS[(index * 7 + i) % names::TENANTS.len()];
        let size = 18_000_000 + (index * 31 + i * 7_919) % 90 * 1_048_576;
        json!({
            "names": [format!("registry.example.com/{tenant}/{app}:v2.{}.{}", i % 30 + 1, i % 9)],
            "sizeBytes": size,
        })
    };
    (0..IMAGES).map(image).collect()
}
