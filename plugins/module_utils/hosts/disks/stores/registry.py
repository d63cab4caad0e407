# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stores of this host by the names of their types, and by the records of disks."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ....core.disks.stores.registry import DEFAULT, STORE_TYPES, type_of_record
from ....core.disks.stores.store_type import StoreType
from ....core.volumes.disk_pool import DiskPool
from .group import NO_GROUP, Group
from .store import Store


def store_of(name: str, volume_group: str = "", ledger_id: str = "", pool: DiskPool | None = None) -> Store:
    """Return the store of a type.

    :raises InvalidInput: the type needs a volume group or a pool, and none is given.
    """
    store_type = STORE_TYPES[name]
    store_type.require_pool(pool)
    return _store(store_type, Group(store_type.checked_group(volume_group), ledger_id, pool=pool))


def store_of_record(record: t.Mapping[str, t.Any], given: Group = NO_GROUP) -> Store:
    """Return the store of the disks that a record in the folder of an instance describes, in the volume group that the record names.

    :arg given: the ledger of the instance, and how what is removed is cleared
    """
    group = replace(given, vg=str(record.get("volume_group") or ""))
    return _store(type_of_record(record) or STORE_TYPES[DEFAULT], group)


def _store(store_type: StoreType, group: Group) -> Store:
    # Each is imported only where it is needed: a module loads its files each time that it runs.
    if store_type.is_file_system:
        from .mounted import Mounted

        return Mounted(store_type, group)
    if store_type.is_volume:
        from .volumes import Volumes

        return Volumes(store_type, group)
    if store_type.is_shared:
        from .rbd import Rbd

        return Rbd(store_type, group)
    from .files import Files

    return Files(store_type, group)
