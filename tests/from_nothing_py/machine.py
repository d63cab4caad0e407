# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A freshly installed server, emulated: it starts with systemd from its own kernel and initramfs, and a person logs in by SSH."""

from __future__ import annotations

import base64
import os
import subprocess
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_image(cache: Path) -> Path:
    """The server's disk, made when it is not there."""
    argv = [str(ROOT / "scripts" / "build-full-image"), str(cache)]
    return Path(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


class Machine:
    """One server on a disk of its own over ``image``. It reaches the world through this machine, and nobody reaches it but by ``port``.

    :arg folder: empty; all of the machine is in it.
    """

    def __init__(self, image: Path, folder: Path, port: int, memory_mb: int = 6144):
        self.image, self.folder, self.port, self.memory_mb = image, folder, port, memory_mb
        self.console = folder / "console"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = 600) -> None:
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        public = base64.b64encode(Path(str(key) + ".pub").read_bytes()).decode()
        disk = self.folder / "disk.qcow2"
        backing = ["-b", str(self.image), "-F", "qcow2"]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(disk), "64G"], check=True)
        base = str(self.image)[: -len(".qcow2")]
        line = (
            "root=/dev/vda rw console=ttyS0 mitigations=off systemd.set_credential_binary=ssh.authorized_keys.root:%s"
            % public
        )
        argv = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
        argv += ["-m", str(self.memory_mb), "-display", "none", "-monitor", "none", "-no-reboot"]
        argv += ["-serial", "file:%s" % self.console, "-device", "virtio-rng-pci"]
        argv += ["-kernel", base + ".vmlinuz", "-initrd", base + ".initrd", "-append", line]
        argv += ["-drive", "file=%s,if=virtio,format=qcow2,cache=unsafe,discard=unmap" % disk]
        argv += [
            "-netdev",
            "user,id=n0,hostfwd=tcp:127.0.0.1:%d-:22" % self.port,
            "-device",
            "virtio-net-pci,netdev=n0",
        ]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        end = time.monotonic() + seconds
        while self.run("true", check=False).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(3)
        self.run("resize2fs /dev/vda")  # a server has room for guests, which are given no more than there is

    def said(self) -> str:
        """The last of its console."""
        return self.console.read_text(errors="replace")[-4000:] if self.console.exists() else ""

    def _ssh(self) -> list[str]:
        options = ["-i", str(self.folder / "key"), "-o", "UserKnownHostsFile=%s" % (self.folder / "known_hosts")]
        options += ["-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR"]
        return ["ssh", *options, "-p", str(self.port), "root@127.0.0.1"]

    def run(
        self, command: str, check: bool = True, timeout: float = 300, output: t.IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A shell's command. :arg output: where it prints; none: in the result."""
        done = subprocess.run(
            [*self._ssh(), command],
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, "%s\n%s\n%s" % (command, done.stdout, self.said())
        return done

    def put(self, content: bytes, path: str) -> None:
        """A file on the machine."""
        done = subprocess.run([*self._ssh(), "cat >%s" % path], input=content, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def remove(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        (self.folder / "disk.qcow2").unlink(missing_ok=True)


def environment() -> dict[str, str]:
    """Where Python packages come from is the matter of the machine: what this one has of settings of pip without files of its own."""
    return {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy") or k == "PIP_INDEX_URL"}
