"""The sidecar of deploy/sidecar, unchanged, beside an unmodified kube-state-metrics."""

from harness import images
from harness.node import Failed
from harness.pods import Pods
from harness.pods import fetch
from harness.pods import samples
from harness.pods import status

NAMESPACE = "kubefan-example"
LARGE = "large-objects"
RESOURCES = {"pods", "nodes", "services", "deployments"}


def run(scene, say):
    node = scene.node
    node.kubectl("apply", "-k", images.REPOSITORY / "deploy/sidecar")
    node.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/kube-state-metrics", "--timeout=120s")
    pods = Pods(node, NAMESPACE, "app.kubernetes.io/name=kube-state-metrics")
    (pod,) = pods.ready(1)
    started = status(pod, "kubefan")["state"]["running"]["startedAt"], status(pod, "kube-state-metrics")["state"]["running"]["startedAt"]
    assert started[0] <= started[1], started
    say(f"rolled out in a restricted namespace; kubefan started at {started[0]}, its client at {started[1]}")

    says_about(node, pods, "a-pod-of-default")
    answers = samples(scene.admin(pod, "/metrics"), "kubefan_requests_total")
    reads = {(labels["resource"], labels["verb"], labels["outcome"]) for labels, count in answers if labels["verb"] in ("list", "watch") and count}
    wanted = {(resource, verb, "cache") for resource in RESOURCES for verb in ("list", "watch")}
    assert reads == wanted, reads
    say("all lists and watches of its client were answered by the cache: " + ", ".join(sorted(RESOURCES)))

    seconds = pods.kill("kubefan")
    say(f"kubefan's container was killed with SIGKILL: ready again after {seconds:.1f} s, its client was not restarted")
    assert status(pods.one(), "kube-state-metrics")["restartCount"] == 0
    says_about(node, pods, "a-pod-after-the-kill")
    say("a pod that was created after that appears in the client's metrics")
    limit_of(node, pods, scene, say)


def says_about(node, pods, name):
    """Creates a pod, and waits until kube-state-metrics knows it."""
    node.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": images.BUSYBOX}]}})

    def check():
        known = {labels["pod"] for labels, _ in samples(fetch(pods.one(), 8080, "/metrics"), "kube_pod_info")}
        if name not in known:
            raise Failed(f"kube-state-metrics knows {known}")

    node.eventually(f"kube-state-metrics knows {name}", check)


def limit_of(node, pods, scene, say):
    """The memory limit of the container: kubefan reads it, and the kernel enforces it."""
    (limit,) = samples(scene.admin(pods.one(), "/metrics"), "kubefan_reader_memory_limit_bytes")
    say(f"of its limit of 512 MiB, kubefan gives {limit[1] / 2**20:.0f} MiB to readers")
    assert 0 < limit[1] < 512 * 2**20, limit
    patch = [{"op": "replace", "path": "/spec/template/spec/initContainers/0/resources/limits/memory", "value": "64Mi"}]
    node.kubectl("-n", NAMESPACE, "patch", "deployment/kube-state-metrics", "--type=json", "-p", images.as_json(patch))
    node.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/kube-state-metrics", "--timeout=60s")
    pods.ready(1)
    say("with a limit of 64 MiB it runs as well")
    node.kubectl("create", "-f", "-", stdin=images.as_json(large_objects()))

    def killed():
        now = status(pods.one(), "kubefan")
        reasons = [now[state].get("terminated", {}).get("reason") for state in ("state", "lastState")]
        if "OOMKilled" not in reasons:
            raise Failed(f"{reasons}")

    node.eventually("the container that exceeds its limit is killed", killed)
    say("60 MB of Deployments are too much: the container is OOMKilled")
    node.kubectl("-n", NAMESPACE, "rollout", "undo", "deployment/kube-state-metrics")
    node.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/kube-state-metrics", "--timeout=90s")
    says_about(node, pods, "a-pod-after-the-limit")
    say("with the limit of 512 MiB again it serves all of them")
    node.kubectl("delete", "namespace", LARGE)


def large_objects():
    """Deployments without pods, of 60 MB."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LARGE}}
    labels = {"app": "none"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": images.BUSYBOX}]}}
    deployments = [{
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": f"large-{number}", "namespace": LARGE, "annotations": {"text": "x" * 200_000}},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}} for number in range(300)]
    return {"apiVersion": "v1", "kind": "List", "items": [namespace, *deployments]}
