# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that come to this host as files."""

from __future__ import annotations

import os
import typing as t

from ....core.disks.local import QCOW2
from ....core.guest.arriving_disks import check_virtual_size
from ....core.guest.nvram import NVRAM
from ...images.images import QEMU_IMG_PACKAGE, check_image_file
from ...images.nvram import check_nvram
from ...os.command import program, run
from ...os.files import fsync
from ...os.paths import checked_disk_name
from ...os.room import check_room
from ..stores.disk_info import records_of, write_records
from ..stores.files import ensure_files, grow
from .arrival import Arrival, Disk, Write

_PART = ".part"


class ArrivingFiles(Arrival):
    """Files in the folder of the instance."""

    def require_group(self) -> None:
        """Do nothing: files need no volume group."""

    def check_group(self) -> None:
        """Do nothing: files need no volume group."""

    def prepare(self) -> None:
        """Do nothing: the folder is there."""

    def place(self) -> str:
        """Return the folder of the files."""
        return self.folder

    def receive(self, name: str, disk: Disk, write: Write) -> tuple[int, str]:
        folder, record = self.place(), disk["record"]
        part = os.path.join(folder, name + _PART)
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

        def check_rest(more: int) -> None:
            check_room(folder, more)

        try:
            sha256 = write(fd, int(disk["allocated"]), check_rest)
        finally:
            os.close(fd)
        if record is not None and record["format"] == QCOW2:
            _driver, virtual_size = check_image_file(part, QCOW2, name)  # it could name a file of this host as its base
            check_virtual_size(name, virtual_size, record["virtual_size"], self.uuid)
        if name == NVRAM:
            check_nvram(part)
        size = _grow(part, record, self.sizes.get(name, 0))
        if record is not None:
            write_records(folder, {**records_of(folder), name: {**record, "virtual_size": size}})
        os.rename(part, os.path.join(folder, name))
        fsync(folder)
        return size, sha256

    def create(self) -> None:
        if self.made:
            ensure_files(self.place(), self.made, {}, False)

    def finish(self) -> None:
        """Do nothing: each file got its name when it was complete."""

    def make_empty(self) -> dict[str, dict[str, t.Any]]:
        self.prepare()
        records = {checked_disk_name(disk["name"]): disk["record"] for disk in self.disks}
        write_records(self.place(), records)
        for name, record in records.items():
            path, size = os.path.join(self.place(), name), str(record["virtual_size"])
            argv = [program("qemu-img", QEMU_IMG_PACKAGE), "create", "-q", "-f", record["format"], path, size]
            run(argv, timeout=60.0, path=path)
            os.chmod(path, 0o600)
        return {}


def _grow(path: str, record: t.Mapping[str, t.Any] | None, size: int) -> int:
    """Let a disk grow to ``size`` bytes where it is smaller. Returns its virtual size."""
    if record is None:
        return os.path.getsize(path)
    has = grow(path, record, size)
    fsync(path)
    return has
