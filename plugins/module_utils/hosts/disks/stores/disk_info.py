# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records of an instance's disks, in the file disk.info next to them: how each disk was created.

A record is written before the disk gets its name, and determines the format of the disk, because a guest can write anything into the disk itself.
source: CVE-2015-7548, CVE-2016-2140.
"""

from __future__ import annotations

import os
import typing as t

from ....core.disks.local import DISK
from ....core.errors import InvalidDiskInfo
from ...os.files import read_json, write_json

if t.TYPE_CHECKING:
    from ...images.images import BaseImage
    from .disk_spec import DiskSpec

RECORDS = "disk.info"


def records_of(folder: str) -> dict[str, t.Any]:
    """The content of disk.info, by names of disks."""
    data = read_json(os.path.join(folder, RECORDS))
    return data if isinstance(data, dict) else {}


def write_records(folder: str, records: t.Mapping[str, t.Any]) -> None:
    write_json(os.path.join(folder, RECORDS), records, 0o600)


def record_of(spec: DiskSpec, size: int, base: BaseImage | None) -> dict[str, t.Any]:
    """The record of a disk in disk.info."""
    return {
        "kind": spec.kind,
        "format": spec.backend,
        "virtual_size": size,
        "image_id": spec.image_id,
        "base": os.path.basename(base.path) if base is not None and spec.kind == "image" else "",
    }


def recorded_size(path: str, spec: DiskSpec, record: t.Any) -> int:
    """Size of an existing disk in bytes, according to disk.info.

    :raises InvalidDiskInfo: the disk is not recorded, or is recorded as another kind of disk.
    """
    if not isinstance(record, dict) or not isinstance(record.get("virtual_size"), int):
        raise InvalidDiskInfo(
            reason="disk %s exists but is not recorded in disk.info" % path,
            remedy="Delete the instance on this host, or move the disk away.",
        )
    wanted = {"format": spec.backend, "kind": spec.kind, "image_id": spec.image_id}
    for key, value in wanted.items():
        if record.get(key) != value:
            raise InvalidDiskInfo(
                reason="disk %s was created with %s %s, not %s" % (path, key, record.get(key), value),
                remedy="Delete the instance on this host first.",
            )
    return int(record["virtual_size"])


def root_record(folder: str) -> dict[str, t.Any]:
    """Return the record of the root disk in this folder. :raises InvalidDiskInfo: there is none"""
    record = records_of(folder).get(DISK)
    if not isinstance(record, dict) or not isinstance(record.get("virtual_size"), int):
        raise InvalidDiskInfo(
            reason="disk.info of %s has no root disk" % folder,
            remedy="An instance whose root is a volume has none: make a snapshot of the volume.",
        )
    return record
