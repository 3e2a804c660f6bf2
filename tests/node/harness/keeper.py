"""Keeps the node's namespaces, and removes all that is left of the node when its standard input ends.

The input ends when the process ends that wanted the node, by whatever signal. If the keeper itself is killed, the node
ends with it, and Node.stop removes the rest.
"""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

NAMESPACES = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def sh(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def network(number, link):
    """The addresses of a node. Each node of a machine has another number."""
    return {
        "link": link, "node": "n1", "cgroup": f"kubefan-node-{number}",
        "gateway": f"198.18.{number}.1", "ip": f"198.18.{number}.2", "url": f"https://198.18.{number}.2:6443",
        "pods": f"10.96.{number}.0/24", "services": f"10.97.{number}.0/24", "first_service": f"10.97.{number}.1",
    }


def connect(init):
    """Links the node's network namespace to the machine's, with the first number that is free."""
    for number in range(1, 250):
        link = f"kubefan-n{number}"
        made = subprocess.run(["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(init)], capture_output=True)
        if made.returncode == 0:
            break
    else:
        raise SystemExit(f"no link to the node: {made.stderr.decode()}")
    net = network(number, link)
    sh("ip", "addr", "add", f"{net['gateway']}/30", "dev", link)
    sh("ip", "link", "set", link, "up")
    for block in (net["pods"], net["services"]):
        sh("ip", "route", "add", block, "via", net["ip"])
    return net


def remove(directory, net):
    """Removes the node's link, its cgroups, which get empty a moment after their last process has ended, and its directory."""
    # The kernel removes the link too, some time after the namespace's last process has ended.
    subprocess.run(["ip", "link", "delete", net.get("link", "")], capture_output=True)
    cgroup = net.get("cgroup")
    for _ in range(100):
        roots = pathlib.Path("/sys/fs/cgroup").glob(f"*/{cgroup}") if cgroup else []
        left = [group for root in roots for group in [root, *root.rglob("*")] if group.is_dir()]
        for group in sorted(left, key=lambda one: -len(one.parts)):
            with contextlib.suppress(OSError):
                group.rmdir()
        if not left:
            break
        time.sleep(0.1)
    shutil.rmtree(directory, ignore_errors=True)


def main():
    directory = pathlib.Path(sys.argv[1])
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    inside = pathlib.Path(__file__).with_name("inside.py")
    net, ended = {}, None
    outer = subprocess.Popen([*NAMESPACES, sys.executable, "-B", inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=open(directory / "inside.log", "w"), text=True)
    try:
        if not outer.stdout.readline():
            raise SystemExit(f"no namespaces: {(directory / 'inside.log').read_text()}")
        init = int(pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())
        ended = os.pidfd_open(init)
        net = connect(init)
        print(json.dumps({"net": net, "init": init}), flush=True)
        # The facts for the node come when its files are written.
        if facts := sys.stdin.readline():
            outer.stdin.write(facts)
            outer.stdin.flush()
            select.select([sys.stdin, ended], [], [])
    finally:
        # The child of `unshare` is killed with it, and the kernel ends all other processes of the namespaces before it.
        outer.kill()
        outer.wait()
        if ended:
            select.select([ended], [], [])
        remove(directory, net)


if __name__ == "__main__":
    main()
