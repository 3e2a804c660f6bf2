#!/usr/bin/env python3
"""Assembles container images without a builder.

    deploy/image.py BINARY NAME:TAG FILE

writes the image of deploy/Dockerfile: kubefan with the shared libraries of this machine, and CA certificates. The
file is an OCI layout and an archive of `docker save` at once, so `docker load`, `podman load`, `skopeo copy
oci-archive:FILE` and `ctr images import` read it. The same files and SOURCE_DATE_EPOCH give the same bytes.
"""

import datetime
import hashlib
import io
import json
import os
import pathlib
import platform
import subprocess
import sys
import tarfile

BUILD = "cargo build --profile dist --locked --package kubefan-cli --no-default-features --features top"
REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n",
    "etc/group": b"root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": b"hosts: files dns\n",
}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def build(**environment):
    """Builds the binary of the image, and returns its path."""
    subprocess.run(BUILD.split(), cwd=REPOSITORY, check=True, env=os.environ | environment)
    return REPOSITORY / "target/dist/kubefan"


def kubefan(binary, name, labels=None):
    """The image of deploy/Dockerfile, as bytes. A test compares its configuration with the Dockerfile."""
    target = "usr/local/bin/kubefan"
    files = {target: pathlib.Path(binary).read_bytes(), CERTIFICATES: pathlib.Path("/", CERTIFICATES).read_bytes(), **ACCOUNTS}
    files |= {library.lstrip("/"): pathlib.Path(library).read_bytes() for library in libraries(binary)}
    return archive(name, files, executables={target}, config={
        "User": "65532:65532", "Entrypoint": [f"/{target}"], "Cmd": ["serve"], "WorkingDir": "/",
        "Env": ["PATH=/usr/local/bin", f"SSL_CERT_FILE=/{CERTIFICATES}"],
        "ExposedPorts": {"8002/tcp": {}}, "Labels": labels or {}})


def libraries(binary):
    """The shared libraries of a program, and the loader."""
    printed = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    return sorted(word for word in printed.split() if word.startswith("/"))


def archive(name, files, config, executables=(), links=None):
    """An image with one layer. `files` maps paths to bytes, `links` maps paths to the targets of symbolic links."""
    layer = tree(files, executables, links or {})
    blobs = Blobs()
    configuration = blobs.add("application/vnd.oci.image.config.v1+json", as_json({
        "architecture": ARCHITECTURES[platform.machine()], "os": "linux", "created": created(), "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": created(), "created_by": "deploy/image.py"}]}))
    content = blobs.add("application/vnd.oci.image.layer.v1.tar", layer)
    manifest = blobs.add("application/vnd.oci.image.manifest.v1+json", as_json({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": configuration, "layers": [content]}))
    manifest["annotations"] = {"io.containerd.image.name": with_registry(name), "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    return tar([
        entry("oci-layout", as_json({"imageLayoutVersion": "1.0.0"})),
        entry("index.json", as_json({"schemaVersion": 2, "manifests": [manifest]})),
        entry("manifest.json", as_json([{"Config": path(configuration), "RepoTags": [name], "Layers": [path(content)]}])),
        *blobs.entries])


def with_registry(name):
    """The name as containerd keeps it: docker.io/library/ is the default."""
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


class Blobs:
    def __init__(self):
        self.entries = []

    def add(self, media_type, data):
        descriptor = {"mediaType": media_type, "digest": digest(data), "size": len(data)}
        self.entries.append(entry(path(descriptor), data))
        return descriptor


def path(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def as_json(value):
    return json.dumps(value, sort_keys=True).encode()


def epoch():
    return int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def created():
    return datetime.datetime.fromtimestamp(epoch(), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def tree(files, executables, links):
    """A tar with the files, the links, their folders, and /tmp."""
    parents = {str(folder) for one in [*files, *links] for folder in pathlib.PurePath(one).parents} - {"."}
    folders = [entry(one, kind=tarfile.DIRTYPE, mode=0o755) for one in sorted(parents)]
    loaders = {one for one in files if pathlib.PurePath(one).name.startswith("ld-linux")}
    contents = [entry(one, data, mode=0o755 if one in loaders or one in executables else 0o644) for one, data in sorted(files.items())]
    symbolic = [entry(one, kind=tarfile.SYMTYPE, mode=0o777, link=target) for one, target in sorted((links).items())]
    return tar([entry("tmp", kind=tarfile.DIRTYPE, mode=0o1777), *folders, *contents, *symbolic])


def entry(name, data=b"", kind=tarfile.REGTYPE, mode=0o644, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size, info.mtime = kind, mode, link, len(data), epoch()
    return info, data


def tar(entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for info, data in entries:
            out.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    pathlib.Path(sys.argv[3]).write_bytes(kubefan(sys.argv[1], sys.argv[2]))
