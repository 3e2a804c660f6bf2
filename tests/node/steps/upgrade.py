"""A rolling upgrade of two replicas behind their Service, with 500 client-go informers under churn."""

import collections
import subprocess
import time

from harness.callers import NAMESPACE
from harness.callers import Caller
from harness.pods import status
from harness.talk import Talk

INFORMERS = 500
# The longest time in milliseconds that a client may be without service.
LONGEST = 2000
WRITES_EVERY = "200ms"
# The resources that the chart caches from the start, in two formats.
BOTH_FORMATS = {"pods", "nodes", "services", "endpointslices"}
DEFINITIONS = {"apiservices", "customresourcedefinitions"}


def run(scene, say):
    node = scene.node
    scene.chart("kubefan", "kubefan", "--set", "image.tag=old")
    old = scene.kubefans.ready(2)
    say(f"two replicas of the old image: {images_of(old)}")
    rights(node)
    caller = Caller(scene, "with-kubeconfig", "watcher", memory="2Gi", cpu="1")
    informers = [node.binaries / "kubectl", "--kubeconfig", node.kubeconfig, *caller.command("informers", stdin=True)]
    through = ["--kubeconfig", caller.kubeconfig, "--namespace", "churn"]
    direct = [node.binaries / "informers", "herd", "--stay", "--kubeconfig", node.kubeconfig, "--namespace", "churn", "--count", "1"]
    with Talk(direct) as witness, Talk([*informers, "herd", "--stay", "--count", str(INFORMERS), "--sync-timeout", "3m", *through]) as herd:
        say(f"{herd.first['informers']} informers with own connections have synced, the last one after {herd.first['lastMilliseconds']} ms")
        with Talk([*informers, "probe", *through]) as probe, Churn(node) as churn:
            time.sleep(3)
            probe.ask("report")
            began = time.monotonic()
            scene.chart("kubefan", "kubefan", "--set", "image.tag=dev")
            new = node.eventually("only new replicas are left", lambda: only_new(scene, old))
            say(f"upgraded to the new image in {time.monotonic() - began:.0f} s: {images_of(new)}")
            waits = probe.ask("report")
            churn.stop()
        judge(herd, witness, waits, say)
    initial_lists(scene, [*old, *new], say)


def images_of(pods):
    return ", ".join(f"{pod['metadata']['name']} ({status(pod, 'kubefan')['image'].rpartition(':')[2]})" for pod in pods)


def rights(node):
    """The account of the informers, which may also write the probe's ConfigMap."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update"]}
    metadata = {"name": "watcher", "namespace": "churn"}
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "churn"}},
               {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "watcher", "namespace": NAMESPACE}},
               {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
               {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "watcher"},
                "subjects": [{"kind": "ServiceAccount", "name": "watcher", "namespace": NAMESPACE}]})


class Churn:
    """Random writes, directly to the API server, until it is stopped."""

    def __init__(self, node):
        command = [node.binaries / "informers", "churn", "--kubeconfig", node.kubeconfig, "--namespace", "churn",
                   "--resources", "configmaps", "--writes", "1000000", "--interval", WRITES_EVERY]
        self.program = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.program.terminate()
        self.program.wait()


def only_new(scene, old):
    pods = scene.node.get("--namespace", "kubefan", "pods")["items"]
    names = {pod["metadata"]["name"] for pod in pods}
    assert not names & {pod["metadata"]["name"] for pod in old}, names
    return scene.kubefans.ready(2)


def judge(herd, witness, waits, say):
    for one in (herd, witness):
        assert one.ask("settle 2000")["settled"], "events still arrive"
    seen, wanted = herd.ask("report"), witness.ask("report")
    (expected,) = wanted["sequences"]
    say(f"the API server sent {expected['events']} events; what the informers saw: {seen['sequences']}")
    assert seen["sequences"] == [expected | {"informers": INFORMERS}], (seen, wanted)
    say(f"their watches were interrupted {seen['interruptions']} times; the longest interruption of an informer took "
        f"{seen['medianMilliseconds']} ms (median), {seen['p99Milliseconds']} ms (p99), {seen['mostMilliseconds']} ms (most)")
    say(f"their requests: {seen['requests']}; their errors: {seen['watchErrors']['texts'] or 'none'}")
    longest = {name: wait["mostMilliseconds"] for name, wait in waits["waits"].items()}
    say(f"the longest time that a client waited, in milliseconds: {longest}; failures: {waits['failures']['texts'] or 'none'}")
    assert seen["mostMilliseconds"] <= LONGEST, "a client was without a watch"
    assert max(longest.values()) <= LONGEST and not waits["failures"]["count"], "a client was without service"
    assert not any("expired" in text.lower() or "too old" in text for text in seen["watchErrors"]["texts"]), "410"


def initial_lists(scene, pods, say):
    """Counts in the API server's audit log the lists with which each replica filled its caches."""
    for pod in pods:
        filled, lists = collections.Counter(), set()
        for event in scene.node.audited():
            extra = event["user"].get("extra", {})
            if extra.get("authentication.kubernetes.io/pod-name") != [pod["metadata"]["name"]]:
                continue
            resource = event.get("objectRef", {}).get("resource")
            if event["verb"] == "watch" and "sendInitialEvents=true" in event["requestURI"] and event["stage"] == "ResponseStarted":
                filled[resource] += 1
            # Proofs of the probe's namespace do not count, nor do the checks which fields a resource has; the definitions
            # of resources are read once more at the start.
            elif (event["verb"] == "list" and "/namespaces/churn/" not in event["requestURI"] and resource not in DEFINITIONS
                  and "?resourceVersion=0&limit=1&fieldSelector=" not in event["requestURI"]):
                lists.add(event["requestURI"])
        say(f"{pod['metadata']['name']} filled its caches with {sum(filled.values())} lists: {dict(sorted(filled.items()))}")
        # The others are kept as JSON only.
        assert "configmaps" in filled and not lists, (filled, lists)
        assert all(count <= (2 if resource in BOTH_FORMATS else 1) for resource, count in filled.items()), filled
