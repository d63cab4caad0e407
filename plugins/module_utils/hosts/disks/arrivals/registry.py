# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of an instance that come to this host, by their stores."""

from __future__ import annotations

import typing as t
from types import MappingProxyType

from ....core.disks.stores.registry import STORE_TYPES, is_shared, is_volume
from ..stores.disk_spec import DiskSpec
from ..stores.group import Group
from .arrival import Arrival, Disk


def arrivals_of(
    folder: str,
    group: Group,
    disks: t.Sequence[Disk],
    sizes: t.Mapping[str, int] = MappingProxyType({}),
    made: t.Sequence[DiskSpec] = (),
) -> list[Arrival]:
    """Return the disks of an instance that come to this host, of each store that they are in.

    :arg folder: of the instance on this host. :arg sizes: bytes that disks are to have at least, by name.
    :arg made: disks that are created here, all of one type; where disks come in a file system, these are created there.
    """
    inside = [disk for disk in disks if disk.get("mounted")]
    others = [disk for disk in disks if not disk.get("mounted")]
    shared = [disk for disk in others if is_shared(disk["record"])]
    volumes = [disk for disk in others if is_volume(disk["record"])]
    files = [disk for disk in others if not is_volume(disk["record"]) and not is_shared(disk["record"])]
    made_type = STORE_TYPES[made[0].backend] if made else None
    made_inside = made if inside or (made_type is not None and made_type.is_file_system) else ()
    made_volumes = made if not made_inside and made_type is not None and made_type.is_volume else ()
    made_shared = made if not made_inside and made_type is not None and made_type.is_shared else ()
    made_files = made if not made_inside and not made_volumes and not made_shared else ()
    arrivals: list[Arrival] = []
    if files or made_files:
        from .files import ArrivingFiles

        arrivals.append(ArrivingFiles(folder, group, files, sizes, made_files))
    if inside or made_inside:
        from .mounted import ArrivingMounted

        arrivals.append(ArrivingMounted(folder, group, inside, sizes, made_inside))
    if volumes or made_volumes:
        from .volumes import ArrivingVolumes

        arrivals.append(ArrivingVolumes(folder, group, volumes, sizes, made_volumes))
    if shared or made_shared:
        from .pool import ArrivingInPool

        arrivals.append(ArrivingInPool(folder, group, shared, sizes, made_shared))
    return arrivals
