# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volume group or pool in which a host has disks of instances, and how what is removed there is cleared."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ....core.disks.local import CLEARS, ZERO
from ....core.disks.stores.registry import NEED_GROUP
from ....core.volumes.disk_pool import DiskPool
from .disk_info import records_of

CLEARING_ARGUMENTS = {
    "volume_clear": {"type": "str", "choices": list(CLEARS), "default": ZERO},
    "volume_clear_size_mb": {"type": "int", "default": 0},
}


@dataclass(frozen=True)
class Clearing:
    """How to wipe volumes; ``size_mb``: only the first MiB, 0 for all."""

    how: str = ZERO
    size_mb: int = 0

    @classmethod
    def from_arguments(cls, arguments: t.Mapping[str, t.Any]) -> Clearing:
        """Read the arguments of a module."""
        return cls(arguments["volume_clear"], max(0, arguments["volume_clear_size_mb"]))


@dataclass(frozen=True)
class Group:
    """The volume group in which an instance has its disks ("": none), and how what is removed there is cleared. ``pool``: of Ceph, in which it has them"""

    vg: str = ""
    ledger_id: str = ""
    clearing: Clearing = field(default_factory=Clearing)
    pool: DiskPool | None = None


NO_GROUP = Group()


def recorded(given: Group, *folders: str) -> Group:
    """``given`` with the group that the records in these folders name, "" where none does: the host's setting may have changed since."""
    names = {
        str(record.get("volume_group"))
        for folder in folders
        for record in records_of(folder).values()
        if isinstance(record, dict) and record.get("format") in NEED_GROUP
    }
    return replace(given, vg=min(names, default=""))
