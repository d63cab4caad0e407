# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes what an instance has in volume groups of this host: mounts, lines in fstab, logical volumes."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass, field

from ....core.disks.logical_volumes import checked_lvm_name
from ....core.errors import DriverNotInitialized, MissingLibrary
from ...lvm import lvm
from ...os import fstab, mounts
from .disk_info import records_of
from .group import Group
from .instance_tags import of_instance
from .instance_volumes import remove


@dataclass
class Removed:
    """The parts that were, or in check mode would be, removed, as text, and the mount points."""

    words: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)


def volumes_of(uuid: str, local: Group) -> list[str]:
    """Return the names of the instance's logical volumes in the volume group of the host; none where the host has no such group."""
    if not local.vg:
        return []
    try:
        group = lvm.read_group(local.vg, local.ledger_id)
    except (DriverNotInitialized, MissingLibrary):  # whoever needs the group says so
        return []
    return [lv.name for lv in of_instance(group, uuid)]


def remove_volumes(folder: str, uuid: str, local: Group, check_mode: bool = False) -> Removed:
    """Unmount and remove the logical volumes of the instance, and no others: volumes of another ledger are not found.

    Every step can be interrupted; the next removal finds the rest by the tags.

    :arg local: the volume group of the host, without a name where it has none. The groups in the disk.info of the instance are searched too.
    :raises VolumeIsBusy: a volume is still open, or its file system is in use.
    :raises InvalidInput: something else is mounted inside the directory; nothing was changed.
    :raises DriverNotInitialized: a group with volumes of the instance does not exist.
    """
    removed = Removed()
    recorded = _recorded(folder)
    groups = sorted(recorded | ({local.vg} if local.vg else set()))
    volumes: dict[str, list[lvm.LogicalVolume]] = {}
    for vg in groups:
        try:
            group = lvm.read_group(checked_lvm_name(vg, "volume group"), local.ledger_id)
        except (DriverNotInitialized, MissingLibrary):
            if vg in recorded:
                raise
            continue  # no volume of the instance was ever created in it
        volumes[vg] = of_instance(group, uuid)
        removed.words += ["logical volume %s/%s" % (vg, lv.name) for lv in volumes[vg]]
    if groups:
        devices = [lvm.device_path(vg, lv.name) for vg, lvs in volumes.items() for lv in lvs]
        removed.places = [mount.place for mount in mounts.ours_below(folder, devices)]
        removed.words += ["mount of %s" % place for place in removed.places]
        removed.words += ["line in %s: %s" % (fstab.FSTAB, line) for line in fstab.lines_of(uuid)]
    if removed.words and not check_mode:
        for place in removed.places:
            mounts.unmount(place)
        fstab.remove(uuid)
        for vg, lvs in volumes.items():
            remove(vg, lvs, local.clearing)
    return removed


def _recorded(folder: str) -> set[str]:
    records: t.Iterable[t.Any] = records_of(folder).values() if os.path.isdir(folder) else ()
    return {record["volume_group"] for record in records if isinstance(record, dict) and record.get("volume_group")}
