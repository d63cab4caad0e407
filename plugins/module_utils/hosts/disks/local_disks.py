# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The local disks of one instance in any store."""

from __future__ import annotations

import os
import typing as t
from dataclasses import replace

from ...core.disks.stores.registry import DEFAULT, NEED_GROUP, SHARED
from ...core.errors import InvalidInput
from ...core.volumes.disk_pool import DiskPool
from ..images.images import BaseImage
from ..os.locks import host_lock
from ..os.ownership import check_owner, ledger_of_folder, mark_folder, mark_made_at
from ..os.paths import instance_dir
from .stores.disk_info import root_record
from .stores.disk_spec import DiskSpec
from .stores.group import Group
from .stores.registry import store_of, store_of_record
from .stores.store import Store


def ensure_disks(
    instances_path: str,
    uuid: str,
    specs: t.Sequence[DiskSpec],
    bases: t.Mapping[str, BaseImage],
    check_mode: bool = False,
    volume_group: str = "",
    ledger_id: str = "",
    made_at: float = 0.0,
    pool: DiskPool | None = None,
) -> dict[str, t.Any]:
    """Create the missing disks of one instance; {changed, disks: [{name, path, format, virtual_size}]}.

    Existing disks are kept, whatever they contain.

    :arg bases: image id -> image in the cache.
    :arg volume_group, pool: for the backends that need one.
    :arg ledger_id: the ledger of the instance, which marks the folder, the logical volumes and the images of a pool.
    :arg made_at: when the build began, in seconds since the epoch by the ledger; 0.0: the folder gets no such mark
    :raises Conflict: the folder belongs to another ledger.
    :raises InvalidDiskInfo: a file exists that is not recorded, or is recorded as another kind of disk.
    :raises DriverNotInitialized: the volume group does not exist or is not usable.
    :raises StorageClusterUnavailable, StorageClusterFull, DiskInPool: see stores/rbd.py.
    :raises FlavorDiskSmallerThanImage, DiskFull, CommandFailed, InvalidInput: as named.
    """
    folder = instance_dir(instances_path, uuid)
    uuid = os.path.basename(folder)
    names = [spec.checked().name for spec in specs]
    if len(set(names)) != len(names):
        raise InvalidInput(reason="instance %s has two disks with the same name" % uuid)
    store = _store(uuid, specs, volume_group, pool)
    if check_mode:
        return store.ensure(folder, specs, bases, True)
    with host_lock(instances_path, "instance-" + uuid):
        marked = mark_folder(folder, ledger_id)
        mark_made_at(folder, made_at)
        result = store.ensure(folder, specs, bases, False)
        return {**result, "changed": marked or result["changed"]}


def make_replacement(
    instances_path: str, uuid: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage], ledger_id: str = ""
) -> dict[str, t.Any]:
    """Make a disk of an image that is to replace the root disk of an instance: in the same store and of the same size; {changed, disks: []}.

    :arg spec: with the name and image of the disk. :arg bases, ledger_id: see ensure_disks()
    :raises Conflict: the folder belongs to another ledger. :raises InvalidDiskInfo: there is no record of the disk.
    :raises FlavorDiskSmallerThanImage, DiskFull, CommandFailed, InvalidInput, VolumeIsBusy: see Store.make_replacement().
    """
    folder = instance_dir(instances_path, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        check_owner("folder %s" % folder, ledger_of_folder(folder), ledger_id)
        record = root_record(folder)
        store = store_of_record(record, Group(ledger_id=ledger_id))
        if store.type.is_file_system:
            store.make_readable(folder, spec.name, record)
            record = root_record(store.type.place(folder))
        backend = str(record["format"])
        store.make_replacement(
            folder, replace(spec, size=int(record["virtual_size"]), backend=backend).checked(), bases
        )
    return {"changed": True, "disks": []}


def _store(uuid: str, specs: t.Sequence[DiskSpec], volume_group: str, pool: DiskPool | None) -> Store:
    backends = sorted({spec.backend for spec in specs}) or [DEFAULT]
    if len(backends) > 1 and set(backends).intersection((*NEED_GROUP, *SHARED)):
        raise InvalidInput(
            reason="disks of instance %s must all have one backend, got %s" % (uuid, ", ".join(backends))
        )
    return store_of(backends[0], volume_group, pool=pool)
