# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A storage host, or a compute host, for tests: an emulated machine with a kernel of its own, so that LVM, LIO, tgt and the kernel's iSCSI
initiator are the real ones.

Its image is what scripts/build-storage-image made; each start of a new machine has a fresh qcow2 layer over it, and empty disks
for physical volumes (/dev/disk/by-id/virtio-pv1, ...). Beside a lab.Lab it is on the lab's management bridge (a tap), where the
lab's hosts reach its iSCSI portals; with ``host_link`` on a tap of this machine, which reaches it; alone it is behind QEMU's user
network with ports of 127.0.0.1 forwarded.

    python3 tests/lab/storage_vm.py up --dir D [--lab LABDIR | --host-link] [--keep] [--disks 2 --disk-gb 4 --kind storage --suite trixie]
        prints how to reach it, as JSON
    python3 tests/lab/storage_vm.py exec --dir D lvs
    python3 tests/lab/storage_vm.py down --dir D

In a test::

    vm = StorageVM(folder, build_image(cache), lab=lab, disks={"pv1": 4 * GIB})
    vm.start()
    vm.run("vgcreate", "cinder-volumes", vm.disk("pv1"))
    vm.crash(); vm.start(keep=True)      # power lost and back: the same disks
    vm.stop()                            # before lab.down(); leaves nothing but files in ``folder``
    StorageVM(folder, image, lab, {}, kind="compute")     # the same machine with libvirtd and iscsid running
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab import PREFIX, Lab, LabError, end_ssh_connections, run, wait_until  # noqa: E402

GIB = 1024**3
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GROUPS = {"storage": "bootflow_storage", "compute": "bootflow_compute"}
PORTS = (22, 3260)
SILENCE = 60  # seconds


def build_image(cache, suite=None):
    """The path of the image below ``cache`` (a folder), made when it is not there.

    :arg suite: Debian's bookworm or trixie; None: that of the environment variable SUITE, else the script's default.
    """
    done = subprocess.run(
        [os.path.join(ROOT, "scripts", "build-storage-image"), str(cache)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "SUITE": suite} if suite else None,
    )
    return done.stdout.strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class StorageVM:
    """One emulated machine. Everything of it is in ``directory``; the tap's name comes from the lab's id and ``number``.

    :arg image: what build_image() gave.
    :arg lab: a lab.Lab that is up; None for a machine of its own behind forwarded ports.
    :arg disks: {serial: bytes} of the empty disks.
    :arg cpus: with two, emulated CPUs wait for each other where the cores under them have other work, too; that takes longer than one.
    :arg kind: storage, or compute: one with libvirtd and iscsid running, which is of the group ``bootflow_compute``.
    :arg host_link: without a lab, a link between it and this machine, which needs root, instead of forwarded ports.
    """

    def __init__(
        self,
        directory,
        image,
        lab=None,
        disks=None,
        number=1,
        memory_mb=1536,
        cpus=1,
        kind="storage",
        host_link=False,
    ):
        self.directory = os.path.abspath(directory)
        self.image = image
        self.lab = lab
        self.disks = dict(disks if disks is not None else {"pv1": 4 * GIB, "pv2": 4 * GIB})
        self.number = number
        self.kind = kind
        self.name = "%s%d" % (kind, number)
        self.memory_mb = memory_mb
        self.cpus = cpus
        self.pid_file = os.path.join(self.directory, "qemu.pid")
        self.console = os.path.join(self.directory, "console.log")
        self.private_key = os.path.join(self.directory, "id_ed25519")
        self.known_hosts = os.path.join(self.directory, "known_hosts")
        digest = hashlib.sha256(self.directory.encode()).hexdigest()
        # An ssh socket's path may have 108 characters only.
        self.control_path = "/tmp/%ssvm%s" % (PREFIX, digest[:6])
        self.mac = "52:54:00:5b:%s:%s" % (digest[:2], digest[2:4])
        self.uuid = str(uuid.UUID(digest[:32]))
        self.ports = {}
        self.host_address = None
        if lab is None and host_link:
            self.tap = "%s%s%s%d" % (PREFIX, digest[:4], kind[0], number)
            # The other half of 198.18.0.0/15: labs are in the first.
            subnet = int(digest[:4], 16) % 254 + 1
            self.host_address = "198.19.%d.254/24" % (subnet,)
            self.address = "198.19.%d.%d" % (subnet, 200 + number)
            self.inside = self.address + "/24"
        elif lab is not None:
            self.tap = "%s%s%s%d" % (PREFIX, lab.id, kind[0], number)
            self.address = "198.18.%d.%d" % (lab.subnet, {"storage": 200, "compute": 220}[kind] + number)
            self.inside = self.address + "/24"
        else:
            self.tap = None
            self.address = "127.0.0.1"
            self.inside = "10.0.2.15/24"

    def disk(self, serial):
        """The path of a disk in the machine."""
        return "/dev/disk/by-id/virtio-%s" % (serial,)

    @property
    def ssh_port(self):
        return self.ports.get(22, 22)

    @property
    def portal(self):
        """Where an initiator reaches iSCSI: address:port. Alone only this machine can; beside a lab its hosts too."""
        return "%s:%d" % (self.address, self.ports.get(3260, 3260))

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self, keep=False, timeout=120):
        """Start it and wait for its sshd; with ``keep`` on the disks as they are, else all new.

        One that says nothing is started again: once in some 80 starts its CPUs are busy for ever before it has seen a disk, and
        nobody knows why.
        """
        self.stop(quiet=True)
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._make_disks(keep)
        self._make_keys()
        self._launch()
        for _again in range(2):
            if self._speaks(SILENCE):
                break
            print("%s said nothing for %d s: it is started again" % (self.name, SILENCE), file=sys.stderr)
            self.stop(quiet=True)
            self._launch()
        try:
            wait_until(self._answers_or_ended, timeout, "an answer of %s's sshd" % (self.name,))
            if not self.is_running():
                raise LabError("%s ended while it started" % (self.name,))
            self._wait_ready(timeout)
        except LabError as error:
            tail = self._said()[-2000:]
            self.stop(quiet=True)
            raise LabError("%s; its console: %s" % (error, tail)) from None

    def _launch(self):
        if os.path.exists(self.console):
            os.unlink(self.console)
        network = self._network()
        argv = ["qemu-system-x86_64", "-name", self.name, "-machine", "pc", "-accel", "tcg,thread=multi"]
        argv += [
            "-m",
            str(self.memory_mb),
            "-smp",
            str(self.cpus),
            "-display",
            "none",
            "-monitor",
            "none",
            "-no-reboot",
        ]
        argv += ["-serial", "file:" + self.console, "-pidfile", self.pid_file, "-daemonize"]
        base = self.image[: -len(".qcow2")]
        argv += ["-kernel", base + ".vmlinuz", "-initrd", base + ".initrd"]
        argv += [
            "-append",
            "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check net.ifnames=0 random.trust_cpu=on security=apparmor apparmor=1",
        ]
        argv += self._drive("root", "root.qcow2", "qcow2") + self._drive("config", "config.tar", "raw")
        for serial in self.disks:
            argv += self._drive(serial, serial + ".raw", "raw")
        argv += network + ["-device", "virtio-rng-pci"]
        run(*argv, timeout=60)

    def _said(self):
        with open(self.console, encoding="utf-8", errors="replace") as console:
            return console.read()

    def _speaks(self, seconds):
        """Whether it says anything within so many seconds; true too where it ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._said() or not self.is_running():
                return True
            time.sleep(0.2)
        return False

    def _answers_or_ended(self):
        return not self.is_running() or self.ssh_answers()

    def _wait_ready(self, timeout):
        wait_until(
            lambda: "lab: %s is ready" % (self.name,) in self._said(), timeout, "the end of %s's start" % (self.name,)
        )

    def _drive(self, serial, name, image_format):
        return [
            "-drive",
            "file=%s,if=none,id=%s,format=%s,cache=writeback,discard=unmap,file.locking=off"
            % (os.path.join(self.directory, name).replace(",", ",,"), serial, image_format),
            "-device",
            "virtio-blk-pci,drive=%s,serial=%s" % (serial, serial),
        ]

    def _network(self):
        if self.tap is not None:
            run("ip", "link", "delete", self.tap, check=False)
            run("ip", "tuntap", "add", "dev", self.tap, "mode", "tap")
            if self.lab is not None:
                run("ip", "link", "set", self.tap, "master", self.lab.bridges[0])
            else:
                run("ip", "address", "add", self.host_address, "dev", self.tap)
            run("ip", "link", "set", self.tap, "up")
            backend = "tap,id=n0,ifname=%s,script=no,downscript=no" % (self.tap,)
        else:
            self.ports = {port: free_port() for port in PORTS}
            backend = "user,id=n0" + "".join(",hostfwd=tcp:127.0.0.1:%d-:%d" % (o, i) for i, o in self.ports.items())
        with open(os.path.join(self.directory, "known_hosts"), "w", encoding="ascii") as file:
            with open(os.path.join(self.directory, "host_ed25519.pub"), encoding="ascii") as key:
                words = " ".join(key.read().split()[:2])
            at = self.address if self.ssh_port == 22 else "[%s]:%d" % (self.address, self.ssh_port)
            file.write("%s %s\n" % (at, words))
        self._write_config()
        self._save()
        return ["-netdev", backend, "-device", "virtio-net-pci,netdev=n0,mac=%s" % (self.mac,)]

    def _make_disks(self, keep):
        """:arg keep: leave those that are there, but for a root over an image that was built anew since."""
        root = os.path.join(self.directory, "root.qcow2")
        if not keep or not os.path.exists(root) or os.path.getmtime(root) < os.path.getmtime(self.image):
            run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", os.path.abspath(self.image), root)
        for serial, size in self.disks.items():
            path = os.path.join(self.directory, serial + ".raw")
            if not keep or not os.path.exists(path):
                with open(path, "wb") as file:
                    file.truncate(size)

    def _make_keys(self):
        for name in ("id_ed25519", "host_ed25519"):
            path = os.path.join(self.directory, name)
            if not os.path.exists(path):
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bootflow lab", "-f", path)

    def _write_config(self):
        environment = {
            "LAB_NAME": self.name,
            "LAB_ADDRESS": self.inside,
            "LAB_KIND": self.kind,
            "LAB_UUID": self.uuid,
        }
        if self.tap is None:
            environment["LAB_GATEWAY"] = "10.0.2.2"
        keys = []
        for path in [self.private_key + ".pub"] + ([self.lab.private_key + ".pub"] if self.lab is not None else []):
            with open(path, encoding="ascii") as file:
                keys.append(file.read())
        with open(os.path.join(self.directory, "host_ed25519"), encoding="ascii") as file:
            host_key = file.read()
        files = {
            "env": "".join("%s=%s\n" % (k, shlex.quote(v)) for k, v in environment.items()),
            "authorized_keys": "".join(keys),
            "ssh_host_ed25519_key": host_key,
        }
        with tarfile.open(os.path.join(self.directory, "config.tar"), "w") as tar:
            for name, text in files.items():
                data = text.encode()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o600
                tar.addfile(member, io.BytesIO(data))

    def _save(self):
        data = {"name": self.name, "address": self.address, "ports": self.ports, "tap": self.tap, "number": self.number}
        data.update(image=self.image, disks=self.disks, lab=self.lab.directory if self.lab is not None else None)
        data.update(kind=self.kind, host_link=self.host_address is not None)
        with open(os.path.join(self.directory, "storage.json"), "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)

    @classmethod
    def load(cls, directory):
        """The machine that another process started in ``directory``."""
        with open(os.path.join(directory, "storage.json"), encoding="utf-8") as file:
            data = json.load(file)
        lab = Lab(data["lab"]) if data["lab"] else None
        link = data["host_link"]
        vm = cls(directory, data["image"], lab, data["disks"], data["number"], kind=data["kind"], host_link=link)
        vm.ports = {int(inner): outer for inner, outer in data["ports"].items()}
        return vm

    def pid(self):
        """QEMU's process; None when it is not running (a number that another program has by now is not it)."""
        try:
            with open(self.pid_file, encoding="ascii") as file:
                pid = int(file.read())
            with open("/proc/%d/cmdline" % (pid,), "rb") as file:
                return pid if os.fsencode(self.pid_file) in file.read().split(b"\0") else None
        except (OSError, ValueError):
            return None

    def is_running(self):
        return self.pid() is not None

    def crash(self):
        """The power goes: what the machine had not written to its disks is lost."""
        self._end(signal.SIGKILL)

    def stop(self, quiet=False):
        """End it and its links; the files stay. Nothing happens where nothing runs."""
        self._end(signal.SIGTERM)
        if self.tap is not None:
            run("ip", "link", "delete", self.tap, check=False)

    def _end(self, number):
        end_ssh_connections(self.control_path)
        pid = self.pid()
        if pid is not None:
            os.kill(pid, number)
            wait_until(lambda: not self.is_running(), 30, "end of %s" % (self.name,))
        if os.path.exists(self.pid_file):
            os.unlink(self.pid_file)

    def remove(self):
        """stop(), and take the files away too."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- work on it ------------------------------------------------------------------------------------------------

    def ssh_answers(self):
        try:
            with socket.create_connection((self.address, self.ssh_port), timeout=1) as connection:
                connection.settimeout(3)
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def ssh_options(self):
        return [
            "-o",
            "UserKnownHostsFile=%s" % (self.known_hosts,),
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "IdentitiesOnly=yes",
            "-o",
            "ConnectTimeout=10",
            "-o",
            "LogLevel=ERROR",
            "-o",
            "ControlMaster=auto",
            "-o",
            "ControlPersist=60",
            "-o",
            "ControlPath=%s/%%C" % (self.control_path,),
            "-i",
            self.private_key,
        ]

    def ssh_argv(self):
        os.makedirs(self.control_path, mode=0o700, exist_ok=True)
        return ["ssh"] + self.ssh_options() + ["-p", str(self.ssh_port), "root@" + self.address]

    def run(self, *argv, check=True, timeout=120, **kwargs):
        """Run ``argv`` on it (no shell has a say); .returncode and .stdout, with stderr in it."""
        return run(*self.ssh_argv(), shlex.join(argv), check=check, timeout=timeout, **kwargs)

    def put(self, source, target):
        """Copy a file onto it."""
        options = self.ssh_options()
        os.makedirs(self.control_path, mode=0o700, exist_ok=True)
        run("scp", "-q", *options, "-P", str(self.ssh_port), str(source), "root@%s:%s" % (self.address, target))

    def variables(self):
        """What an inventory says of it, to be one host of the group of its kind."""
        kind = {"bootflow_virt_type": "qemu", "bootflow_volume_attach": "kernel"} if self.kind == "compute" else {}
        return {
            **kind,
            "ansible_host": self.address,
            "ansible_port": self.ssh_port,
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_pipelining": True,
            "ansible_ssh_private_key_file": self.private_key,
            "ansible_control_path_dir": self.control_path,
            "ansible_ssh_common_args": "-o UserKnownHostsFile=%s -o ConnectTimeout=10 -o IdentitiesOnly=yes"
            # A machine whose power is gone says nothing; a busy one may need its time.
            " -o ServerAliveInterval=5 -o ServerAliveCountMax=6" % (self.known_hosts,),
        }

    def write_inventory(self, path, variables=None):
        """An inventory of this one host; beside the lab's own, with -i twice, it makes one of both."""
        host = dict(self.variables(), **(variables or {}))
        with open(path, "w", encoding="utf-8") as file:
            json.dump({GROUPS[self.kind]: {"hosts": {self.name: host}}}, file, indent=1)
        return path


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "down", "exec"):
        sub = commands.add_parser(name)
        sub.add_argument("--dir", required=True)
        if name == "up":
            cache = os.environ.get("BOOTFLOW_CACHE", os.path.join(ROOT, ".cache"))
            sub.add_argument("--image-cache", default=os.path.join(cache, "storage"))
            network = sub.add_mutually_exclusive_group()
            network.add_argument("--lab", help="folder of a lab that is up; its hosts reach the machine")
            network.add_argument("--host-link", action="store_true", help="a link to this machine; needs root")
            sub.add_argument(
                "--keep", action="store_true", help="running, as it is; else on the disks of the last time"
            )
            sub.add_argument("--disks", type=int, default=2)
            sub.add_argument("--disk-gb", type=int, default=4)
            sub.add_argument("--kind", choices=sorted(GROUPS), default="storage")
            sub.add_argument("--suite", choices=("bookworm", "trixie"))
        if name == "exec":
            sub.add_argument("argv", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.command == "up":
        lab = Lab(options.lab) if options.lab else None
        disks = {"pv%d" % n: options.disk_gb * GIB for n in range(1, options.disks + 1)}
        image = build_image(options.image_cache, options.suite)
        vm = StorageVM(options.dir, image, lab, disks, kind=options.kind, host_link=options.host_link)
        if not (options.keep and vm.is_running()):
            vm.start(keep=options.keep)
        vm.write_inventory(os.path.join(vm.directory, "inventory.json"))
        print(
            json.dumps({"ssh": shlex.join(vm.ssh_argv()), "portal": vm.portal, "variables": vm.variables()}, indent=1)
        )
    elif options.command == "down":
        StorageVM.load(options.dir).remove()
    else:
        argv = StorageVM.load(options.dir).ssh_argv() + [shlex.join(options.argv)]
        os.execvp(argv[0], argv)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as problem:
        print("storage_vm: %s" % (problem,), file=sys.stderr)
        sys.exit(1)
