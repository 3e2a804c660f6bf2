"""The files that the node's programs read: certificates, credentials and configuration."""

import json
import secrets
import subprocess

from .images import BUSYBOX

NODE = "n1"
# The program, its user and its group.
USERS = [
    ("admin", "admin", "system:masters"),
    ("kubelet", f"system:node:{NODE}", "system:nodes"),
    ("scheduler", "system:kube-scheduler", ""),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("proxy", "system:kube-proxy", ""),
]


def write_all(directory, net):
    certificates(directory, net)
    credentials(directory, net)
    configuration(directory, net)


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def certificates(directory, net):
    openssl(directory, "genrsa", "-out", "sa.key", "2048")
    authority(directory, "ca", "node-ca")
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
    signed(directory, "apiserver", "ca", names, ["127.0.0.1", net["ip"], net["first_service"]])


def authority(directory, name, subject):
    """Writes NAME.key and NAME.crt of a new certificate authority."""
    openssl(directory, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={subject}",
            "-keyout", f"{name}.key", "-out", f"{name}.crt")


def signed(directory, name, issuer, names, addresses=()):
    """Writes NAME.key and NAME.crt, which ISSUER.key signs, for DNS names and addresses."""
    openssl(directory, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={names[0]}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    alternatives = [f"DNS:{one}" for one in names] + [f"IP:{one}" for one in addresses]
    (directory / f"{name}.san").write_text(f"subjectAltName={','.join(alternatives)}\n")
    openssl(directory, "x509", "-req", "-days", "2", "-in", f"{name}.csr", "-out", f"{name}.crt",
            "-CA", f"{issuer}.crt", "-CAkey", f"{issuer}.key", "-CAcreateserial", "-extfile", f"{name}.san")


def credentials(directory, net):
    lines = []
    for name, user, group in USERS:
        token = secrets.token_hex(16)
        lines.append(f'{token},{user},{name},"{group}"\n')
        write_json(directory / f"{name}.kubeconfig", {
            "apiVersion": "v1", "kind": "Config", "current-context": "node",
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": name}}],
            "clusters": [{"name": "node", "cluster": {"server": net["url"], "certificate-authority": f"{directory}/ca.crt"}}],
            "users": [{"name": name, "user": {"token": token}}]})
    (directory / "tokens.csv").write_text("".join(lines))


def configuration(directory, net):
    # Requests of service accounts, which include all of kubefan's.
    write_json(directory / "audit.yaml", {
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]})
    write_json(directory / "kubelet.yaml", {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "failCgroupV1": False, "failSwapOn": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{net['cgroup']}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": f"{directory}/plugins",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [net["ip"]], "clusterDomain": "cluster.local",
        # Secrets and ConfigMaps of pods are read again after at most this time; the default is a minute.
        "syncFrequency": "10s",
        # Images cannot be pulled again, so none is removed.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"}})
    write_json(directory / "proxy.yaml", {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
        "clusterCIDR": net["pods"], "clientConnection": {"kubeconfig": f"{directory}/proxy.kubeconfig"},
        # These settings belong to the whole machine.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}})
    (directory / "cni").mkdir()
    write_json(directory / "cni/10.conflist", {
        "cniVersion": "1.0.0", "name": "pods", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": f"{directory}/ipam",
                     "ranges": [[{"subnet": net["pods"]}]], "routes": [{"dst": "0.0.0.0/0"}]}}]})
    (directory / "containerd.toml").write_text(f"""
version = 2
root = "{directory}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{BUSYBOX}"
  # A lower score needs CAP_SYS_RESOURCE, which containers of CI may not have.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    # overlayfs cannot be mounted on an overlay, the root of many containers of CI.
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
""")
    (directory / "hosts").mkdir()


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1))
