# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small file that tells how far the guests are that leave this host: whoever waits for them reads it meanwhile.

It is there as long as they are on their way, for root alone. Nothing depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import typing as t

from ...core.errors import BootflowError
from ...core.instances.progress import FIELDS, FOLDER, PREFIX, path_of
from ..os.files import remove_files
from ..os.paths import own_folder

_PAUSE = 1.0  # seconds between two writes
_STALE = 3600.0  # seconds without a write after which a file is one of a module that was killed


class Told:
    """The file. :arg name: without one nothing is written"""

    def __init__(self, name: str):
        self.path = path_of(name) if name else ""
        self.lock = threading.Lock()
        self.guests: dict[str, dict[str, int]] = {}
        self.written_at = 0.0

    def record_stats(self, uuid: str, stats: t.Mapping[str, t.Any]) -> None:
        """Record a guest's progress. :arg stats: libvirt's statistics of the guest's job"""
        with self.lock:
            self.guests[uuid] = {name: int(stats.get(name) or 0) for name in FIELDS}
            if time.monotonic() >= self.written_at + _PAUSE:
                self._write()

    def over(self, uuid: str) -> None:
        """Drop a guest that does not migrate any more."""
        with self.lock:
            if self.guests.pop(uuid, None) is not None:
                self._write()

    def end(self) -> None:
        """Remove the file."""
        if self.path:
            with contextlib.suppress(OSError):
                remove_files(self.path, self.path + ".part")

    def _write(self) -> None:
        """Write the file. Neither a full disk nor another error of this ends a migration."""
        if not self.path:
            return
        with contextlib.suppress(OSError, BootflowError), own_folder(FOLDER, 0o700):
            if not self.written_at:
                _remove_stale()
            self.written_at = time.monotonic()
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self.path + ".part", flags, 0o600), "w", encoding="ascii") as file:
                json.dump(self.guests, file)
            os.rename(self.path + ".part", self.path)


def _remove_stale() -> None:
    for entry in os.scandir(FOLDER):
        if entry.name.startswith(PREFIX) and entry.stat(follow_symlinks=False).st_mtime < time.time() - _STALE:
            remove_files(entry.path)
