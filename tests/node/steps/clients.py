"""Clients that know only their service account: both recipes of deploy/clients, unchanged."""

from harness.callers import NAMESPACE
from harness.callers import RECIPES
from harness.callers import Caller
from harness.node import Failed
from harness.pods import Pods
from harness.pods import fetch
from harness.pods import samples


def run(scene, say):
    node = scene.node
    for recipe in RECIPES:
        node.kubectl("--namespace", NAMESPACE, "rollout", "status", f"deployment/{recipe}", "--timeout=90s")
        pods = Pods(node, NAMESPACE, f"app.kubernetes.io/name={recipe}")
        (pod,) = pods.ready(1)

        def all_pods(pod=pod):
            known = {(labels["namespace"], labels["pod"]) for labels, _ in samples(fetch(pod, 8080, "/metrics"), "kube_pod_info")}
            real = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in node.get("--all-namespaces", "pods")["items"]}
            if known != real:
                raise Failed(f"{known} {real}")
            return known

        known = node.eventually("kube-state-metrics knows all pods", all_pods)
        say(f"{recipe}: an unmodified kube-state-metrics knows all {len(known)} pods")
    caller = Caller(scene, "with-service-account", "kube-state-metrics")
    names = caller.kubectl("get", "pods", "--namespace", "kubefan", "--output", "name").split()
    assert len(names) == len(scene.kubefans.all()), names
    say(f"with-service-account: kubectl without a kubeconfig gets {len(names)} pods")

    direct = [event for event in node.audited() if event["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:kube-state-metrics"
              and event["verb"] in ("list", "watch")]
    assert not direct, direct[0]
    say("by the API server's audit log, no list and no watch of theirs reached it")
