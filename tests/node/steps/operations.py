"""A restart of the rollout, a drain of the node, and the end of a container by SIGKILL."""

import time

from harness import files
from harness.callers import Caller
from harness.callers import restarts
from harness.node import Failed
from harness.pods import status


def run(scene, say):
    node = scene.node
    caller = Caller(scene, "with-service-account", "kube-state-metrics")
    before = {pod["metadata"]["uid"] for pod in scene.kubefans.all()}
    began = time.monotonic()
    node.kubectl("--namespace", "kubefan", "rollout", "restart", "deployment/kubefan")
    answered, failed = reads_until(caller, lambda: rolled_out(scene, before))
    assert not failed, f"{failed} of {answered + failed} commands failed during the rollout"
    say(f"a restart of the rollout took {time.monotonic() - began:.0f} s; meanwhile {answered} commands of kubectl succeeded, and none failed")

    scene.kubefans.ready(2)
    refused = drained(node)
    assert len(scene.kubefans.ready_ones()) == 1, "the drain left no replica"
    caller.kubectl("get", "pods", "--namespace", "kubefan")
    say(f"`kubectl drain` evicts one replica, and not the other one: {refused}")
    node.kubectl("uncordon", files.NODE)
    scene.kubefans.ready(2)
    say("after `kubectl uncordon` there are two replicas again")

    victim = scene.kubefans.all()[0]
    began = time.monotonic()
    node.ctr("tasks", "kill", "--signal", "SIGKILL", status(victim, "kubefan")["containerID"].removeprefix("containerd://"))
    answered, failed = reads_until(caller, lambda: restarted(scene, victim))
    say(f"one replica's container was killed with SIGKILL: two ready replicas after {time.monotonic() - began:.1f} s; "
        f"meanwhile {answered} commands of kubectl succeeded and {failed} failed")
    assert failed <= 2, failed
    assert not restarts(node), "an unmodified client was restarted"
    say("the unmodified clients went on; their liveness probes ask kubefan, and none failed for long")


def reads_until(caller, is_done):
    """Reads through the Service until something is done, each time over a new connection. Counts successes and failures."""
    answered = failed = 0
    while not is_done():
        try:
            # With --request-timeout kubectl ignores its service account.
            caller.run("timeout", "5", "kubectl", "get", "pods", "--namespace", "kubefan")
            answered += 1
        except Failed:
            failed += 1
    return answered, failed


def rolled_out(scene, before):
    pods = scene.node.get("--namespace", "kubefan", "pods")["items"]
    uids = {pod["metadata"]["uid"] for pod in pods}
    return not uids & before and len(scene.kubefans.ready_ones()) == 2


def restarted(scene, victim):
    pods = {pod["metadata"]["uid"]: status(pod, "kubefan") for pod in scene.kubefans.all()}
    return pods[victim["metadata"]["uid"]]["restartCount"] == 1 and all(one["ready"] for one in pods.values())


def drained(node):
    """Drains the node of kubefan. Returns why kubectl could not evict all of it."""
    try:
        node.kubectl("drain", files.NODE, "--pod-selector=app.kubernetes.io/name=kubefan", "--timeout=15s")
    except Failed as failed:
        return next(line for line in str(failed).splitlines() if "disruption budget" in line)
    raise Failed("the drain evicted both replicas")
