# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The root disk of an instance on this host: by its record in disk.info, never by what is on it, as the guest can write anything there.

source: CVE-2015-7548; Nova's find_disk, which looks at the domain and at the path
"""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ...core.disks.local import DISK, QCOW2, RAW
from ...core.errors import GuestDisksDiffer, InvalidDiskInfo
from ..disks.stores.disk_info import root_record
from ..disks.stores.registry import store_of_record
from ..os.paths import base_dir
from ..os.volume_sources import is_written, path_of


@dataclass(frozen=True)
class RootDisk:
    """``format``: qcow2 or raw. ``virtual_size`` in bytes. ``base``: the path of the base image under a layer; "": none"""

    path: str
    format: str
    virtual_size: int
    base: str = ""

    def room(self, disk_format: str, live: bool) -> int:
        """Return the bytes that a copy without a base image takes at most. A raw copy that QEMU makes has its zeros written."""
        size = self.virtual_size
        if os.path.isfile(self.path) and not (live and disk_format == RAW):  # a block device does not say what it has
            size = min(sum(_allocated(path) for path in (self.path, self.base) if path), size)
        return size + size // 1000 + 1024**2  # the tables of qcow2


def root_disk(instances_path: str, folder: str, readable: bool) -> RootDisk:
    """Return the root disk. :arg folder: of the instance. :arg readable: the guest is off: activate and mount what the disk is on

    :raises InvalidDiskInfo: there is no record of it, or the disk is missing.
    """
    record = root_record(folder)
    store = store_of_record(record)
    if readable:
        store.make_readable(folder, DISK, record)
    source = store.type.source(os.path.basename(folder), DISK, folder, store.group.vg)
    if store.type.is_file_system:
        record = root_record(store.type.place(folder))
    if source.driver_format not in (QCOW2, RAW):
        raise InvalidDiskInfo(reason="the root disk of %s has the format %s" % (folder, source.driver_format))
    base = str(record.get("base") or "")
    base_path = (
        os.path.join(base_dir(instances_path), os.path.basename(base)) if base and source.driver_format == QCOW2 else ""
    )
    return RootDisk(source.path, source.driver_format, int(record["virtual_size"]), base_path)


def target_of(definition: t.Any, disk: RootDisk, uuid: str, name: str) -> str:
    """Return the target of the root disk in a definition, as ``vda``. :arg name: of the domain

    :raises GuestDisksDiffer: the guest has another disk in its place, as the overlay of an external snapshot.
    """
    first = ("", "")
    for element in definition.iterfind("devices/disk"):
        target = element.find("target")
        place = str(target.get("dev")) if target is not None else ""
        if os.path.realpath(path_of(element)) == os.path.realpath(disk.path):
            return place
        if is_written(element) and not first[0]:
            first = place, path_of(element)
    raise GuestDisksDiffer(
        instance_uuid=uuid, host=os.uname().nodename, domain=name, target=first[0] or "-", path=first[1] or "missing"
    )


def _allocated(path: str) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0
