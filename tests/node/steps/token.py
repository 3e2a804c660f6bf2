"""The kubelet renews kubefan's token, of which the shortest lifetime is ten minutes."""

from harness import images
from harness.node import Failed
from harness.pods import Pods
from harness.pods import status

NAMESPACE = "kubefan-token"
# The kubelet renews a token after four fifths of its lifetime.
LIFETIME = 600
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:kubefan"


def begin(scene):
    """Starts a kubefan with a token of the shortest lifetime, and a client that reads through it all the time."""
    volume = {"name": "token", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": LIFETIME}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}
    mount = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    # A GET of the most recent state is forwarded with kubefan's token. The container ends when one fails.
    read = f"kubectl --server=http://127.0.0.1:8001 get namespace {NAMESPACE}"
    reads = f"until {read}; do sleep 1; done; while {read}; do sleep 2; done; exit 1"
    kubefan = {"name": "kubefan", "image": "kubefan:dev", "restartPolicy": "Always", "args": ["serve", "--resource", "namespaces"], "volumeMounts": [mount]}
    client = {"name": "client", "image": images.TOOLS, "command": ["sh", "-c", reads], "env": [{"name": "HOME", "value": "/tmp"}]}
    scene.node.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kubefan", "namespace": NAMESPACE}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NAMESPACE},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
         "subjects": [{"kind": "ServiceAccount", "name": "kubefan", "namespace": NAMESPACE}]},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kubefan", "namespace": NAMESPACE, "labels": {"app": "kubefan"}},
         "spec": {"serviceAccountName": "kubefan", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
                  "initContainers": [kubefan], "containers": [client], "volumes": [volume]}})


def run(scene, say):
    node = scene.node
    tokens = node.eventually("kubefan uses a renewed token", lambda: renewed(node), LIFETIME + 60)
    pod = Pods(node, NAMESPACE, "app=kubefan").one()
    for container in ("kubefan", "client"):
        assert status(pod, container)["ready"] and not status(pod, container)["restartCount"], pod["status"]
    for token, (first, last) in tokens.items():
        say(f"the token {token} was used from {first} to {last}")
    say("no read of the client failed, and kubefan was not restarted")


def renewed(node):
    """The tokens with which kubefan's requests came, with the times of their first and last uses."""
    tokens = {}
    for event in node.audited():
        if event["user"].get("username") == ACCOUNT:
            token = event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]
            began = event["requestReceivedTimestamp"]
            tokens[token] = (tokens.get(token, (began,))[0], began)
    if len(tokens) < 2:
        raise Failed(f"only {tokens}")
    return tokens
