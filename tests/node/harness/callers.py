"""Programs in pods that connect as deploy/clients describes."""

from . import images
from .node import Failed

NAMESPACE = "kubefan-clients"
# The Deployments of deploy/clients.
RECIPES = ("with-kubeconfig", "with-service-account")


class Caller:
    """A pod with kubectl and informers, made from the template of a Deployment in deploy/clients."""

    def __init__(self, scene, recipe, account, memory="256Mi", cpu="10m"):
        self.node, self.name = scene.node, f"{account}-{recipe}"
        template = self.node.get("--namespace", NAMESPACE, "deployment", recipe)["spec"]["template"]
        spec = template["spec"] | {"serviceAccountName": account, "terminationGracePeriodSeconds": 0}
        (client,) = spec["containers"]
        # kubectl reads the kubeconfig that the program of the recipe has in a flag.
        kubeconfig = [one.split("=")[1] for one in client.get("args", []) if one.startswith("--kubeconfig=")]
        environment = client["env"] + [{"name": "KUBECONFIG", "value": path} for path in kubeconfig]
        for name in ("args", "livenessProbe", "readinessProbe"):
            client.pop(name, None)
        client |= {"image": images.TOOLS, "command": ["sleep", "inf"], "env": environment,
                   "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}}
        # kubectl writes the documents that it keeps there.
        spec["volumes"].append({"name": "home", "emptyDir": {}})
        client["volumeMounts"].append({"name": "home", "mountPath": "/home/client"})
        client["env"].append({"name": "HOME", "value": "/home/client"})
        self.node.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": spec})
        self.node.kubectl("--namespace", NAMESPACE, "wait", "--for=condition=Ready", f"pod/{self.name}", "--timeout=60s")
        self.kubeconfig = kubeconfig[0] if kubeconfig else None

    def command(self, *words, stdin=False):
        return ["--namespace", NAMESPACE, "exec", *(["--stdin"] if stdin else []), self.name, "--", *words]

    def run(self, *words):
        return self.node.kubectl(*self.command(*words))

    def kubectl(self, *words):
        return self.run("kubectl", *words)

    def refused(self, *words):
        """Runs a command of kubectl that must fail, and returns the message."""
        try:
            printed = self.kubectl(*words)
        except Failed as failed:
            return next(line for line in str(failed).splitlines() if "Error from server" in line).partition("Error from server ")[2]
        raise Failed(f"{words} succeeded: {printed}")


def restarts(node):
    """How often the containers of the recipes' pods were restarted."""
    pods = node.get("--namespace", NAMESPACE, "pods", "--selector=app.kubernetes.io/part-of=kubefan-clients")["items"]
    return sum(one["restartCount"] for pod in pods for one in pod["status"].get("containerStatuses", []))
