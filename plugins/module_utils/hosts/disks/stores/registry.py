# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stores of this host by the names of their types, and by the records of disks."""

from __future__ import annotations

import typing as t

from ....core.disks.stores.registry import STORE_TYPES, type_of_record
from .disk_spec import DiskSpec
from .group import Group
from .resize import Resize
from .store import Store


def store_of(name: str, volume_group: str = "", ledger_id: str = "") -> Store:
    """Return the store of a type.

    :raises InvalidInput: the type needs a volume group, and none is given.
    """
    store_type = STORE_TYPES[name]
    group = store_type.checked_group(volume_group)
    # Each is imported only where it is needed: a module loads its files each time that it runs.
    if store_type.is_file_system:
        from .mounted import Mounted

        return Mounted(store_type, group, ledger_id)
    if store_type.is_volume:
        from .volumes import Volumes

        return Volumes(store_type, group, ledger_id)
    from .files import Files

    return Files(store_type, group, ledger_id)


def resize_of(group: Group, records: t.Iterable[t.Mapping[str, t.Any]], made: t.Sequence[DiskSpec] = ()) -> Resize:
    """Return the disks of an instance that is resized on this host.

    :arg records: the content of each disk.info of the instance. :arg made: disks that it gets
    :raises InvalidInput: a disk that it gets needs a volume group, and none is given.
    """
    store_types = [STORE_TYPES[spec.backend] for spec in made]
    for store_type in store_types:
        store_type.checked_group(group.vg)
    store_types += [found for each in records for found in map(type_of_record, each.values()) if found is not None]
    if any(store_type.is_file_system for store_type in store_types):
        from .resized_mounted import ResizedMounted

        return ResizedMounted(group)
    if group.vg:
        from .resized_volumes import ResizedVolumes

        return ResizedVolumes(group)
    from .resized_files import ResizedFiles

    return ResizedFiles(group)
