# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are files, of an instance that is resized on its own host: their copies, which are exchanged by their names (resized.py)."""

from __future__ import annotations

import os
import typing as t

from ....core.errors import InvalidDiskInfo
from ...images.images import QEMU_IMG_PACKAGE
from ...os.command import program, run
from ...os.files import fsync
from ...os.paths import checked_disk_name
from ...os.room import check_room
from ..stores.disk_info import records_of, write_records
from ..stores.disk_spec import DiskSpec
from ..stores.files import ensure_files, grow
from .resize import Records, Resize

_FORMATS = ("qcow2", "raw")


class ResizedFiles(Resize):
    """Files in the folder of the instance."""

    def place(self, folder: str) -> str:
        return folder

    def check(self, folder: str, records: Records, made: t.Sequence[DiskSpec]) -> int:
        return check_files(folder, records)

    def copy(
        self,
        folder: str,
        part: str,
        records: Records,
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec],
        needed: int,
    ) -> dict[str, t.Any]:
        check_room(folder, needed)
        return fill(folder, part, records, sizes, made)

    def close(self, folder: str) -> None:
        """Do nothing: files need not be unmounted."""

    def files_of(self, names: t.Collection[str]) -> t.Collection[str]:
        return names

    def swap_in(self, folder: str, dropped: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        """Do nothing: all is in the folder."""

    def is_swapped_in(self, uuid: str, added: t.Collection[str]) -> bool:
        return False

    def roll_back(self, folder: str, added: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        """Do nothing: all is in the folder."""

    def discard_copies(self, uuid: str) -> bool:
        return False

    def commit(self, uuid: str) -> bool:
        return False


def check_files(folder: str, records: t.Mapping[str, t.Mapping[str, t.Any]]) -> int:
    """Check that these disks are files that no guest uses. Returns the bytes that copies of them take."""
    needed = 0
    for name, record in sorted(records.items()):
        path = os.path.join(folder, checked_disk_name(name))
        if record.get("format") not in _FORMATS or not os.path.isfile(path) or os.path.islink(path):
            raise InvalidDiskInfo(reason="%s is not a disk that can be copied" % path)
        run([program("qemu-img", QEMU_IMG_PACKAGE), "info", "-f", record["format"], path], timeout=60.0)  # locks it
        needed += os.stat(path).st_blocks * 512
    return needed


def fill(
    place: str,
    target: str,
    files: t.Mapping[str, t.Mapping[str, t.Any]],
    sizes: t.Mapping[str, int],
    made: t.Sequence[DiskSpec],
) -> dict[str, t.Any]:
    """Copies of the files in ``place``, and the disks that are ``made``. Returns all records in ``target``."""
    records = records_of(target)
    for name, record in sorted(files.items()):
        copy = os.path.join(target, name)
        copy_file(os.path.join(place, name), copy)
        records[name] = {**record, "virtual_size": grow(copy, record, sizes.get(name, 0))}
        fsync(copy)
    write_records(target, records)
    if made:
        ensure_files(target, made, {}, False)
    return records_of(target)


def copy_file(source: str, target: str) -> None:
    """Sparse, and without reading anything where the file system can share the blocks. A layer stays one over the same base image."""
    argv = [program("cp", "coreutils"), "--reflink=auto", "--sparse=always", "--", source, target]
    run(argv, timeout=24 * 3600.0, path=target, outlives=False)
    os.chmod(target, 0o600)
