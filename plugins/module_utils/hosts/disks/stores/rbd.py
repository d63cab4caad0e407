# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are images in a pool of a Ceph cluster: clones of the images of guests there, which all hosts of the pool reach.

The folder of the instance has their records, and with them says that the instance is here. source: Nova's imagebackend.Rbd
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import typing as t

from ....core.amounts import GIB
from ....core.disks.local import RAW, volume_name
from ....core.disks.stores.registry import STORE_TYPES, is_shared
from ....core.errors import (
    BootflowError,
    DiskInPool,
    InvalidDiskInfo,
    NotSupportedYet,
    OtherCluster,
    StorageClusterFull,
    StorageClusterUnavailable,
    VolumeBackendAPIException,
)
from ....core.volumes.disk_pool import DiskPool
from ...images.images import BaseImage
from ...os.batch import progress
from ...os.files import remove_files
from ...os.locks import host_lock
from ...os.ownership import ledger_of_folder
from ...os.paths import make_dirs
from ...rbd.cluster import Cluster
from ...rbd.disk_images import DiskImages, check_cluster, disk_images, rounded
from ...rbd.images import LONG
from ...rbd.plan import images_of
from ...rbd.pool_facts import amounts
from .disk_info import record_of, recorded_size, records_of, write_records
from .disk_spec import DiskSpec, disk_size, needed
from .files import format_disk
from .store import OpenDisk, Store

_PART = ".part"


class Rbd(Store):
    """Images in a pool."""

    @property
    def pool(self) -> DiskPool:
        """Return the pool. :raises InvalidInput: the host has none"""
        self.type.require_pool(self.group.pool)
        return t.cast(DiskPool, self.group.pool)

    def ensure(
        self, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
    ) -> dict[str, t.Any]:
        uuid, records = os.path.basename(folder), records_of(folder)
        sizes: dict[str, int] = {}
        changed = not specs and not os.path.isdir(folder)
        if changed and not check_mode:
            progress.mark_changed()
            make_dirs(folder)
        with disk_images(self.pool, ledger_of_folder(folder), writing=False) as images:
            present = set(images.of_instance(uuid)) if specs else set()
            missing = [spec for spec in specs if volume_name(uuid, spec.name) not in present]
            for spec in specs:
                if spec in missing:
                    sizes[spec.name] = rounded(disk_size(spec, bases.get(spec.image_id)))
                else:
                    sizes[spec.name] = self._recorded(uuid, spec, records.get(spec.name))
            if missing and not check_mode:
                images.cluster.checked(writing=True)
                make_dirs(folder)
                for spec in missing:
                    self._make(images, folder, spec, sizes[spec.name], bases, records)
        return {
            "changed": changed or bool(missing),
            "disks": [
                {
                    "name": spec.name,
                    "path": "%s/%s" % (self.pool.pool, volume_name(uuid, spec.name)),
                    "format": RAW,
                    "virtual_size": sizes[spec.name],
                }
                for spec in specs
            ],
        }

    def _recorded(self, uuid: str, spec: DiskSpec, record: t.Any) -> int:
        """Return the size of a disk that is there. :raises DiskInPool: this host did not make it. :raises InvalidDiskInfo: it is another disk"""
        if record is None:
            raise DiskInPool(pool=self.pool.pool, disk=volume_name(uuid, spec.name))
        check_recorded_pool(record, self.pool)
        return recorded_size("%s/%s" % (self.pool.pool, volume_name(uuid, spec.name)), spec, record)

    def _make(
        self,
        images: DiskImages,
        folder: str,
        spec: DiskSpec,
        size: int,
        bases: t.Mapping[str, BaseImage],
        records: dict[str, t.Any],
    ) -> None:
        name = volume_name(os.path.basename(folder), spec.name)
        # Before the image is made, because the next run knows by it that this host made the image.
        records[spec.name] = {**record_of(spec, size, None), **recorded_pool(self.pool)}
        write_records(folder, records)
        if spec.kind == "image":
            base = needed(bases.get(spec.image_id), spec)
            lock = "pool-" + hashlib.sha256(os.path.basename(base.path).encode()).hexdigest()[:32]
            with host_lock(os.path.dirname(folder), lock, LONG):  # one import a host: the others would wait for it
                origin = images.base(base.path, spec.image_id)
            images.make(name, size, base=origin, source="image/%s" % spec.image_id)
            return
        make_blank(images, folder, spec, size, name)

    def facts(self, instances_path: str, growth: t.Callable[[], int]) -> dict[str, t.Any]:
        """Return the sizes of the pool, which all of its hosts share: what images of all of them may still take counts as taken.

        A pool that does not answer as it should, is full, is not counted or is of another cluster takes no instance: its sizes are such that no request
        fits, ``disk_refusal`` says why, and the host's other facts are reported all the same.
        """
        pool = self.pool
        try:
            with Cluster(pool.pool, pool.monitors, pool.user, pool.key) as cluster:
                state = check_cluster(pool, cluster.checked(writing=True))
                if not state.figures:
                    raise StorageClusterUnavailable(
                        pool=pool.pool,
                        reason="it has no manager that counts what is stored, so its figures are none, or old",
                    )
                total, free = amounts(*cluster.figures())
                promised = sum(image.size for image in images_of(cluster.rows()).values())
        except (StorageClusterUnavailable, StorageClusterFull, OtherCluster, VolumeBackendAPIException) as error:
            return {**NO_ROOM, "disk_refusal": error.message}
        return {
            "local_gb": int(total),
            "local_gb_used": int(total) - int(free),
            "disk_available_least": int(min(free, total - promised / GIB)),
        }

    def make_readable(self, folder: str, name: str, record: t.Mapping[str, t.Any]) -> None:
        raise not_yet("Reading a disk in Ceph for an image or a backup")

    def opened(
        self, folder: str, name: str, record: t.Mapping[str, t.Any], left_behind: t.Collection[str]
    ) -> t.Iterator[OpenDisk]:
        raise not_yet("Copying a disk in Ceph to another host")

    def make_replacement(self, folder: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> None:
        raise not_yet("Going back to a snapshot of an instance with disks in Ceph")

    def take_replacement(self, folder: str, name: str) -> None:
        raise not_yet("Going back to a snapshot of an instance with disks in Ceph")

    def drop_replacement(self, folder: str, name: str) -> bool:
        return False


def make_blank(images: DiskImages, folder: str, spec: DiskSpec, size: int, name: str) -> None:
    """Make swap or an ephemeral disk: in a file without data on this host, of which the cluster gets what is not empty.

    :arg folder: of the instance. :arg size: bytes. :arg name: of the image
    """
    fd, raw = tempfile.mkstemp(prefix="%s." % spec.name, suffix=_PART, dir=folder)
    try:
        os.ftruncate(fd, size)
        os.close(fd)
        format_disk(spec, raw)
        images.make(name, size, raw=raw, source=spec.kind)
    finally:
        remove_files(raw)


def adopt_images(folder: str, specs: t.Sequence[DiskSpec], pool: DiskPool | None, ledger_id: str) -> list[str]:
    """Record the images of an instance whose former host is lost, which the pool has still. Returns the names of their disks.

    :arg folder: of the instance here. :arg specs: the disks that the instance has by the ledger. :arg pool: of this host; None: it has none
    """
    shared = [spec for spec in specs if STORE_TYPES[spec.backend].is_shared]
    if not shared or pool is None:
        return []
    records = records_of(folder)
    with disk_images(pool, ledger_id, writing=False) as images:
        present = set(images.of_instance(os.path.basename(folder)))
        for spec in shared:
            name = volume_name(os.path.basename(folder), spec.name)
            if name in present:
                size = images.size(name)
                records[spec.name] = {**record_of(spec, int(size or 0), None), **recorded_pool(pool)}
    write_records(folder, records)
    return sorted(records)


#: Sizes of a pool that takes no instance, whatever the request and the ratio of the host.
NO_ROOM = {"local_gb": 0, "local_gb_used": 0, "disk_available_least": -1}


def not_yet(feature: str) -> BootflowError:
    """Return the error of what local disks in a pool cannot do."""
    return NotSupportedYet(feature=feature, remedy="docs/ceph.md names what can be done with local disks in Ceph.")


def recorded_pool(pool: DiskPool) -> dict[str, str]:
    """Return what the record of a disk has of its pool."""
    return {"pool": pool.pool, "fsid": pool.fsid}


def check_recorded_pool(record: t.Mapping[str, t.Any], pool: DiskPool) -> None:
    """Check that a disk is in the pool of the host's settings. :raises InvalidDiskInfo: it is in another one"""
    recorded = {name: str(record.get(name) or "") for name in ("pool", "fsid")}
    if recorded != recorded_pool(pool):
        raise InvalidDiskInfo(
            reason="the disk is recorded in pool %s of cluster %s, and the host's settings name pool %s of cluster %s"
            % (recorded["pool"], recorded["fsid"], pool.pool, pool.fsid),
            remedy="Correct bootflow_disk_rbd_pool and bootflow_disk_rbd_fsid of the host.",
        )


def remove_images(folder: str, uuid: str, pool: DiskPool | None, ledger_id: str, check_mode: bool = False) -> list[str]:
    """Remove the images of an instance. Returns them, as words.

    :arg pool: of the host. None: it has none, and an instance with disks in one is refused
    :raises InvalidInput, InvalidDiskInfo: the host has no pool, or another one than the disks. :raises DiskOpenElsewhere: a client has one open.
    :raises StorageClusterUnavailable: the cluster does not answer.
    """
    pool = _pool_of(folder, pool)
    if pool is None:
        return []
    with disk_images(pool, ledger_id, writing=False) as images:
        return ["image %s/%s" % (pool.pool, name) for name in images.remove(uuid, check_mode)]


def leave_images(folder: str, uuid: str, pool: DiskPool | None, ledger_id: str, check_mode: bool = False) -> list[str]:
    """Leave the images of an instance to another host, without what was kept of them before its move. See remove_images() for the others.

    Returns what was removed, as words.
    """
    pool = _pool_of(folder, pool)
    if pool is None or check_mode:
        return []
    with disk_images(pool, ledger_id, writing=False) as images:
        done = images.forget_before_move(uuid)
    return ["what was kept of the images of %s in pool %s" % (uuid, pool.pool)] if done else []


def _pool_of(folder: str, pool: DiskPool | None) -> DiskPool | None:
    """Return the pool with the disks of an instance. :raises InvalidInput, InvalidDiskInfo: see remove_images()"""
    records = [record for record in records_of(folder).values() if is_shared(record)] if os.path.isdir(folder) else []
    if pool is None and records:
        STORE_TYPES[records[0]["format"]].require_pool(None)
    if pool is not None:
        for record in records:
            check_recorded_pool(record, pool)
    return pool
