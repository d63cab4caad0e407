# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pieces of an image that is a file of the controller: read once, and kept as long as the file is the same."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible import constants

from ...module_utils.core.relay.pieces import Pieces, read_pieces
from ..guest_data import private_folder
from ..transport import packed_modules

FOLDER = "bootflow-images"  # in ANSIBLE_HOME
_SETTLED = 2 * 10**9  # nanoseconds: a file that changed this recently may change again with the same time


@dataclass(frozen=True)
class FilePieces:
    """The pieces of a file, and the SHA-256 of the whole."""

    pieces: Pieces
    sha256: str
    mark: tuple[int, ...]  # of the file as it was read, see mark_of()


def mark_of(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes with each change of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino


def of_file(path: str, run_folder: Path) -> FilePieces:
    """The pieces of a file. Of the tasks of a run, one reads it, and the others wait for that.

    :arg run_folder: of this ansible-playbook process
    :raises OSError: the file cannot be read, or changes meanwhile.
    """
    mark = mark_of(os.stat(path))
    name = "%x-%d.pieces" % (mark[3], mark[4])
    with open(run_folder / (name + ".lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        places = [run_folder / name, *_folder(name)]
        for place in places:
            known = _from_bytes(packed_modules.read(place), mark)
            if known is not None:
                return known
        known = _read(path)
        for place in places[: 1 if time.time_ns() - max(known.mark[1:3]) < _SETTLED else 2]:
            with contextlib.suppress(OSError):
                packed_modules.write(place, _to_bytes(known))
        return known


def _folder(name: str) -> list[Path]:
    with contextlib.suppress(OSError, private_folder.NotPrivate):
        above = Path(constants.config.get_config_value("ANSIBLE_HOME")) / FOLDER
        return [Path(private_folder.make(str(above))) / name]
    return []


def _read(path: str) -> FilePieces:
    whole = hashlib.sha256()
    with open(path, "rb") as file:
        before = mark_of(os.fstat(file.fileno()))
        pieces = read_pieces(file.read, whole)
        after = mark_of(os.fstat(file.fileno()))
    if after != before:
        raise OSError(errno.EBUSY, "changed while it was read")
    return FilePieces(pieces, whole.hexdigest(), after)


def _to_bytes(known: FilePieces) -> bytes:
    head = {"mark": known.mark, "sha256": known.sha256, "size": known.pieces.size}
    return json.dumps(head).encode() + b"\n" + known.pieces.digests(0, len(known.pieces))


def _from_bytes(data: bytes | None, mark: tuple[int, ...]) -> FilePieces | None:
    line, _newline, digests = (data or b"").partition(b"\n")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        head: dict[str, t.Any] = json.loads(line)
        if tuple(head["mark"]) == mark:
            pieces = Pieces()
            pieces.add(digests)
            pieces.end(int(head["size"]))
            return FilePieces(pieces, str(head["sha256"]), mark)
    return None
