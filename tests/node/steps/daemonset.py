"""The chart as a DaemonSet, with its sample values: a kubefan on each node, which caches the pods of that node."""

from harness import images
from harness.callers import NAMESPACE
from harness.pods import Pods
from harness.pods import samples


def run(scene, say):
    node = scene.node
    values = images.REPOSITORY / "deploy/helm/kubefan/examples/daemonset.yaml"
    scene.chart("kubefan-node", "kubefan-node", "--set", "image.tag=dev", "--values", values)
    (pod,) = Pods(node, "kubefan-node", "app.kubernetes.io/instance=kubefan-node").ready(1)
    service = node.get("--namespace", "kubefan-node", "service", "kubefan-node")["spec"]
    assert service["internalTrafficPolicy"] == "Local", service
    node.name("kubefan-node", "kubefan-node")
    say(f"rolled out: {pod['metadata']['name']} on {pod['spec']['nodeName']}; its Service leads to the pod of the client's node")

    # The chart's own kubeconfig and authority, as its notes say.
    client = node.get("--namespace", "kubefan-node", "configmap", "kubefan-node-client")["data"]
    node.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubefan-node", "namespace": NAMESPACE}, "data": client},
               agent())
    node.kubectl("--namespace", NAMESPACE, "wait", "--for=condition=Ready", "pod/agent", "--timeout=60s")
    shown = node.kubectl("--namespace", NAMESPACE, "exec", "agent", "--", "kubectl", "get", "pods", "--all-namespaces",
                         "--field-selector=spec.nodeName=n1", "--output=name").split()
    real = node.kubectl("get", "pods", "--all-namespaces", "--field-selector=spec.nodeName=n1", "--output=name").split()
    assert shown == real, (shown, real)
    metrics = scene.admin(pod, "/metrics")
    answers = {labels["outcome"]: count for labels, count in samples(metrics, "kubefan_requests_total") if labels["resource"] == "pods"}
    assert answers.get("cache", 0) > 0, answers
    cached = [labels["field_selector"] for labels, _ in samples(metrics, "kubefan_cache_objects") if labels["resource"] == "pods"]
    assert cached and set(cached) == {"spec.nodeName=n1"}, cached
    say(f"an agent with its own token gets the {len(shown)} pods of its node, from the cache, which has no others")
    node.run(node.binaries / "helm", "uninstall", "kubefan-node", "--namespace", "kubefan-node", "--kubeconfig", node.kubeconfig, "--wait")
    left = node.kubectl("get", "clusterroles,clusterrolebindings,flowschemas", "--selector=app.kubernetes.io/instance=kubefan-node", "--output=name")
    assert not left, left
    say("`helm uninstall` left nothing behind")


def agent():
    """A pod with kubectl that mounts what the chart prints for clients."""
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": "kube-state-metrics", "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "client", "image": images.TOOLS, "command": ["sleep", "inf"],
                "env": [{"name": "KUBECONFIG", "value": "/etc/kubefan/kubeconfig"}, {"name": "HOME", "value": "/tmp"}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "kubefan", "mountPath": "/etc/kubefan", "readOnly": True}]}],
            "volumes": [{"name": "kubefan", "configMap": {"name": "kubefan-node"}}]}}
