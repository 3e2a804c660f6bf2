"""The chart as a Deployment with two replicas behind a Service; callers have their own tokens."""

from harness.callers import Caller
from harness.pods import samples


def run(scene, say):
    node = scene.node
    scene.install()
    pods = scene.kubefans.ready(2)
    say(f"`helm install` with the defaults: rolled out in a restricted namespace: {', '.join(pod['metadata']['name'] for pod in pods)}")

    scene.apply_clients()
    caller = Caller(scene, "with-kubeconfig", "kube-state-metrics")
    before = from_cache(scene)
    names = caller.kubectl("get", "pods", "--namespace", "kubefan", "--output", "name").split()
    assert names == node.kubectl("get", "pods", "--namespace", "kubefan", "--output", "name").split(), names
    user = caller.kubectl("auth", "whoami", "--output", "jsonpath={.status.userInfo.username}")
    assert user == "system:serviceaccount:kubefan-clients:kube-state-metrics", user
    assert from_cache(scene) > before, "not answered by a cache"
    say(f"{user} gets {len(names)} pods, from the cache")

    node.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger", "namespace": "kubefan-clients"}})
    stranger = Caller(scene, "with-kubeconfig", "stranger")
    refused = stranger.refused("get", "pods", "--namespace", "kubefan")
    assert 'User "system:serviceaccount:kubefan-clients:stranger" cannot list resource "pods"' in refused, refused
    say(f"an account without rights is refused: {refused}")

    refused = {event["requestURI"] for event in node.audited()
               if event["user"]["username"] == scene.account and event["responseStatus"]["code"] == 403}
    assert not refused, refused
    say("by the API server's audit log, no request of kubefan's own was refused")


def from_cache(scene):
    """The lists and watches of pods that the caches of all replicas have answered."""
    answers = [one for pod in scene.kubefans.all() for one in samples(scene.admin(pod, "/metrics"), "kubefan_requests_total")]
    return sum(count for labels, count in answers if (labels["resource"], labels["outcome"]) == ("pods", "cache"))
