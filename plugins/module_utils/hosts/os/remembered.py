# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What modules found out on this host, until it restarts: an empty file for each thing that is so."""

from __future__ import annotations

import contextlib
import os

from ...core.errors import UnsafeFolder
from .paths import own_folder

ROOT = "/run/bootflow"
MOST = 1000  # things of a kind that are remembered; then all are forgotten


def is_remembered(kind: str, mark: str) -> bool:
    """Whether remember() was called for this. :arg kind, mark: names of a folder and a file"""
    with contextlib.suppress(OSError, UnsafeFolder), own_folder(os.path.join(ROOT, kind), 0o700) as folder:
        os.stat(mark, dir_fd=folder)
        return True
    return False


def remember(kind: str, mark: str) -> None:
    """This is so. It does no harm if it cannot be remembered."""
    with contextlib.suppress(OSError, UnsafeFolder), own_folder(os.path.join(ROOT, kind), 0o700) as folder:
        marks = os.listdir("/proc/self/fd/%d" % folder)
        for other in marks if len(marks) >= MOST else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(other, dir_fd=folder)
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder))
