# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small files that are either complete or missing."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t


def fsync_dir(path: str) -> None:
    """Make the names in ``path`` persistent."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: str, data: t.Any, mode: int = 0o644) -> None:
    """Write ``data`` as JSON to ``path`` atomically."""
    folder = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(prefix=".json-", dir=folder)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    fsync_dir(folder)


def read_json(path: str) -> t.Any:
    """The content of ``path``; None if it is missing or not JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
