# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress of a live migration.

source: Nova's fields of Migration, and _live_migration_monitor. Nova's percentage is of the memory alone; ours counts local disks, too,
which are copied first.
"""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass

from ..errors import InvalidInput

#: Folder of the progress files of a host, next to its locks.
FOLDER = "/run/bootflow"
PREFIX = "live-"
_NAME = re.compile(r"[0-9A-Za-z]{1,64}\Z")

#: In bytes. "processed" counts a page again each time it is sent.
FIELDS = ("memory_total", "memory_processed", "memory_remaining", "disk_total", "disk_processed", "disk_remaining")


def path_of(name: str) -> str:
    """The file of the module that has been given this name. :raises InvalidInput: it cannot be in a path."""
    if not _NAME.match(name):
        raise InvalidInput(reason="the name of the progress file must have 1 to 64 letters and digits, got %r" % name)
    return os.path.join(FOLDER, PREFIX + name)


@dataclass(frozen=True)
class Progress:
    """libvirt's report on a migration. All in bytes; a total of 0: that part has not begun, or there is nothing of it."""

    memory_total: int = 0
    memory_processed: int = 0
    memory_remaining: int = 0
    disk_total: int = 0
    disk_processed: int = 0
    disk_remaining: int = 0

    def percent(self, memory_mb: int) -> int:
        """Return the copied part of all, from 0 to 100. :arg memory_mb: of the guest, whose memory counts before it begins to go."""
        memory = (self.memory_total, self.memory_remaining) if self.memory_total else (memory_mb << 20, memory_mb << 20)
        total, rest = self.disk_total + memory[0], self.disk_remaining + memory[1]
        return max(0, min(100, 100 * (total - rest) // total)) if total else 0


def remaining(values: t.Mapping[str, t.Any]) -> str:
    """Return the rest to copy, for a person: "disks 300 of 1024 MiB, memory 512 of 512 MiB". :arg values: with FIELDS"""
    parts = {"disks": "disk", "memory": "memory"}
    amounts = {what: (values[name + "_remaining"] >> 20, values[name + "_total"] >> 20) for what, name in parts.items()}
    return ", ".join(
        "%s %d of %d MiB" % (what, *pair) for what, pair in amounts.items() if values[parts[what] + "_total"]
    )
