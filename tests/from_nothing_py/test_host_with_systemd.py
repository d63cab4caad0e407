# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute host whose PID 1 is systemd: a freshly installed server that the role alone prepares, over SSH."""

from __future__ import annotations

import shlex
import typing as t
from pathlib import Path

import pytest
from confined_flow import BRIDGE, Confined
from machine import Machine


class Server:
    """The machine as confined_flow asks a host."""

    name = "server"

    def __init__(self, machine: Machine):
        self.machine = machine
        self.vm = self

    def variables(self) -> dict[str, t.Any]:
        """Its variables in an inventory."""
        options = "-o UserKnownHostsFile=%s -o StrictHostKeyChecking=accept-new -o ServerAliveInterval=30"
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.machine.port,
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.machine.folder / "key"),
            "ansible_ssh_common_args": options % (self.machine.folder / "known_hosts"),
            "bootflow_virt_type": "qemu",
        }

    def run(self, *argv: str, check: bool = True) -> t.Any:
        return self.machine.run(shlex.join(argv), check=check)

    def sh(self, script: str, check: bool = True) -> str:
        return str(self.machine.run(script, check=check).stdout)

    def virsh(self, *words: str, check: bool = True) -> str:
        return str(self.run("virsh", "-q", "-c", "qemu:///system", *words, check=check).stdout)


@pytest.fixture(scope="module")
def server(machine: Machine) -> Server:
    """What an administrator does before Ansible: it needs a Python there. And a bridge for guests."""
    machine.run("apt-get update && apt-get install -y --no-install-recommends python3", timeout=1800)
    machine.run("ip link add %s type bridge && ip link set %s up" % (BRIDGE, BRIDGE))
    return Server(machine)


def test_the_role_prepares_it_and_guests_live_there(server: Server, tmp_path: Path) -> None:
    flow = Confined([server], tmp_path)
    prepared = flow.run("prepare", timeout=3600)
    assert prepared.returncode == 0, prepared.output
    again = flow.run("prepare", timeout=1800)
    assert again.returncode == 0 and "changed=0" in again.output, again.output
    assert server.sh("cat /proc/1/comm").strip() == "systemd"

    flow.begin(config_drive=True)
    flow.operate("suspend")
    flow.operate("resume")
    flow.runs()
    flow.operate("stop", bootflow_shutdown_timeout=0)
    flow.operate("start")
    flow.runs()
    server.sh("systemctl restart libvirtd")
    flow.runs()
    flow.operate("rebuild", bootflow_rebuild_image="other", bootflow_shutdown_timeout=0)
    flow.runs()
    audited = flow.run("audit")
    assert audited.returncode == 0, audited.output
    flow.gone()
    assert server.sh("systemctl --failed --no-legend --plain").strip() == ""
