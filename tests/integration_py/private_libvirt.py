# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A libvirtd of a test's own, in namespaces of this machine: what it does is gone with it.

    with PrivateLibvirt(folder) as host:
        host.run("virsh", "list")

Root, the Debian packages libvirt-daemon-system and qemu, and unshare are all it needs. QEMU is another user than root, as Debian has it, so that files of
guests are in a folder of make_folder(): pytest's own are closed to others.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

_TREES = ("/etc/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt", "/run")
_QEMU_CONF = "cgroup_controllers = [ ]\n"
_KVM_DEVICE = Path(__file__).resolve().parents[1] / "lab" / "kvm_device.py"


class PrivateLibvirt:
    """virtlogd and libvirtd with private configuration and state, below one process that ends them all."""

    def __init__(self, folder, name="private1"):
        self.folder = str(folder)
        self.name = name
        self.unshare = None
        self.pid = 0
        self.of_guests = Path()

    def __enter__(self):
        self.of_guests = Path(tempfile.mkdtemp(prefix="private-libvirt-"))
        self.of_guests.chmod(0o711)
        ready = os.path.join(self.folder, "ready")
        self.log = open(os.path.join(self.folder, "init.log"), "w")
        self.unshare = subprocess.Popen(
            ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
            + [sys.executable, os.path.abspath(__file__), self.folder, self.name],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        deadline = time.monotonic() + 60
        while not os.path.exists(ready):
            if self.unshare.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError("libvirtd did not start: %s" % open(self.log.name).read())
            time.sleep(0.05)
        with open("/proc/%d/task/%d/children" % (self.unshare.pid, self.unshare.pid)) as file:
            self.pid = int(file.read().split()[0])
        return self

    def __exit__(self, *exc):
        if self.unshare and self.unshare.poll() is None:
            self.unshare.send_signal(signal.SIGKILL)
            self.unshare.wait()
        self.log.close()
        shutil.rmtree(self.of_guests, ignore_errors=True)

    def make_folder(self, name):
        """An empty folder through which QEMU may pass, until the end. :arg name: of a test, once"""
        folder = self.of_guests / name
        folder.mkdir()
        folder.chmod(0o711)
        return folder

    @property
    def prefix(self):
        """What enters the namespaces."""
        target = ["--target", str(self.pid), "--mount", "--root", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", *target, "--wd=/", "--"]

    def run(self, *argv, check=True):
        """Run a command there; its output."""
        done = subprocess.run(self.prefix + list(argv), capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, "%s: %s%s" % (argv, done.stdout, done.stderr)
        return done.stdout.strip()

    def stop_libvirtd(self):
        """End libvirtd, as a host's crash of it would."""
        self.run("sh", "-c", "kill -9 $(cat /run/libvirtd.pid); rm -f /run/libvirtd.pid /run/libvirt/libvirt-sock*")

    def start_libvirtd(self):
        """Start it (again) and wait until it answers."""
        self.run("libvirtd", "-d")
        _until_answers(self.prefix)


def _until_answers(prefix=()):
    for _attempt in range(200):
        argv = list(prefix) + ["virsh", "-c", "qemu:///system", "uri"]
        if subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0:
            return
        time.sleep(0.05)
    raise RuntimeError("libvirtd does not answer")


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _init(folder, name):
    subprocess.run(["hostname", name], check=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for tree in _TREES:
        os.makedirs(tree, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "private", tree], check=True)
    os.makedirs("/run/lock")
    os.makedirs("/run/libvirt")
    _write(
        "/etc/libvirt/libvirtd.conf", 'host_uuid = "%s"\nauth_unix_rw = "none"\n' % uuid.uuid5(uuid.NAMESPACE_DNS, name)
    )
    _write("/etc/libvirt/virtlogd.conf", "")
    _write("/etc/libvirt/qemu.conf", _QEMU_CONF)
    subprocess.run([sys.executable, _KVM_DEVICE], check=True)
    subprocess.run(["virtlogd", "-d"], check=True)
    subprocess.run(["libvirtd", "-d"], check=True)
    _until_answers()
    _write(os.path.join(folder, "ready"), "")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.5)


if __name__ == "__main__":
    _init(sys.argv[1], sys.argv[2])
