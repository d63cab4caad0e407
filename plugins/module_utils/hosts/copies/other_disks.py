# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that a guest's domain really has and that are not the instance's: overlays of external snapshots, copies, disks attached by hand.

The guest writes to them, and the ledger does not know them. Where a guest leaves its host, or its domain gets other disks, they would stay behind.
"""

from __future__ import annotations

import copy
import os
import re
import typing as t

from ...core.disks.local import LVM, QCOW2_ON_LVM, local_disks, volume_name
from ...core.disks.logical_volumes import device_path
from ...core.disks.rescue import is_rescue
from ...core.errors import GuestDisksDiffer, GuestHasSnapshots
from ...core.guest.domain.disk import identify_disk
from ...core.guest.domain.element import parse, to_text
from ..disks.file_disks import records_of
from ..libvirt.connection import libvirt_errors
from ..libvirt.domains import DomainSpec, definitions_of
from ..os.paths import instance_dir

#: In the folder of the instance: what is a disk without a record in disk.info.
_DRIVES = ("disk.config", "disk.config.rescue")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def recorded_paths(folder: str) -> dict[str, tuple[str, t.Mapping[str, t.Any], bool]]:
    """Where each disk of disk.info is -> (its name, its record, whether it is in a file system on a logical volume)."""
    found: dict[str, tuple[str, t.Mapping[str, t.Any], bool]] = {}
    for name, record in records_of(folder).items():
        place = os.path.join(folder, name)
        if record.get("format") == QCOW2_ON_LVM:
            found.update({os.path.join(place, n): (n, its, True) for n, its in records_of(place).items()})
        elif record.get("format") == LVM:
            device = device_path(str(record.get("volume_group")), volume_name(os.path.basename(folder), name))
            found[device] = (name, record, False)
        else:
            found[place] = (name, record, False)
    return found


def path_of(disk: t.Any) -> str:
    """The source of a ``<disk>``, as people know it; "" without one."""
    source = disk.find("source")
    return "" if source is None else str(source.get("file") or source.get("dev") or source.get("name") or "a volume")


def is_written(disk: t.Any) -> bool:
    """Whether a ``<disk>`` may have data of the guest: a CD-ROM and a floppy come and go."""
    return disk.get("device", "disk") in ("disk", "lun") and disk.find("readonly") is None and bool(path_of(disk))


def is_volume(disk: t.Any) -> bool:
    """Whether a ``<disk>`` is a volume, of which the ledger knows whether it is attached."""
    if disk.get("type") not in ("block", "network"):
        return False
    alias = disk.find("alias")
    known_as = identify_disk(None if alias is None else alias.get("name"), disk.findtext("serial"))
    return bool(_UUID.fullmatch(known_as or ""))


def other_disks(roots: t.Iterable[t.Any], folder: str) -> dict[str, str]:
    """target -> path of each disk of these definitions that is not the instance's. :arg folder: of the instance"""
    known = {os.path.realpath(path) for path in recorded_paths(folder)}
    known |= {os.path.realpath(os.path.join(folder, name)) for name in _DRIVES}
    found: dict[str, str] = {}
    for root in roots:
        for disk in root.iterfind("devices/disk"):
            if is_written(disk) and not is_volume(disk) and os.path.realpath(path_of(disk)) not in known:
                target = disk.find("target")
                found.setdefault("" if target is None else str(target.get("dev")), path_of(disk))
    return found


def refuse_to_leave(domain: t.Any, folder: str) -> None:
    """Check that all that the guest has can leave this host with it. Writes nothing.

    :arg folder: of the instance
    :raises GuestDisksDiffer: it writes to a disk that is not the instance's.
    :raises GuestHasSnapshots: libvirt has snapshots or checkpoints of it, which are tied to this host.
    """
    uuid = os.path.basename(folder)
    with libvirt_errors():
        name = domain.name()
    refuse_other_disks(uuid, name, other_disks(definitions_of(domain), folder))
    with libvirt_errors():
        snapshots, checkpoints = domain.snapshotNum(0), len(domain.listAllCheckpoints(0))
    if snapshots or checkpoints:
        what = "snapshots" if snapshots else "checkpoints"
        raise GuestHasSnapshots(instance_uuid=uuid, host=os.uname().nodename, domain=name, what=what)


def refuse_other_disks(uuid: str, name: str, found: t.Mapping[str, str]) -> None:
    """:arg name: of the domain. :arg found: see other_disks()

    :raises GuestDisksDiffer: there are some.
    """
    if found:
        target, path = sorted(found.items())[0]
        raise GuestDisksDiffer(instance_uuid=uuid, host=os.uname().nodename, domain=name, target=target, path=path)


def keep_others(instances_path: str, spec: DomainSpec, before: t.Sequence[t.Any]) -> str:
    """The XML of ``spec`` with the disks that the guest really has, see with_other_disks(). A rescue puts the disks at other places, where nobody can
    tell what another disk stands for.

    :arg before: the definitions of its domain
    :raises GuestDisksDiffer: the guest has a disk that is not the instance's, and it cannot be taken along.
    """
    folder = instance_dir(instances_path, spec.uuid)
    if any(is_rescue(root, spec.uuid) for root in (parse(spec.xml), *before)):
        refuse_other_disks(spec.uuid, spec.name, other_disks(before, folder))
        return spec.xml
    return with_other_disks(spec.xml, before, spec.uuid, spec.name, folder)


def with_other_disks(xml: str, before: t.Sequence[t.Any], uuid: str, name: str, folder: str) -> str:
    """``xml`` with the sources that its local disks have in the definitions ``before``: a guest goes on with the overlay of an external snapshot, or with
    the copy, to which it wrote last. Disks that were attached by hand are left out; nothing removes their files.

    :arg before: as the guest runs, if it does, and as it would start. :arg name: of the domain. :arg folder: of the instance
    :raises GuestDisksDiffer: nobody can tell which disk of the instance another one stands for.
    """
    others = other_disks(before, folder)
    if not others:
        return xml
    root = parse(xml)
    has = {path_of(disk) for one in before for disk in one.iterfind("devices/disk")}
    for _name, disk in local_disks(root, uuid):
        target = disk.find("target").get("dev")
        if target in others:
            found = (each for one in before for each in one.iterfind("devices/disk") if path_of(each) == others[target])
            _take_source(disk, next(found))
            del others[target]
        elif path_of(disk) not in has:
            refuse_other_disks(uuid, name, others)
    return to_text(root)


def _take_source(disk: t.Any, found: t.Any) -> None:
    """Where QEMU has the data of a disk, and in which format, without what libvirt adds of a running guest."""
    disk.set("type", found.get("type"))
    for tag in ("driver", "source", "backingStore"):
        for old in disk.findall(tag):
            disk.remove(old)
    for place, tag in enumerate(("driver", "source")):
        new = found.find(tag)
        if new is not None:
            new = copy.deepcopy(new)
            new.attrib.pop("index", None)
            for private in new.findall("privateData"):
                new.remove(private)
            disk.insert(place, new)
