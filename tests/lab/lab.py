# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute hosts for tests, out of namespaces of this machine: each has its own libvirtd, virtlogd and sshd.

A host has its own network, mount, UTS, IPC and pid namespace, and private writable layers over /etc, /var/lib, /var/cache
and /var/log (overlays), /run and Ansible's folder of root (tmpfs), an empty ~/.bashrc: what is done there never touches the machine. It shares
the packages, /dev, /tmp and the rest.
A bridge joins the hosts with the controller (this machine): management 198.18.X.0/24, and a second network whose Linux
bridge ``br-guests`` in each host is for guests that are to be on one network across hosts (198.19.X.0/24).

    python3 tests/lab/lab.py up 3 --dir D         make compute1..compute3; writes D/inventory.yml, D/ssh/id_ed25519, D/lab.json
    python3 tests/lab/lab.py status --dir D       what is up, and what was made to fail
    python3 tests/lab/lab.py exec --dir D compute1 virsh list --all
    python3 tests/lab/lab.py fail --dir D compute2 libvirtd|network|ssh|spawn|disk       and: restore compute2
    python3 tests/lab/lab.py down --dir D [--keep]  leaves nothing, also after a crash (--keep: the files in D stay)
    python3 tests/lab/lab.py down --all           every lab of this machine

Needs root, the Debian packages of scripts/lib.sh, and nothing from PyPI.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

PREFIX = "bfl"
PRIVATE_TREES = ("/etc", "/var/lib", "/var/cache", "/var/log")
GROUP = "bootflow_compute"
REMOTE_HOME = "/root/.ansible"  # Ansible's files on a host; a controller on this machine has its own of the same name
# Temporary files of what runs on a host by SSH: modules that are killed leave theirs behind, and the lab removes them.
TEMPORARY = "/var/cache/lab"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FAILURES = ("libvirtd", "network", "ssh", "spawn", "disk")
SHELL_FILE = "/root/.bashrc"  # read before each command that comes by SSH; what this machine's says is not the hosts'
INSTANCES_PATH = "/var/lib/bootflow/instances"
PROGRAMS = (
    "ip",
    "unshare",
    "nsenter",
    "sshd",
    "ssh-keygen",
    "libvirtd",
    "virtlogd",
    "virsh",
    "dnsmasq",
    "qemu-system-x86_64",
)
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
SPAWN_FAILS = "/run/lab-spawn-fails"

# libvirt runs this before each start of a domain; a non-zero exit is a failed spawn (lab.py fail HOST spawn).
QEMU_HOOK = """#!/bin/sh
if [ "$2" = prepare ] && [ -e %s ]; then
    echo "the lab was told to fail spawns on this host" >&2
    exit 1
fi
exit 0
""" % (SPAWN_FAILS,)


class LabError(Exception):
    pass


def run(*argv, check=True, timeout=60, **kwargs):
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
        pass_fds=_locks,
        **kwargs,
    )
    if check and done.returncode:
        raise LabError("%s: exit %d: %s" % (" ".join(argv), done.returncode, done.stdout.strip()))
    return done


def end_ssh_connections(folder):
    """End the connections that ssh keeps open in ``folder``, whoever opened them: ansible-playbook or a test. Remove the folder.

    A connection to a host that ends without a word stays for half a minute and more.
    """
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        run("ssh", "-O", "exit", "-o", "ControlPath=%s" % (path.replace("%", "%%"),), "lab", check=False, timeout=20)
    shutil.rmtree(folder, ignore_errors=True)


def interfaces():
    """What `ip` says of each interface of this machine and its addresses.

    While others come and go the kernel may end its list early; ip says so before what it has, and is asked again.
    """
    for _attempt in range(50):
        said = run("ip", "-json", "address", "show").stdout
        if not said.startswith("Dump was interrupted"):
            return json.loads(said)
    raise LabError("ip address show: each of 50 lists was interrupted")


def wait_until(condition, timeout, what):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise LabError("%s did not happen within %d s" % (what, timeout))
        time.sleep(0.05)


_locks = []  # descriptors of the lock below, while this process has it


@contextlib.contextmanager
def alone():
    """What labs of this machine do one at a time: take a subnet, make and remove namespaces.

    Commands that run meanwhile have the lock, too: where this process is killed, the next one waits for the command's end
    and sees what it made.
    """
    folder = os.open("/run", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        _locks.append(folder)
        try:
            yield
        finally:
            _locks.remove(folder)
    finally:
        os.close(folder)


class Host:
    """One compute host; everything of it can be found from the lab's id and its number."""

    def __init__(self, lab, number):
        self.lab = lab
        self.number = number
        self.name = "compute%d" % number
        self.namespace = "%s%s-%d" % (PREFIX, lab.id, number)
        self.veths = tuple("%s%s%s%d" % (PREFIX, lab.id, kind, number) for kind in "mg")
        self.address = "198.18.%d.%d" % (lab.subnet, 10 + number)
        self.guest_network_address = "198.19.%d.%d" % (lab.subnet, 10 + number)
        self.directory = os.path.join(lab.directory, "hosts", self.name)

    def make_links(self):
        run("ip", "netns", "add", self.namespace)
        inside = ("ip", "-n", self.namespace)
        for veth, bridge, name in zip(self.veths, self.lab.bridges, ("eth0", "eth1")):
            run("ip", "link", "add", veth, "type", "veth", "peer", "name", name, "netns", self.namespace)
            run("ip", "link", "set", veth, "master", bridge, "up")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "address", "add", self.address + "/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "add", "br-guests", "type", "bridge")
        run(*inside, "link", "set", "eth1", "master", "br-guests", "up")
        run(*inside, "address", "add", self.guest_network_address + "/24", "dev", "br-guests")
        run(*inside, "link", "set", "br-guests", "up")

    def start(self):
        os.makedirs(self.directory, exist_ok=True)
        with open(os.path.join(self.directory, "init.log"), "wb") as log:
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    self.namespace,
                    "unshare",
                    "--mount",
                    "--uts",
                    "--ipc",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                ]
                + ["/usr/bin/python3", os.path.abspath(__file__), "init", "--dir", self.lab.directory, self.name],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, timeout=60):
        ready = os.path.join(self.directory, "ready")
        failed = os.path.join(self.directory, "failed")
        wait_until(lambda: os.path.exists(ready) or os.path.exists(failed), timeout, "start of %s" % (self.name,))
        if os.path.exists(failed):
            with open(os.path.join(self.directory, "init.log"), encoding="utf-8", errors="replace") as log:
                raise LabError("%s did not start: %s" % (self.name, log.read()[-2000:]))

    def pids(self):
        """Everything that lives in the host's network namespace, as this machine numbers it."""
        done = run("ip", "netns", "pids", self.namespace, check=False)
        return [int(word) for word in done.stdout.split()] if done.returncode == 0 else []

    def init_pid(self):
        """The host's PID 1: its number in its own pid namespace is 1."""
        for pid in self.pids():
            try:
                with open("/proc/%d/status" % (pid,), encoding="ascii", errors="replace") as status:
                    numbers = [line.split()[1:] for line in status if line.startswith("NSpid:")]
            except OSError:
                continue
            if numbers and len(numbers[0]) > 1 and numbers[0][-1] == "1":
                return pid
        return None

    def command(self, *argv):
        """The argument list that runs ``argv`` in the host."""
        pid = self.init_pid()
        if pid is None:
            raise LabError("%s is not up" % (self.name,))
        return (
            [
                "nsenter",
                "--target",
                str(pid),
                "--mount",
                "--root",
                "--uts",
                "--ipc",
                "--net",
                "--pid",
                "--wd=/",
                "--",
                "env",
                "-i",
            ]
            + ["%s=%s" % pair for pair in ENVIRONMENT.items()]
            + list(argv)
        )

    def run(self, *argv, check=True, timeout=60):
        return run(*self.command(*argv), check=check, timeout=timeout)

    def fail(self, kind, path=INSTANCES_PATH):
        """Break the host: see FAILURES. ``disk`` puts a full file system on ``path`` (what was there is hidden until restore)."""
        if kind == "libvirtd":
            self.stop_daemon("libvirtd")
        elif kind == "ssh":
            self.stop_daemon("sshd")
        elif kind == "network":
            run("ip", "link", "set", self.veths[0], "down")
        elif kind == "spawn":
            self.run("touch", SPAWN_FAILS)
        elif kind == "disk":
            self.run("mkdir", "-p", path)
            self.run("mount", "-t", "tmpfs", "-o", "size=64k", "lab-full-disk", path)
            self.run("sh", "-c", "head -c 1M /dev/zero > %s/.filler 2>/dev/null || true" % (path,))
        else:
            raise LabError("unknown failure %r; there are: %s" % (kind, ", ".join(FAILURES)))
        self.lab.note_failure(self.name, kind)

    def restore(self):
        """Undo every failure; returns when the host works again."""
        run("ip", "link", "set", self.veths[0], "up")
        self.run("rm", "-f", SPAWN_FAILS)
        for line in self.run("cat", "/proc/mounts").stdout.splitlines():
            device, path = line.split()[:2]
            if device == "lab-full-disk":
                self.run("umount", path)
        failures = self.lab.failures().get(self.name, [])
        if "libvirtd" in failures:
            self.run("libvirtd", "-d")
            wait_until(
                lambda: self.run("virsh", "-c", "qemu:///system", "version", check=False).returncode == 0,
                30,
                "start of libvirtd",
            )
        if "ssh" in failures:
            self.run(*sshd_command(self.lab.directory, self.name))
        wait_until(self.ssh_answers, 30, "an answer of %s's sshd" % (self.name,))
        self.lab.note_failure(self.name, None)

    def begin_to_end(self):
        """systemd shuts it down; its guests end first. restart() follows."""
        says = "#!/bin/sh\\necho stopping\\nexit 1\\n"
        self.run(
            "sh", "-c", "mkdir -p /run/systemd/system; printf '%s' >/run/systemctl; chmod 755 /run/systemctl" % says
        )
        self.run("mount", "--bind", "/run/systemctl", shutil.which("systemctl"))

    def restart(self):
        """As its power button does it: guests and networks end, /run is empty of them, libvirt starts, the kernel has another boot_id."""
        self.stop_daemon("libvirtd")
        if "systemctl" in self.run("cat", "/proc/mounts").stdout:
            self.run("umount", shutil.which("systemctl"))
            self.run("rm", "-r", "/run/systemd")
        self.run(
            "sh", "-c", "pkill -KILL qemu-system; pkill -KILL dnsmasq; rm -rf /run/libvirt/qemu /run/libvirt/network"
        )
        wait_until(lambda: self.run("pgrep", "qemu-system", check=False).returncode != 0, 10, "end of the guests")
        for path in self.run("sh", "-c", "ls -d /sys/class/net/*/bridge 2>/dev/null || true").stdout.split():
            self.run("ip", "link", "delete", path.split("/")[4])
        self.run("sh", "-c", "echo %s >/run/lab-boot-id" % uuid.uuid4())
        if BOOT_ID not in self.run("cat", "/proc/mounts").stdout:
            self.run("mount", "--bind", "/run/lab-boot-id", BOOT_ID)
        self.run("libvirtd", "-d")
        wait_until(
            lambda: self.run("virsh", "-c", "qemu:///system", "version", check=False).returncode == 0,
            30,
            "start of libvirtd",
        )

    def stop_daemon(self, name):
        pid_file = {"libvirtd": "/run/libvirtd.pid", "sshd": "/run/sshd.pid"}[name]
        pid = self.run("cat", pid_file).stdout.strip()
        self.run("kill", "-KILL", pid)
        wait_until(lambda: self.run("kill", "-0", pid, check=False).returncode != 0, 10, "end of %s" % (name,))

    def ssh_answers(self):
        try:
            with socket.create_connection((self.address, 22), timeout=1) as connection:
                connection.settimeout(2)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


class Lab:
    """All hosts of one folder. Names of namespaces and links come from the folder's path: no state is needed to clean up."""

    def __init__(self, directory):
        self.directory = os.path.abspath(directory)
        if any(
            (self.directory + "/").startswith(tree + "/") for tree in PRIVATE_TREES + ("/run", "/dev", "/proc", "/sys")
        ):
            raise LabError("%s is in a tree that each host replaces: take another --dir" % (self.directory,))
        self.id = hashlib.sha256(os.fsencode(os.path.realpath(self.directory))).hexdigest()[:4]
        self.bridges = ("%s%sm" % (PREFIX, self.id), "%s%sg" % (PREFIX, self.id))
        self.control_path = "/tmp/%s%s" % (PREFIX, self.id)
        self.inventory = os.path.join(self.directory, "inventory.yml")
        self.private_key = os.path.join(self.directory, "ssh", "id_ed25519")
        self.state_file = os.path.join(self.directory, "lab.json")

    @property
    def subnet(self):
        """The third byte of the lab's addresses: no other lab that is up has it."""
        return self.state()["subnet"]

    @property
    def controller_address(self):
        return "198.18.%d.254" % (self.subnet,)

    def free_subnet(self):
        """The one that the id names, or the next that no lab has."""
        taken = {address["local"] for link in interfaces() for address in link["addr_info"]}
        wanted = int(self.id, 16) % 254
        for subnet in ((wanted + n) % 254 + 1 for n in range(254)):
            if "198.19.%d.254" % (subnet,) not in taken:
                return subnet
        raise LabError("each subnet from 198.19.1.0/24 to 198.19.254.0/24 is taken: lab.py down --all")

    @property
    def hosts(self):
        return [Host(self, number) for number in range(1, self.state().get("hosts", 0) + 1)]

    def host(self, name):
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(
            "no host %s in the lab %s: it has %s"
            % (name, self.directory, ", ".join(h.name for h in self.hosts) or "none")
        )

    def state(self):
        try:
            with open(self.state_file, encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def save_state(self, state):
        with open(self.state_file + ".new", "w", encoding="utf-8") as file:
            json.dump(state, file, indent=1)
        os.replace(self.state_file + ".new", self.state_file)

    def failures(self):
        return self.state().get("failures", {})

    def note_failure(self, host, kind):
        state = self.state()
        failures = state.setdefault("failures", {})
        if kind is None:
            failures.pop(host, None)
        elif kind not in failures.setdefault(host, []):
            failures[host].append(kind)
        self.save_state(state)

    def up(self, count, variables=None):
        """Make ``count`` hosts; a lab that was there before is taken down first. On failure nothing is left."""
        if os.geteuid() != 0:
            raise LabError("namespaces need root")
        missing = [program for program in PROGRAMS if shutil.which(program, path=ENVIRONMENT["PATH"]) is None]
        if missing:
            raise LabError("missing programs: %s; see scripts/lib.sh for the Debian packages" % (", ".join(missing),))
        self.down()
        os.makedirs(self.directory, exist_ok=True)
        try:
            with alone():
                self.save_state(
                    {
                        "id": self.id,
                        "subnet": self.free_subnet(),
                        "hosts": count,
                        "host_uuids": {"compute%d" % n: str(uuid.uuid4()) for n in range(1, count + 1)},
                    }
                )
                for bridge, network in zip(self.bridges, ("198.18", "198.19")):
                    run("ip", "link", "add", bridge, "type", "bridge")
                    run("ip", "address", "add", "%s.%d.254/24" % (network, self.subnet), "dev", bridge)
                    run("ip", "link", "set", bridge, "up")
                for host in self.hosts:
                    host.make_links()
            self.make_keys()
            for host in self.hosts:
                host.start()
            for host in self.hosts:
                host.wait_ready()
                wait_until(host.ssh_answers, 30, "an answer of %s's sshd" % (host.name,))
            self.write_inventory(variables or {})
        except BaseException:
            self.down(keep_files=True)
            raise

    def make_keys(self):
        ssh = os.path.join(self.directory, "ssh")
        os.makedirs(ssh, mode=0o700, exist_ok=True)
        for name in ("id_ed25519", "host_ed25519"):
            if not os.path.exists(os.path.join(ssh, name)):
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bootflow lab", "-f", os.path.join(ssh, name))
        with open(os.path.join(ssh, "host_ed25519.pub"), encoding="ascii") as file:
            key = " ".join(file.read().split()[:2])
        with open(os.path.join(ssh, "known_hosts"), "w", encoding="ascii") as file:
            for host in self.hosts:
                file.write("%s %s\n" % (host.address, key))

    def write_inventory(self, variables):
        """YAML whose values are written as JSON, which YAML reads: nothing has to be quoted by hand."""
        common = {
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_pipelining": True,
            "ansible_ssh_args": "-o ControlMaster=auto -o ControlPersist=60s",  # as the sample inventory fleet: without -C
            "ansible_ssh_private_key_file": self.private_key,
            "ansible_control_path_dir": self.control_path,
            "ansible_ssh_common_args": "-o UserKnownHostsFile=%s -o ConnectTimeout=5 -o ServerAliveInterval=2 -o ServerAliveCountMax=2 -o IdentitiesOnly=yes"
            % (os.path.join(self.directory, "ssh", "known_hosts"),),
        }
        common.update(variables)
        lines = ["---", "# Written by tests/lab/lab.py", "all:", "  children:", "    %s:" % (GROUP,), "      vars:"]
        lines += ["        %s: %s" % (name, json.dumps(value)) for name, value in common.items()]
        lines.append("      hosts:")
        for host in self.hosts:
            lines += ["        %s:" % (host.name,), "          ansible_host: %s" % (host.address,)]
        with open(self.inventory, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def down(self, keep_files=False):
        """Leave nothing: processes, namespaces, links, files. Works from names alone, so also after a crash."""
        end_ssh_connections(self.control_path)
        remove_leftovers(PREFIX + self.id)
        if keep_files:
            return
        for name in ("hosts", "ssh", "host_vars"):
            shutil.rmtree(os.path.join(self.directory, name), ignore_errors=True)
        for path in (self.inventory, self.state_file, self.state_file + ".new"):
            if os.path.exists(path):
                os.unlink(path)
        if os.path.isdir(self.directory) and not os.listdir(self.directory):
            os.rmdir(self.directory)

    def status(self):
        failures = self.failures()
        return [
            {
                "host": host.name,
                "address": host.address,
                "up": host.init_pid() is not None,
                "ssh": host.ssh_answers(),
                "failures": failures.get(host.name, []),
            }
            for host in self.hosts
        ]


def leftovers(prefix=PREFIX):
    """(network namespaces, links) of this machine whose names begin with ``prefix``."""
    namespaces = [
        line.split()[0]
        for line in run("ip", "netns", "list", check=False).stdout.splitlines()
        if line.startswith(prefix)
    ]
    links = [entry["ifname"] for entry in interfaces() if entry["ifname"].startswith(prefix)]
    return namespaces, links


def remove_leftovers(prefix):
    with alone():
        _remove(*leftovers(prefix))


def _remove(namespaces, links):
    for namespace in namespaces:
        for _round in range(200):
            pids = run("ip", "netns", "pids", namespace, check=False).stdout.split()
            if not pids:
                break
            for pid in pids:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except (ProcessLookupError, ValueError):
                    pass
            time.sleep(0.05)
        else:
            raise LabError("processes in %s do not end: %s" % (namespace, " ".join(pids)))
        run("ip", "netns", "delete", namespace)
    for link in links:
        run("ip", "link", "delete", link, check=False)
    # `ip netns add` mounts /run/netns onto itself; the last lab takes that away again.
    if namespaces and os.path.isdir("/run/netns") and not os.listdir("/run/netns"):
        run("umount", "/run/netns", check=False)
        try:
            os.rmdir("/run/netns")
        except OSError:
            pass


# ---- what runs inside a host -------------------------------------------------------------------------------------------


def sshd_command(directory, name):
    return [
        "/usr/sbin/sshd",
        "-f",
        os.path.join(directory, "hosts", name, "sshd_config"),
        "-E",
        os.path.join(directory, "hosts", name, "sshd.log"),
    ]


def mount_private_trees(directory):
    """Overlays with their upper side in the lab's folder; in memory where that file system can not carry one."""
    layers = os.path.join(directory, "layers")
    for tree in PRIVATE_TREES:
        for base in (layers, os.path.join("/run", "layers")):
            upper, work = (os.path.join(base, tree.strip("/").replace("/", "-"), part) for part in ("upper", "work"))
            os.makedirs(upper, exist_ok=True)
            os.makedirs(work, exist_ok=True)
            done = run(
                "mount",
                "-t",
                "overlay",
                "overlay",
                "-o",
                "lowerdir=%s,upperdir=%s,workdir=%s" % (tree, upper, work),
                tree,
                check=False,
            )
            if done.returncode == 0:
                break
        else:
            raise LabError("no overlay over %s: %s" % (tree, done.stdout.strip()))


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def configure_host(lab, host, host_uuid):
    write("/etc/hostname", host.name + "\n")
    write(
        "/etc/hosts",
        "127.0.0.1 localhost\n::1 localhost\n"
        + "".join("%s %s\n" % (other.address, other.name) for other in lab.hosts),
    )
    write("/etc/machine-id", uuid.UUID(host_uuid).hex + "\n")
    write(
        "/etc/libvirt/libvirtd.conf",
        'host_uuid = "%s"\nauth_unix_ro = "none"\nauth_unix_rw = "none"\nlog_outputs = "3:file:%s"\n'
        % (host_uuid, os.path.join(host.directory, "libvirtd.log")),
    )
    write("/etc/libvirt/virtlogd.conf", 'log_outputs = "3:file:%s"\n' % (os.path.join(host.directory, "virtlogd.log"),))
    write(
        "/etc/libvirt/qemu.conf",
        "cgroup_controllers = [ ]\nmax_processes = 0\n",
    )
    write("/etc/libvirt/hooks/qemu", QEMU_HOOK, 0o755)
    # The machine's own domains, storage pools and networks are no business of the host; it has libvirt's `default` network.
    for path in (
        "/etc/libvirt/qemu",
        "/etc/libvirt/storage",
        "/etc/libvirt/secrets",
        "/var/lib/libvirt",
        "/var/cache/libvirt",
        "/var/log/libvirt",
    ):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    os.makedirs(TEMPORARY, mode=0o700, exist_ok=True)
    network = "/etc/libvirt/qemu/networks/default.xml"
    write(
        network,
        "<network><name>default</name><bridge name='virbr0'/><forward/>"
        "<ip address='192.168.122.1' netmask='255.255.255.0'><dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp></ip></network>\n",
    )
    os.makedirs("/etc/libvirt/qemu/networks/autostart")
    os.symlink(network, "/etc/libvirt/qemu/networks/autostart/default.xml")
    with open("/etc/shadow", encoding="utf-8") as shadow:
        locked = any(line.startswith("root:!") for line in shadow)
    ssh = os.path.join(lab.directory, "ssh")
    write(
        os.path.join(host.directory, "sshd_config"),
        "\n".join(
            [
                "ListenAddress %s" % (host.address,),
                "HostKey %s/host_ed25519" % (ssh,),
                "AuthorizedKeysFile %s/id_ed25519.pub" % (ssh,),
                "PidFile /run/sshd.pid",
                "PermitRootLogin prohibit-password",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "StrictModes no",
                "UsePAM %s" % ("yes" if locked else "no",),  # without PAM sshd refuses a root whose password is locked
                "UseDNS no",
                "PrintMotd no",
                "MaxStartups 200",
                "MaxSessions 200",
                "SetEnv TMPDIR=%s" % (TEMPORARY,),
                "Subsystem sftp internal-sftp",
                "",
            ]
        ),
    )


def host_init(lab, name):
    """PID 1 of a host: private trees, daemons, then reap children until the end (SIGKILL of the whole namespace)."""
    host = lab.host(name)
    for stale in ("ready", "failed"):
        if os.path.exists(os.path.join(host.directory, stale)):
            os.unlink(os.path.join(host.directory, stale))
    try:
        run("hostname", name)
        run("mount", "--make-rprivate", "/")
        run("mount", "-t", "tmpfs", "-o", "mode=755", "lab-run", "/run")
        for path in ("/run/lock", "/run/sshd", "/run/libvirt"):
            os.makedirs(path)
        os.makedirs(REMOTE_HOME, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "mode=700", "lab-ansible", REMOTE_HOME)
        if os.path.exists(SHELL_FILE):
            run("mount", "--bind", "/dev/null", SHELL_FILE)
        mount_private_trees(host.directory)
        configure_host(lab, host, lab.state()["host_uuids"][name])
        for sysctl in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            path = "/proc/sys/net/" + sysctl
            if os.path.exists(path):
                with open(path, "w", encoding="ascii") as file:
                    file.write("1\n")
        run(sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "kvm_device.py"))
        run("virtlogd", "-d")
        run("libvirtd", "-d")
        run(*sshd_command(lab.directory, name))
        active = ("virsh", "-c", "qemu:///system", "net-info", "default")
        wait_until(
            lambda: "Active:         yes" in run(*active, check=False).stdout, 40, "start of libvirt's default network"
        )
        write(os.path.join(host.directory, "ready"), "")
    except Exception as error:
        print(error, flush=True)
        write(os.path.join(host.directory, "failed"), "")
        return 1
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.5)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, help_text):
        sub = commands.add_parser(name, help=help_text)
        sub.add_argument(
            "--dir", default=os.path.join(os.getcwd(), ".cache", "lab"), help="the lab's folder (default: .cache/lab)"
        )
        return sub

    sub = command("up", "make the hosts")
    sub.add_argument("count", nargs="?", type=int, default=3)
    sub.add_argument(
        "--var",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a group variable for the inventory (JSON, or else a string)",
    )
    sub = command("down", "remove the hosts")
    sub.add_argument("--keep", action="store_true", help="leave the files in place")
    sub.add_argument("--all", action="store_true", help="every lab of this machine")
    command("status", "print the hosts as JSON")
    sub = command("exec", "run a command in a host")
    sub.add_argument("host")
    sub.add_argument("argv", nargs=argparse.REMAINDER)
    sub = command("fail", "break a host")
    sub.add_argument("host")
    sub.add_argument("kind", choices=FAILURES)
    sub.add_argument("--path", default=INSTANCES_PATH, help="for disk: the folder that is to be full")
    sub = command("restore", "mend a host")
    sub.add_argument("host")
    sub = command("init", "(PID 1 of a host)")
    sub.add_argument("host")
    options = parser.parse_args(arguments)

    lab = Lab(options.dir)
    if options.command == "up":
        variables = {}
        for item in options.var:
            name, _sep, text = item.partition("=")
            try:
                variables[name] = json.loads(text)
            except ValueError:
                variables[name] = text
        start = time.monotonic()
        lab.up(options.count, variables)
        print("%d hosts up in %.1f s; inventory: %s" % (options.count, time.monotonic() - start, lab.inventory))
    elif options.command == "down":
        lab.down(keep_files=options.keep)
        if options.all:
            remove_leftovers(PREFIX)
    elif options.command == "status":
        print(json.dumps(lab.status(), indent=1))
    elif options.command == "exec":
        argv = lab.host(options.host).command(*options.argv)
        os.execvp(argv[0], argv)
    elif options.command == "fail":
        lab.host(options.host).fail(options.kind, options.path)
    elif options.command == "restore":
        lab.host(options.host).restore()
    elif options.command == "init":
        return host_init(lab, options.host)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as problem:
        print("lab: %s" % (problem,), file=sys.stderr)
        sys.exit(1)
