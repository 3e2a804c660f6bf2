"""The images of the node's pods, assembled by deploy/image.py."""

import importlib.util
import json
import pathlib
import subprocess

# Pods' sandboxes run in this image, and the probes of the steps too. It is always on the node.
BUSYBOX = "kubefan.test/busybox:1"
# busybox with kubectl and informers, for programs that read through kubefan.
TOOLS = "kubefan.test/tools:1"
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SHELL = "/bin/busybox"


def _load():
    path = REPOSITORY / "deploy/image.py"
    spec = importlib.util.spec_from_file_location("image", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


image = _load()
kubefan = image.kubefan
as_json = json.dumps


def busybox(name, *programs):
    """busybox with its applets, and statically linked programs, in /bin."""
    applets = subprocess.run([SHELL, "--list"], check=True, capture_output=True, text=True).stdout.split()
    files = {f"bin/{pathlib.Path(one).name}": pathlib.Path(one).read_bytes() for one in (SHELL, *programs)}
    links = {f"bin/{applet}": "busybox" for applet in applets if f"bin/{applet}" not in files}
    config = {"Cmd": ["sleep", "inf"], "Env": ["PATH=/bin"], "User": "65534:65534"}
    return image.archive(name, files, config, executables=set(files), links=links)


def program(name, path):
    """A statically linked program."""
    target = f"bin/{pathlib.Path(path).name}"
    return image.archive(name, {target: pathlib.Path(path).read_bytes()}, {"Entrypoint": [f"/{target}"], "User": "65534:65534"},
                         executables={target})
