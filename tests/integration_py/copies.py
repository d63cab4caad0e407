# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sees a guest that runs twice: the lab's hosts share this machine's process table, where each QEMU says whose guest it is."""

from __future__ import annotations

import os
import threading
import typing as t
from collections import Counter
from pathlib import Path

_PAUSE = 0.1  # seconds between two looks


def guests() -> dict[int, tuple[str, bool]]:
    """Process -> (uuid of its guest, whether it was started to take a live migration in)."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace").split("\0")
            stat = Path("/proc", pid, "stat").read_text()
        except OSError:  # it has just ended
            continue
        if "qemu-system" in words[0] and "-uuid" in words[:-1] and stat.rpartition(")")[2].split()[0] != "Z":
            found[int(pid)] = (words[words.index("-uuid") + 1], "-incoming" in words)
    return found


class Watch:
    """While it lasts, looks for guests with two processes of which none came to take the other one in."""

    def __init__(self) -> None:
        self.twice: set[str] = set()
        self._seen_before: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def look(self) -> None:
        counts = Counter(uuid for uuid, incoming in guests().values() if not incoming)
        now = {uuid for uuid, count in counts.items() if count > 1}
        # QEMU's end and its successor's start on one host may touch in one look; what lasts for two is real.
        self.twice |= now & self._seen_before
        self._seen_before = now

    def _watch(self) -> None:
        while not self._over.wait(_PAUSE):
            self.look()

    def __enter__(self) -> t.Self:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join()
