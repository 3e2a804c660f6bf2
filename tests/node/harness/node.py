"""A real single-node Kubernetes in namespaces of its own: `with Node(binaries) as node:`."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from . import files
from . import images
from . import keeper

KEEPER = pathlib.Path(keeper.__file__)


class Failed(Exception):
    """A command failed, or something did not happen in time."""


class Node:
    def __init__(self, binaries):
        self.binaries = pathlib.Path(binaries)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kubefan-node-"))
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.keeper, self.net, self.init = None, {}, None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        # A session of its own, so that Ctrl-C of a terminal does not reach it.
        self.keeper = subprocess.Popen([sys.executable, "-B", KEEPER, self.directory], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True, start_new_session=True)
        facts = json.loads(self.keeper.stdout.readline() or "{}")
        if not facts:
            raise Failed("the namespaces were not created")
        self.net, self.init = facts["net"], facts["init"]
        files.write_all(self.directory, self.net)
        inside = {"directory": str(self.directory), "net": self.net, "binaries": str(self.binaries)}
        self.keeper.stdin.write(json.dumps(inside) + "\n")
        self.keeper.stdin.flush()
        self.eventually("the API server", lambda: self.kubectl("get", "--raw", "/readyz"))
        self.eventually("containerd", lambda: self.ctr("version"))
        self.load(images.busybox(images.BUSYBOX))
        self.eventually("the node", lambda: self.kubectl("wait", "--for=condition=Ready", f"node/{files.NODE}", "--timeout=1s"))
        self.eventually("service accounts", lambda: self.kubectl("get", "serviceaccount", "default"))

    def stop(self):
        if self.keeper:
            self.keeper.stdin.close()
            self.keeper.wait()
        # This does nothing unless the keeper was killed.
        keeper.remove(self.directory, self.net)

    def run(self, *command, stdin=None, check=True):
        """Runs a command, and returns its output as text."""
        words = [str(word) for word in command]
        done = subprocess.run(words, input=stdin, capture_output=True, text=True)
        if check and done.returncode:
            raise Failed(f"{pathlib.Path(words[0]).name}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def kubectl(self, *arguments, stdin=None, check=True):
        flags = ["--kubeconfig", self.kubeconfig, "--cache-dir", self.directory / "kubectl"]
        return self.run(self.binaries / "kubectl", *flags, *arguments, stdin=stdin, check=check)

    def get(self, *arguments):
        """The object that `kubectl get` prints."""
        return json.loads(self.kubectl("get", "-o", "json", *arguments))

    def apply(self, *objects):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.kubectl("apply", "-f", "-", stdin=text)

    def inside(self, *command):
        """The words of a command that runs in the node's mount namespace."""
        return ["nsenter", "--target", str(self.init), "--mount", *(str(word) for word in command)]

    def ctr(self, *arguments):
        return self.run(*self.inside("ctr", "--namespace", "k8s.io", *arguments))

    def load(self, image):
        """Puts the archive of an image on the node."""
        done = subprocess.run(self.inside("ctr", "--namespace", "k8s.io", "images", "import", "-"), input=image, capture_output=True)
        if done.returncode:
            raise Failed(f"the image was not imported: {done.stderr.decode()}")

    def name(self, service, namespace):
        """Makes a service's name known in the cluster's DNS."""
        address = self.get("--namespace", namespace, "service", service)["spec"]["clusterIP"]
        (self.directory / "hosts" / f"{namespace}.{service}").write_text(f"{address} {service}.{namespace}.svc.cluster.local\n")

    def audited(self):
        """The events of the API server's audit log: the requests of service accounts."""
        with open(self.directory / "log/audit.log") as log:
            return [json.loads(line) for line in log if line.endswith("\n")]

    def eventually(self, what, succeeds, seconds=90):
        """Repeats a function until it raises no error, and returns its result."""
        end = time.monotonic() + seconds
        while True:
            try:
                return succeeds()
            except (Failed, AssertionError) as error:
                if self.keeper.poll() is not None:
                    raise Failed(f"the node ended: {(self.directory / 'inside.log').read_text()}") from error
                if time.monotonic() > end:
                    raise Failed(f"{what}: not within {seconds} s: {error}") from error
                time.sleep(0.2)
