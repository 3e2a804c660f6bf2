"""Pid 1 of the node's namespaces: starts the node's programs, and starts those again that end.

It ends only by SIGKILL; the kernel then ends all processes of the namespace, and removes their mounts.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

# The kubelet would change these settings, which belong to the whole machine.
TUNABLES = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"]


def sh(*command):
    subprocess.run([str(word) for word in command], check=True)


def mounts(directory):
    """Hides the machine's own state of the same programs, and what they would leave behind."""
    sh("mount", "--make-rshared", "/")
    for place in ("/run", "/var/lib"):
        sh("mount", "-t", "tmpfs", "tmpfs", place)
    (directory / "log").mkdir()
    sh("mount", "--bind", directory / "log", "/var/log")
    for name in TUNABLES:
        copy = directory / name.replace("/", ".")
        copy.write_text(pathlib.Path("/proc/sys", name).read_text())
        sh("mount", "--bind", copy, f"/proc/sys/{name}")


def network(net):
    for device in ("lo", "eth0"):
        sh("ip", "link", "set", device, "up")
    sh("ip", "addr", "add", f"{net['ip']}/30", "dev", "eth0")
    sh("ip", "route", "add", "default", "via", net["gateway"])
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


# The node's share of the processors beside one other process of the machine. Its programs and pods compete only with
# each other then, as on a machine of their own.
SHARE = 16


def cgroups(name):
    """Creates the kubelet's root in each hierarchy of cgroup v1, and moves the node into that of the processors."""
    for hierarchy in pathlib.Path("/sys/fs/cgroup").iterdir():
        group = hierarchy / name
        group.mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())
    processors = pathlib.Path("/sys/fs/cgroup/cpu", name)
    (processors / "cpu.shares").write_text(str(1024 * SHARE))
    (processors / "cgroup.procs").write_text("1")


def programs(directory, net, binaries):
    """The command lines of the node."""
    etcd, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"

    def kubeconfig(name):
        return f"--kubeconfig={directory}/{name}.kubeconfig"

    return [
        ["containerd", "-c", directory / "containerd.toml"],
        # Names of services, which Node.name adds to the directory.
        ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root",
         "--pid-file=", f"--listen-address={net['ip']}", "--bind-interfaces", "--local=/cluster.local/",
         f"--hostsdir={directory}/hosts"],
        [f"{binaries}/etcd", f"--data-dir={directory}/etcd", "--unsafe-no-fsync=true",
         f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}",
         f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"],
        [f"{binaries}/kube-apiserver", f"--etcd-servers={etcd}", f"--advertise-address={net['ip']}", "--secure-port=6443",
         f"--tls-cert-file={directory}/apiserver.crt", f"--tls-private-key-file={directory}/apiserver.key",
         f"--client-ca-file={directory}/ca.crt", f"--token-auth-file={directory}/tokens.csv",
         "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
         "--service-account-issuer=https://kubernetes.default.svc",
         f"--service-account-signing-key-file={directory}/sa.key", f"--service-account-key-file={directory}/sa.key",
         f"--service-cluster-ip-range={net['services']}", "--kubelet-preferred-address-types=InternalIP",
         f"--audit-policy-file={directory}/audit.yaml", f"--audit-log-path={directory}/log/audit.log"],
        [f"{binaries}/kube-controller-manager", kubeconfig("controller-manager"), "--use-service-account-credentials",
         f"--service-account-private-key-file={directory}/sa.key", f"--root-ca-file={directory}/ca.crt",
         "--leader-elect=false"],
        [f"{binaries}/kube-scheduler", kubeconfig("scheduler"), "--leader-elect=false"],
        [f"{binaries}/kubelet", kubeconfig("kubelet"), f"--config={directory}/kubelet.yaml",
         f"--root-dir={directory}/kubelet", f"--cert-dir={directory}/pki", f"--hostname-override={net['node']}",
         f"--node-ip={net['ip']}"],
        [f"{binaries}/kube-proxy", f"--config={directory}/proxy.yaml", f"--hostname-override={net['node']}"],
    ]


def start(command, directory):
    words = [str(word) for word in command]
    log = open(directory / "log" / f"{os.path.basename(words[0])}.log", "ab")
    return subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL).pid


def main():
    print("started", flush=True)
    facts = json.loads(sys.stdin.readline())
    directory, net = pathlib.Path(facts["directory"]), facts["net"]
    mounts(directory)
    network(net)
    cgroups(net["cgroup"])
    running = {start(one, directory): one for one in programs(directory, net, facts["binaries"])}
    while True:
        # Orphans of containers end here too.
        pid, status = os.wait()
        if command := running.pop(pid, None):
            print(command[0], "ended with status", status, file=sys.stderr, flush=True)
            # A program that cannot start must not use up the machine.
            time.sleep(1)
            running[start(command, directory)] = command


main()
