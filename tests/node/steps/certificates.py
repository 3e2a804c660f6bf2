"""Rotation of the listener's certificate and of its authority, without a restart."""

import socket
import ssl
import time

from harness import files
from harness.callers import NAMESPACE
from harness.callers import RECIPES
from harness.callers import Caller
from harness.node import Failed


def run(scene, say):
    node = scene.node
    caller = Caller(scene, "with-service-account", "kube-state-metrics")
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in scene.kubefans.all()]
    files.authority(node.directory, "next-ca", "next-ca")
    # Clients must trust both authorities before the certificate changes.
    scene.publish_authorities("kubefan-ca", "next-ca")
    node.eventually("the clients' volume has both", lambda: both(caller))
    # Clients read the authorities when they start.
    node.kubectl("--namespace", NAMESPACE, "rollout", "restart", "deployment")
    for recipe in RECIPES:
        node.kubectl("--namespace", NAMESPACE, "rollout", "status", f"deployment/{recipe}", "--timeout=90s")
    for title in ("a certificate of a new authority", "a newer certificate of the same authority"):
        scene.new_certificate("next-ca")
        began = time.monotonic()
        wanted = (node.directory / "kubefan.crt").read_text()
        for pod in scene.kubefans.all():
            node.eventually(f"{pod['metadata']['name']} serves it", lambda: served(pod, wanted), 120)
        caller.kubectl("get", "pods", "--namespace", "kubefan")
        say(f"{title} was served by both replicas {time.monotonic() - began:.0f} s after the Secret had changed; kubectl accepts it")
    assert restarts == [pod["status"]["containerStatuses"][0]["restartCount"] for pod in scene.kubefans.all()], restarts
    say("no container was restarted")


def both(caller):
    text = caller.run("cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    if text.count("BEGIN CERTIFICATE") != 2:
        raise Failed(f"{text.count('BEGIN CERTIFICATE')} authorities")


def served(pod, wanted):
    """Checks which certificate a replica shows to a new connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((pod["status"]["podIP"], 8443), timeout=5) as plain:
        with context.wrap_socket(plain, server_hostname="kubefan.kubefan.svc") as connection:
            shown = ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True))
    if shown.strip() != wanted.strip():
        raise Failed("another certificate")
