# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups that are read back: all bytes of a file, its entry in the manifest, what it is on, and its disk as QEMU reads it through its chain."""

from __future__ import annotations

import json
import os
import time
import typing as t

from ...core.backups.backup import MANIFEST
from ...core.disks.local import QCOW2
from ..images.images import QEMU_IMG_PACKAGE
from ..os.command import program, run
from . import folder
from .folder import StoredBackup

_MAP_TIMEOUT = 600.0  # seconds; the tables of a large disk in a long chain are read


class ReadingBack:
    """Reads backups back, those first that others need. A file that needs a damaged one is not called damaged itself."""

    def __init__(self) -> None:
        self._damaged: set[str] = set()

    def read(self, stored: StoredBackup, needs: t.Sequence[str]) -> dict[str, t.Any]:
        """Read a backup back. Returns {changed, damage, seconds}. ``damage``: what is wrong with its own file, in words; "": nothing is

        :arg needs: names of the files in its folder that it needs, the full one first
        """
        begin = time.monotonic()
        damage = folder.damage_of_file(stored) or _unlike_manifest(stored) or _unlike_header(stored, needs)
        below = [os.path.join(stored.folder, os.path.basename(file)) for file in needs]
        if not damage and not self._damaged.intersection(below):
            damage = _unreadable(stored, below)
        if damage:
            self._damaged.add(stored.path)
        return {"changed": False, "damage": damage, "seconds": round(time.monotonic() - begin, 3)}


def _unlike_manifest(stored: StoredBackup) -> str:
    entry = folder.entry_of(stored.folder, stored.id)
    manifest = os.path.join(stored.folder, MANIFEST)
    if entry is None:
        return "%s does not name it" % manifest
    if (entry.get("file"), entry.get("sha256")) != (os.path.basename(stored.file), stored.checksum):
        return "%s has another file or sha256 of it" % manifest
    return ""


def _unlike_header(stored: StoredBackup, needs: t.Sequence[str]) -> str:
    base, wanted = folder.base_of(stored.path), os.path.basename(needs[-1]) if needs else ""
    if base == wanted:
        return ""
    return "%s is on %s, and was on %s" % (stored.path, base or "nothing", wanted or "nothing")


def _unreadable(stored: StoredBackup, below: t.Sequence[str]) -> str:
    """Return why QEMU does not read the whole disk from these files; "": it does."""
    qemu_img = program("qemu-img", QEMU_IMG_PACKAGE)
    argv = [qemu_img, "map", "-U", "-f", QCOW2, "--output=json", stored.path]
    done = run(argv, check=False, timeout=_MAP_TIMEOUT)
    if done.rc != 0:
        return "qemu-img map: %s" % (done.stderr or done.stdout).strip()
    extents: list[dict[str, t.Any]] = json.loads(done.stdout)
    end = 0
    for extent in extents:
        if int(extent["start"]) != end:
            return "%s has no content from byte %d on" % (stored.path, end)
        end += int(extent["length"])
    if end != stored.virtual_size:
        return "%s has a disk of %d bytes, and had one of %d" % (stored.path, end, stored.virtual_size)
    deepest = max((int(extent["depth"]) for extent in extents), default=0)
    if deepest > len(below):
        return "%s is on %d files, and was on %d" % (stored.path, deepest, len(below))
    return ""
