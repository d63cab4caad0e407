# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's hosts without the guests and networks of a test."""

from __future__ import annotations

import typing as t

from flow import GUEST_NETWORK


def empty(lab: t.Any) -> None:
    """Bring the hosts back, and remove domains, networks and disks of guests; base images stay."""
    for host in lab.hosts:
        host.restore()
        for uuid in host.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--uuid").stdout.split():
            host.run("virsh", "-c", "qemu:///system", "destroy", uuid, check=False)
            host.run("virsh", "-c", "qemu:///system", "undefine", "--nvram", "--managed-save", uuid, check=False)
        # The next test may have another network with the same addresses.
        for name in host.run("virsh", "-q", "-c", "qemu:///system", "net-list", "--all", "--name").stdout.split():
            if name.startswith("bf-") and name != GUEST_NETWORK["source"]:
                host.run("virsh", "-c", "qemu:///system", "net-destroy", name, check=False)
                host.run("virsh", "-c", "qemu:///system", "net-undefine", name, check=False)
        host.run(
            "sh",
            "-c",
            "find /var/lib/bootflow/instances -mindepth 1 -maxdepth 1 ! -name '_*' -exec rm -rf {} + || true",
        )
