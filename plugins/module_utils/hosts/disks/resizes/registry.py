# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of an instance that is resized on its own host, by their records."""

from __future__ import annotations

import typing as t

from ....core.disks.stores.registry import STORE_TYPES, type_of_record
from ..stores.disk_spec import DiskSpec
from ..stores.group import Group
from .resize import Resize


def resize_of(group: Group, records: t.Iterable[t.Mapping[str, t.Any]], made: t.Sequence[DiskSpec] = ()) -> Resize:
    """Return the disks of an instance that is resized on this host.

    :arg records: the content of each disk.info of the instance. :arg made: disks that it gets
    :raises InvalidInput: a disk that it gets needs a volume group, and none is given; or a pool.
    """
    store_types = [STORE_TYPES[spec.backend] for spec in made]
    for store_type in store_types:
        store_type.checked_group(group.vg)
    store_types += [
        store_type
        for disk_info in records
        for store_type in map(type_of_record, disk_info.values())
        if store_type is not None
    ]
    if any(store_type.is_file_system for store_type in store_types):
        from .mounted import ResizedMounted

        return ResizedMounted(group)
    if any(store_type.is_shared for store_type in store_types):
        from .pool import ResizedInPool

        next(store_type for store_type in store_types if store_type.is_shared).require_pool(group.pool)
        return ResizedInPool(group)
    if group.vg:
        from .volumes import ResizedVolumes

        return ResizedVolumes(group)
    from .files import ResizedFiles

    return ResizedFiles(group)
