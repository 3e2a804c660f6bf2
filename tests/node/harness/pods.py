"""Pods of a namespace: their states, their metrics, and the end of their containers."""

import re
import ssl
import time
import urllib.error
import urllib.request

from .node import Failed


class Pods:
    """The pods with a label."""

    def __init__(self, node, namespace, selector):
        self.node, self.namespace, self.selector = node, namespace, selector

    def all(self):
        """The pods that are not being deleted."""
        pods = self.node.get("--namespace", self.namespace, "pods", "--selector", self.selector)["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def ready_ones(self):
        return [pod for pod in self.all() if is_ready(pod)]

    def one(self):
        pods = self.all()
        if len(pods) != 1:
            raise Failed(f"{len(pods)} pods with {self.selector}, not 1")
        return pods[0]

    def ready(self, count, seconds=90):
        """Waits until exactly this number of pods is there and ready, and returns them."""

        def check():
            pods = self.all()
            names = {pod["metadata"]["name"]: is_ready(pod) for pod in pods}
            if len(pods) != count or not all(names.values()):
                raise Failed(f"{names}, {count} ready pods are wanted")
            return pods

        return self.node.eventually(f"{count} ready pods with {self.selector}", check, seconds)

    def kill(self, container):
        """Kills the container of the only pod with SIGKILL, and returns the seconds until it is ready again."""
        pod = self.one()
        before = status(pod, container)
        began = time.monotonic()
        self.node.ctr("tasks", "kill", "--signal", "SIGKILL", before["containerID"].removeprefix("containerd://"))

        def check():
            now = status(self.one(), container)
            if now["restartCount"] != before["restartCount"] + 1 or not now["ready"]:
                raise Failed(f"{container}: {now['restartCount']} restarts, ready: {now['ready']}")

        self.node.eventually(f"{container} is ready again", check)
        return time.monotonic() - began


def is_ready(pod):
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def status(pod, container):
    """The status of a container or a sidecar of a pod."""
    statuses = pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", [])
    found = [one for one in statuses if one["name"] == container]
    if not found:
        raise Failed(f"{pod['metadata']['name']} has no container {container} yet")
    return found[0]


# Probes do not verify the certificate either.
UNVERIFIED = ssl.create_default_context()
UNVERIFIED.check_hostname, UNVERIFIED.verify_mode = False, ssl.CERT_NONE


def fetch(pod, port, path, scheme="http", token=None):
    """The text that a server in a pod answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(f"{scheme}://{pod['status']['podIP']}:{port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10, context=UNVERIFIED) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, OSError, KeyError) as error:
        raise Failed(f"{pod['metadata']['name']}:{port}{path}: {error}") from error


SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(text, name):
    """The (labels, value) pairs of a metric."""
    return [(dict(LABEL.findall(labels)), float(value)) for own, labels, value in SAMPLE.findall(text) if own == name]
