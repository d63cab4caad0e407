# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an instance has in volume groups of this host, taken away: its mounts, its lines in fstab, its logical volumes."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass, field

from ...core.errors import DriverNotInitialized, MissingLibrary
from ..lvm import lvm
from ..lvm.lvm_tags import checked_name
from ..os import fstab, mounts
from .file_disks import records_of
from .instance_tags import of_instance
from .instance_volumes import Clearing, remove


@dataclass(frozen=True)
class LocalVolumes:
    """Where to look: the host's volume group ("": none), beside those that the instance's disk.info names."""

    volume_group: str = ""
    clearing: Clearing = field(default_factory=Clearing)


NO_GROUP = LocalVolumes()


@dataclass
class Removed:
    """What was, or in check mode would be, removed, in words, and the folders on which it was mounted."""

    words: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)


def remove_volumes(folder: str, uuid: str, local: LocalVolumes, check_mode: bool = False) -> Removed:
    """Unmount and remove the instance's logical volumes, and nobody else's.

    Every step may be interrupted; the next removal finds by the tags what is left.

    :raises VolumeIsBusy: one is still open, or its file system in use.
    :raises InvalidInput: something else is mounted inside the folder; nothing was touched.
    :raises DriverNotInitialized: a group that the instance has volumes in is not there.
    """
    found = Removed()
    recorded = _recorded(folder)
    groups = sorted(recorded | ({local.volume_group} if local.volume_group else set()))
    volumes: dict[str, list[lvm.LogicalVolume]] = {}
    for vg in groups:
        try:
            group = lvm.read_group(checked_name(vg, "volume group"))
        except (DriverNotInitialized, MissingLibrary):
            if vg in recorded:
                raise
            continue  # nothing of the instance was ever made in it
        volumes[vg] = of_instance(group, uuid)
        found.words += ["logical volume %s/%s" % (vg, lv.name) for lv in volumes[vg]]
    if groups:
        devices = [lvm.device_path(vg, lv.name) for vg, lvs in volumes.items() for lv in lvs]
        found.places = [mount.place for mount in mounts.ours_below(folder, devices)]
        found.words += ["mount of %s" % place for place in found.places]
        found.words += ["line in %s: %s" % (fstab.FSTAB, line) for line in fstab.lines_of(uuid)]
    if found.words and not check_mode:
        for place in found.places:
            mounts.unmount(place)
        fstab.remove(uuid)
        for vg, lvs in volumes.items():
            remove(vg, lvs, local.clearing)
    return found


def _recorded(folder: str) -> set[str]:
    records: t.Iterable[t.Any] = records_of(folder).values() if os.path.isdir(folder) else ()
    return {record["volume_group"] for record in records if isinstance(record, dict) and record.get("volume_group")}
