# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of stores by their names, and by the records of disks."""

from __future__ import annotations

import typing as t

from .lvm import Lvm
from .qcow2 import Qcow2
from .qcow2_on_lvm import Qcow2OnLvm
from .raw import Raw
from .rbd import Rbd
from .store_type import StoreType

STORE_TYPES: dict[str, StoreType] = {
    store_type.name: store_type for store_type in (Qcow2(), Raw(), Lvm(), Qcow2OnLvm(), Rbd())
}
NAMES = tuple(STORE_TYPES)
DEFAULT = Qcow2.name
#: Formats in the records of disks.
RECORD_FORMATS = tuple(dict.fromkeys(store_type.record_format for store_type in STORE_TYPES.values()))
NEED_GROUP = tuple(name for name, store_type in STORE_TYPES.items() if store_type.needs_group)
#: Types whose disks stay where they are when their instance goes to another host.
SHARED = tuple(name for name, store_type in STORE_TYPES.items() if store_type.is_shared)


def type_of_record(record: t.Any) -> StoreType | None:
    """Return the type that made a disk, or the file system of an instance, by its record in disk.info; None: no type did."""
    return STORE_TYPES.get(str(record.get("format"))) if isinstance(record, dict) else None


def is_volume(record: t.Any) -> bool:
    """Return whether the disk with this record is a logical volume."""
    store_type = type_of_record(record)
    return store_type is not None and store_type.is_volume


def is_file_system(record: t.Any) -> bool:
    """Return whether this record is that of a file system with the disks of an instance."""
    store_type = type_of_record(record)
    return store_type is not None and store_type.is_file_system


def is_shared(record: t.Any) -> bool:
    """Return whether the disk with this record is where all hosts of one pool reach it."""
    store_type = type_of_record(record)
    return store_type is not None and store_type.is_shared


def places(folder: str) -> list[str]:
    """Return the folders in which an instance can have a disk.info. :arg folder: of the instance"""
    return list(dict.fromkeys(store_type.place(folder) for store_type in STORE_TYPES.values()))
