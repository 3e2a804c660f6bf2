"""The node with the images that the steps use."""

import json

from . import files
from . import images
from .pods import Pods
from .pods import fetch

# The names in deploy/. The node has no registry, so these images are what the names mean there.
NEW = "docker.io/library/kubefan:dev"
OLD = "docker.io/library/kubefan:old"
METRICS = "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0"


class Scene:
    # The service account of the central kubefan.
    account = "system:serviceaccount:kubefan:kubefan"

    def __init__(self, node, binary, old):
        self.node = node
        self.kubefans = Pods(node, "kubefan", "app.kubernetes.io/name=kubefan")
        self.token = self.scraper()
        node.load(images.kubefan(binary, NEW))
        node.load(images.kubefan(old, OLD))
        node.load(images.program(METRICS, node.binaries / "kube-state-metrics"))
        node.load(images.busybox(images.TOOLS, node.binaries / "kubectl", node.binaries / "informers"))

    def install(self):
        """Installs the central kubefan with the chart's defaults, in a restricted namespace."""
        self.node.kubectl("create", "namespace", "kubefan")
        self.node.kubectl("label", "namespace", "kubefan", "pod-security.kubernetes.io/enforce=restricted")
        self.chart("kubefan", "kubefan", "--set", "image.tag=dev")
        self.node.name("kubefan", "kubefan")

    def chart(self, release, namespace, *flags):
        """Installs or upgrades a release of the chart, and waits until it is rolled out."""
        chart = images.REPOSITORY / "deploy/helm/kubefan"
        self.node.run(self.node.binaries / "helm", "upgrade", "--install", release, chart, "--namespace", namespace, "--create-namespace",
                      "--kubeconfig", self.node.kubeconfig, "--reset-then-reuse-values", "--wait", "--timeout", "5m", *flags)

    def new_certificate(self, authority):
        """Puts a new certificate for the Service's name into kubefan's Secret."""
        files.signed(self.node.directory, "kubefan", authority, ["kubefan.kubefan.svc"])
        self.replace("kubefan", "secret", "tls", "kubefan-tls", f"--cert={self.node.directory}/kubefan.crt",
                     f"--key={self.node.directory}/kubefan.key")

    def apply_clients(self):
        """Applies deploy/clients, and the ConfigMap that it needs."""
        self.node.kubectl("apply", "-f", images.REPOSITORY / "deploy/clients/namespace.yaml")
        published = self.node.get("--namespace", "kubefan", "configmap", "kubefan-client")["data"]["ca.crt"]
        (self.node.directory / "kubefan-ca.crt").write_text(published)
        self.publish_authorities("kubefan-ca")
        self.node.kubectl("apply", "-k", images.REPOSITORY / "deploy/clients")

    def publish_authorities(self, *names):
        """Puts the authorities of kubefan's certificate into the clients' ConfigMap."""
        bundle = self.node.directory / "bundle.crt"
        bundle.write_text("".join((self.node.directory / f"{name}.crt").read_text() for name in names))
        self.replace("kubefan-clients", "configmap", "kubefan-ca", f"--from-file=ca.crt={bundle}")

    def replace(self, namespace, *what):
        """Creates an object with `kubectl create`, or replaces it."""
        made = self.node.kubectl("--namespace", namespace, "create", *what, "--dry-run=client", "--output", "yaml")
        self.node.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=made)

    def scraper(self):
        """The token of an account that may read metrics."""
        rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        self.node.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "scraper", "namespace": "default"}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "scraper"}, "rules": [rule]},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "scraper"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
             "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}]})
        return self.node.kubectl("--namespace", "default", "create", "token", "scraper", "--duration=1h").strip()

    def admin(self, pod, path):
        """What kubefan's admin listener in a pod answers."""
        containers = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
        (probe,) = [one["readinessProbe"]["httpGet"] for one in containers if one["name"] == "kubefan"]
        return fetch(pod, 8002, path, probe.get("scheme", "HTTP").lower(), self.token)

    def explain(self):
        """Prints the state of all pods, and the last lines of those that are not ready."""
        print(self.node.kubectl("get", "pods", "-A", "-o", "wide", check=False))
        print(self.node.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", check=False)[-3000:])
        for pod in json.loads(self.node.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            for one in pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", []):
                if not one["ready"]:
                    print(f"--- {namespace}/{name} {one['name']}: {json.dumps(one['state'])}")
                    print(self.node.kubectl("-n", namespace, "logs", name, "-c", one["name"], "--tail=20", check=False))
