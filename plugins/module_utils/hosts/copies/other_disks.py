# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that a guest's domain really has and that are not the instance's: overlays of external snapshots, copies, disks attached by hand.

An overlay or a copy takes the place of a local disk, or of a volume.

The guest writes to them, and the ledger does not know them. Where a guest leaves its host, or its domain gets other disks, they would stay behind.
"""

from __future__ import annotations

import copy
import os
import typing as t

from ...core.backups.backup import is_own
from ...core.disks.local import local_disks, volume_name
from ...core.disks.rescue import is_rescue
from ...core.disks.stores.registry import type_of_record
from ...core.errors import GuestDisksDiffer, GuestHasSnapshots
from ...core.guest.domain.element import parse, to_text
from ..disks.stores.disk_info import records_of
from ..libvirt.backup_job import refuse_running_backup
from ..libvirt.connection import libvirt_errors
from ..libvirt.domains import DomainSpec, definitions_of
from ..os.paths import instance_dir
from ..os.volume_sources import UUID, VolumeSources, is_written, known_as, path_of, sources_in, target_of

#: In the folder of the instance: what is a disk without a record in disk.info.
_DRIVES = ("disk.config", "disk.config.rescue")

#: Id of a volume -> where this host has it, see VolumeSources.is_same(). A volume that is not in it is not compared.
Volumes = t.Mapping[str, str]


def recorded_paths(folder: str) -> dict[str, tuple[str, t.Mapping[str, t.Any], bool]]:
    """Return where each disk of disk.info is, as path_of() -> (its name, its record, whether it is in a file system on a logical volume)."""
    paths: dict[str, tuple[str, t.Mapping[str, t.Any], bool]] = {}
    for name, record in records_of(folder).items():
        place, store = os.path.join(folder, name), type_of_record(record)
        if store is None:
            paths[place] = (name, record, False)
        elif store.is_file_system:
            paths.update(
                {os.path.join(place, n): (n, disk_record, True) for n, disk_record in records_of(place).items()}
            )
        elif store.is_shared:
            paths["%s/%s" % (record.get("pool"), volume_name(os.path.basename(folder), name))] = (name, record, False)
        else:
            source = store.source(os.path.basename(folder), name, folder, str(record.get("volume_group")))
            paths[source.path] = (name, record, False)
    return paths


def is_volume(disk: t.Any) -> bool:
    """Return whether a ``<disk>`` is a volume, of which the ledger knows whether it is attached."""
    return disk.get("type") in ("block", "network") and bool(UUID.fullmatch(known_as(disk)))


def other_disks(roots: t.Iterable[t.Any], folder: str, volumes: Volumes | None = None) -> dict[str, str]:
    """Return target -> path of each disk of these definitions that is not the instance's.

    :arg folder: of the instance. :arg volumes: that it has
    """
    known = {os.path.realpath(path) for path in recorded_paths(folder)}
    known |= {os.path.realpath(os.path.join(folder, name)) for name in _DRIVES}
    roots = list(roots)
    other_paths = replaced_volumes(roots, volumes or {})
    for root in roots:
        for disk in root.iterfind("devices/disk"):
            if is_written(disk) and not is_volume(disk) and known_as(disk) not in (volumes or {}):
                if os.path.realpath(path_of(disk)) not in known:
                    other_paths.setdefault(target_of(disk), path_of(disk))
    return other_paths


def replaced_volumes(roots: t.Iterable[t.Any], volumes: Volumes) -> dict[str, str]:
    """Return target -> path of each disk of these definitions that replaces a volume: an overlay on it, or a copy.

    A volume that is being copied does not count: the guest writes to both until the job pivots to the copy.
    """
    sources = VolumeSources()
    other_paths: dict[str, str] = {}
    for root in roots:
        for disk in root.iterfind("devices/disk"):
            volume_id = known_as(disk)
            if is_written(disk) and volume_id in volumes and not sources.is_same(disk, volume_id, volumes[volume_id]):
                other_paths.setdefault(target_of(disk), path_of(disk))
    return other_paths


def refuse_to_leave(domain: t.Any, folder: str, volumes: Volumes) -> None:
    """Check that all that the guest has can leave this host with it, and now. Writes nothing.

    :arg folder: of the instance. :arg volumes: that the ledger has for it
    :raises GuestDisksDiffer: it writes to a disk that is not the instance's, or to another one than its volume.
    :raises GuestHasSnapshots: libvirt has snapshots, or checkpoints of other programs, which are tied to this host.
    :raises BackupRuns: a backup of the guest runs, which would end without a result.
    """
    uuid = os.path.basename(folder)
    with libvirt_errors():
        name = domain.name()
    refuse_other_disks(uuid, name, other_disks(definitions_of(domain), folder, volumes))
    with libvirt_errors():
        snapshots = domain.snapshotNum(0)
        # Without a checkpoint of this collection the next backup is full, or makes it known again.
        checkpoints = [c for c in domain.listAllCheckpoints(0) if not is_own(c.getName())]
    if snapshots or checkpoints:
        what = "snapshots" if snapshots else "checkpoints"
        raise GuestHasSnapshots(instance_uuid=uuid, host=os.uname().nodename, domain=name, what=what)
    refuse_running_backup(domain)


def refuse_replaced_volumes(domain: t.Any, uuid: str, volumes: Volumes) -> None:
    """Check that the guest has its volumes themselves. Writes nothing.

    :arg volumes: that the ledger has for it
    :raises GuestDisksDiffer: it writes to another disk than one of them.
    """
    with libvirt_errors():
        name = domain.name()
    refuse_other_disks(uuid, name, replaced_volumes(definitions_of(domain), volumes))


def refuse_other_disks(uuid: str, name: str, other_paths: t.Mapping[str, str]) -> None:
    """Refuse a guest with other disks. :arg name: of the domain. :arg other_paths: see other_disks()

    :raises GuestDisksDiffer: there are some.
    """
    if other_paths:
        target, path = sorted(other_paths.items())[0]
        raise GuestDisksDiffer(instance_uuid=uuid, host=os.uname().nodename, domain=name, target=target, path=path)


def keep_others(instances_path: str, spec: DomainSpec, before: t.Sequence[t.Any]) -> str:
    """Return the XML of ``spec`` with the current disks of the guest, see with_other_disks(). A rescue changes the targets of the disks, so that another
    disk cannot be assigned to one of the instance.

    :arg before: the definitions of its domain
    :raises GuestDisksDiffer: the guest has a disk that is not the instance's, and it cannot be taken along.
    """
    folder = instance_dir(instances_path, spec.uuid)
    wanted = parse(spec.xml)
    if any(is_rescue(root, spec.uuid) for root in (wanted, *before)):
        refuse_other_disks(spec.uuid, spec.name, other_disks(before, folder, sources_in(wanted)))
        return spec.xml
    return with_other_disks(spec.xml, before, spec.uuid, spec.name, folder)


def with_other_disks(xml: str, before: t.Sequence[t.Any], uuid: str, name: str, folder: str) -> str:
    """Return ``xml`` with the sources of its local disks in the definitions ``before``: a guest continues with the overlay of an external snapshot, or
    with the copy that it wrote to last. Disks that were attached by hand are left out; nothing removes their files.

    An overlay or a copy of a volume is refused: the ledger has the volume, which could be attached elsewhere without what the guest wrote last.

    :arg before: as the guest runs, if it does, and as it would start. :arg name: of the domain. :arg folder: of the instance
    :raises GuestDisksDiffer: another disk cannot be assigned to one of the instance, or it replaces a volume.
    """
    root = parse(xml)
    refuse_other_disks(uuid, name, replaced_volumes(before, sources_in(root)))
    others = other_disks(before, folder)
    if not others:
        return xml
    has = {path_of(disk) for one in before for disk in one.iterfind("devices/disk")}
    for _name, disk in local_disks(root, uuid):
        target = disk.find("target").get("dev")
        if target in others:
            sources = (
                source_disk
                for one in before
                for source_disk in one.iterfind("devices/disk")
                if path_of(source_disk) == others[target]
            )
            _take_source(disk, next(sources))
            del others[target]
        elif path_of(disk) not in has:
            refuse_other_disks(uuid, name, others)
    return to_text(root)


def refuse_to_restore(domain: t.Any, xml: str, folder: str) -> None:
    """Check that the definition ``xml``, which comes back at the end of a rescue, has the disks that the rescued guest has. Writes nothing.

    :arg folder: of the instance
    :raises GuestDisksDiffer: an overlay or a copy has taken the place of one since.
    """
    root, before, uuid = parse(xml), definitions_of(domain), os.path.basename(folder)
    with libvirt_errors():
        name = domain.name()
    refuse_other_disks(uuid, name, replaced_volumes(before, sources_in(root)))
    others = other_disks(before, folder)
    has = {path_of(disk) for one in before for disk in one.iterfind("devices/disk")}
    own = {path_of(disk) for disk_name, disk in local_disks(root, uuid) if disk_name not in _DRIVES}
    if not own <= has:
        refuse_other_disks(uuid, name, others)


def _take_source(disk: t.Any, source_disk: t.Any) -> None:
    """Copy the source and format of ``source_disk`` to ``disk``, without libvirt's additions for a running guest."""
    disk.set("type", source_disk.get("type"))
    for tag in ("driver", "source", "backingStore"):
        for old in disk.findall(tag):
            disk.remove(old)
    for place, tag in enumerate(("driver", "source")):
        new = source_disk.find(tag)
        if new is not None:
            new = copy.deepcopy(new)
            new.attrib.pop("index", None)
            for private in new.findall("privateData"):
                new.remove(private)
            disk.insert(place, new)
