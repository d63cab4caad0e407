# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Our lines in /etc/fstab, which mount the file systems of instances when the host starts.

Our lines have the option x-bootflow.instance=<uuid>, which mount(8) ignores. All other lines are kept
byte by byte, and the file is replaced atomically. With ``nofail`` a host also starts without the volume.
"""

from __future__ import annotations

import os

from .batch import progress
from .files import write_file
from .locks import LOCK_ROOT, host_lock
from .module_errors import as_bootflow_error
from .mounts import FILE_SYSTEM, OPTIONS

FSTAB = "/etc/fstab"
_MARK = "x-bootflow.instance="
_ESCAPED = {" ": "\\040", "\t": "\\011", "\n": "\\012", "\\": "\\134"}


def line_of(uuid: str, device: str, place: str) -> str:
    """Return the line for an instance's file system."""
    options = ",".join(OPTIONS + ("nofail", _MARK + uuid))
    return "%s %s %s %s 0 0" % (device, "".join(_ESCAPED.get(c, c) for c in place), FILE_SYSTEM, options)


def _is_of(line: str, uuid: str) -> bool:
    words = line.split()
    return len(words) >= 4 and not words[0].startswith("#") and _MARK + uuid in words[3].split(",")


def lines_of(uuid: str) -> list[str]:
    """Return the instance's lines."""
    return [line for line in _read().splitlines() if _is_of(line, uuid)]


def has(uuid: str, device: str, place: str) -> bool:
    """Return whether the instance has exactly this line."""
    return lines_of(uuid) == [line_of(uuid, device, place)]


def add(uuid: str, device: str, place: str) -> bool:
    """Ensure that the instance has exactly this line; whether the file changed."""
    return not has(uuid, device, place) and _edit(uuid, line_of(uuid, device, place))


def remove(uuid: str) -> bool:
    """Remove the lines of the instance; whether there were any."""
    return bool(lines_of(uuid)) and _edit(uuid, "")


def _edit(uuid: str, wanted: str) -> bool:
    with host_lock(LOCK_ROOT, "fstab"):
        before = _read()
        lines = [line for line in before.splitlines(keepends=True) if not _is_of(line, uuid)]
        if wanted:
            if lines and not lines[-1].endswith("\n"):
                lines[-1] += "\n"
            lines.append(wanted + "\n")
        after = "".join(lines)
        if after == before:
            return False
        progress.mark_changed()
        _write(after)
    return True


def _read() -> str:
    try:
        with open(FSTAB, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(text: str) -> None:
    path = os.path.realpath(FSTAB)
    try:
        write_file(path, text.encode("utf-8", "surrogateescape"), 0o644, keep_owner=True)
    except OSError as error:
        raise as_bootflow_error(error, path) from None
