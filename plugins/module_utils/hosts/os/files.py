# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Descriptors, and small files that are either complete or missing."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import typing as t


@contextlib.contextmanager
def opened(path: str, flags: int, mode: int = 0o600) -> t.Iterator[int]:
    """Yield a descriptor of ``path``, which programs of this process do not inherit."""
    fd = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def fsync(path: str) -> None:
    """Make a file, or the names in a directory, persistent."""
    with opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


def remove_files(*paths: str) -> None:
    """Remove these files where they exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def write_file(
    path: str,
    data: bytes,
    mode: int = 0o644,
    size: int = 0,
    folder: str = "",
    keep_owner: bool = False,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write ``data`` to ``path`` atomically.

    :arg size: bytes of the file; the rest after ``data`` reads as zeros.
    :arg folder: where the file is written before it gets its name, on the same file system.
    :arg keep_owner: of the file that it replaces. :arg owner: the numbers of the user and the group; None: the numbers of this process
    """
    parent = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(prefix=".%s." % os.path.basename(path), suffix=".part", dir=folder or parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.truncate(max(size, len(data)))
            file.flush()
            if keep_owner and os.path.exists(path):
                owner = os.stat(path).st_uid, os.stat(path).st_gid
            if owner is not None:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(temporary, path)
    except BaseException:
        remove_files(temporary)
        raise
    fsync(parent)


def write_json(path: str, data: t.Any, mode: int = 0o644) -> None:
    """Write ``data`` as JSON to ``path`` atomically."""
    write_file(path, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode(), mode)


def read_text(path: str) -> str:
    """Return the content of ``path`` without blanks around it; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_json(path: str) -> t.Any:
    """Return the content of ``path``; None if it is missing or not JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
