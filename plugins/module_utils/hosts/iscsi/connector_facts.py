# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connectors of this host: the name of its initiator, and whether QEMU has its own.

source: open-iscsi's initiatorname.iscsi(5)
"""

from __future__ import annotations

import glob
import typing as t

from ...core.errors import InvalidInput
from ...core.volumes.names import check_initiator

INITIATOR_FILE = "/etc/iscsi/initiatorname.iscsi"
# QEMU has block drivers with external libraries in separate files; distributions install them in these directories.
QEMU_MODULES = (
    "/usr/lib/*/qemu/block-iscsi.so",
    "/usr/lib/qemu/block-iscsi.so",
    "/usr/lib64/qemu/block-iscsi.so",
    "/usr/lib64/qemu-kvm/block-iscsi.so",
)


def initiator_name(path: str = INITIATOR_FILE) -> str | None:
    """The name with which the kernel's initiator logs in; None if the host has none (yet)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return None
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == "InitiatorName":
            try:
                return check_initiator(value.strip())
            except InvalidInput:
                return None
    return None


def qemu_opens_iscsi(patterns: t.Sequence[str] = QEMU_MODULES) -> bool:
    """Whether QEMU's iSCSI driver is installed. QEMU lists it among its formats even if it is not."""
    return any(glob.glob(pattern) for pattern in patterns)
