# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What AppArmor does on hosts."""

from __future__ import annotations

import re
import typing as t

# QEMU asks of each block device whether it is zoned, and takes a refusal for no. libvirt's profiles have no rule for it.
NOT_MISSED = re.compile(r'name="/sys/devices/[^"]*/queue/zoned"')


def denied(*hosts: t.Any) -> str:
    """What it has refused to guests, their helpers and servers since the hosts started: the kernel's last lines about it; empty: nothing.

    :arg hosts: as kernel_way.ComputeHost.
    """
    lines = [line for host in hosts for line in host.sh("dmesg | grep DENIED || true").splitlines()]
    return "\n".join([line for line in lines if not NOT_MISSED.search(line)][-20:])
