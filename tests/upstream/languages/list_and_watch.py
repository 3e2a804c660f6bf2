"""Lists the ConfigMaps of a namespace with the official Python client, and watches them.

Usage: list_and_watch.py KUBECONFIG NAMESPACE

Prints `listed` with the number of objects, then the name of each object that the watch adds, and
ends after the object `last`.
"""

import sys

from kubernetes import client, config, watch

kubeconfig, namespace = sys.argv[1:]
config.load_kube_config(kubeconfig)
api = client.CoreV1Api()
listed = api.list_namespaced_config_map(namespace, resource_version="0")
print("listed", len(listed.items), flush=True)
events = watch.Watch().stream(
    api.list_namespaced_config_map,
    namespace,
    resource_version=listed.metadata.resource_version,
    timeout_seconds=30,
)
for event in events:
    name = event["object"].metadata.name
    if event["type"] == "ADDED":
        print(name, flush=True)
    if name == "last":
        break
