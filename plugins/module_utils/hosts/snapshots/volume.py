# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of volumes: a logical volume of this host becomes a file. A volume in use is read as it is, as after a power cut.

source: Cinder's LVM driver (copy_volume_to_image) and image_utils.upload_volume
"""

from __future__ import annotations

import os
import time
import typing as t
from dataclasses import dataclass

from ...core.disks.local import QCOW2, RAW
from ...core.errors import InvalidSnapshot, RemoteError, VolumeIsBusy, VolumeNotFound
from ..libvirt.running import run_is_gone
from ..lvm import lvm
from ..lvm.lvm import LogicalVolume, VolumeGroup
from ..lvm.lvm_tags import DELETING, INCOMPLETE, LEDGER, VOLUME, identity, lv_name, tag_value
from ..os.batch import progress
from ..os.files import remove_files
from ..os.ownership import check_owner
from ..os.paths import checked_id, checked_uuid, make_dirs
from ..os.room import check_room
from .files import Target, convert

DIRECT = "none"  # initiators write past the page cache of this host


@dataclass(frozen=True)
class VolumeSpec:
    """The image to make of a volume."""

    id: str
    image_id: str
    volume_group: str
    disk_format: str = RAW


def take(
    spec: VolumeSpec, target: Target, ledger_id: str = "", compress: bool = False, check_mode: bool = False
) -> dict[str, t.Any]:
    """Make an image of the volume. Returns {changed, disk_format, seconds, path, size, checksum}.

    :arg compress: a file of the format qcow2
    :raises VolumeNotFound, VolumeIsBusy, Conflict, InvalidSnapshot, DriverNotInitialized: there is no such volume with its data.
    :raises DiskFull: there is no room, which is looked at before. :raises CommandFailed, ImageUnacceptable: as named.
    """
    begin = time.monotonic()
    volume_id, image_id = checked_uuid(spec.id), checked_id(spec.image_id, "image id")
    group = lvm.read_group(spec.volume_group, ledger_id)
    lv = find(group, volume_id)
    outcome: dict[str, t.Any] = {"changed": True, "disk_format": spec.disk_format}
    if not check_mode:
        make_own(target)
    check_room(_existing(target.folder), room_of(lv), "the image needs")
    if not check_mode:
        with lvm.item_locks([volume_id]):
            _refuse_gone(volume_id)
            progress.mark_changed()
            outcome.update(_make(group, lv, spec.disk_format, target, image_id, compress))
    return {**outcome, "seconds": round(time.monotonic() - begin, 3)}


def make_own(target: Target) -> None:
    """Make the host's own folder, which the owner of files that stay there can pass."""
    make_dirs(target.own)
    above = os.path.dirname(target.own)
    mode = os.stat(above).st_mode & 0o777
    if target.owner and not mode & 0o001:
        os.chmod(above, mode | 0o011)  # what else is in it only root can read


def _existing(folder: str) -> str:
    """Return the folder, or the nearest one above it that is there: check mode makes none."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def find(group: VolumeGroup, volume_id: str) -> LogicalVolume:
    """Return the logical volume of a volume. :raises BootflowError: see take()"""
    name = lv_name(VOLUME, volume_id)
    lv = group.lvs.get(name)
    if lv is None or identity(lv.tags) != (VOLUME, volume_id) or INCOMPLETE in lv.tags:
        raise VolumeNotFound(
            volume_id=volume_id, remedy="Volume group %s has no complete %s (lvs -o +tags)." % (group.name, name)
        )
    check_owner("logical volume %s/%s" % (group.name, name), tag_value(lv.tags, LEDGER), group.ledger_id)
    if DELETING in lv.tags:
        raise VolumeIsBusy(message="%s was partly deleted and its content is lost" % name)
    if lv.is_invalid:
        raise InvalidSnapshot(reason="the content of %s is lost" % name)
    return lv


def room_of(lv: LogicalVolume) -> int:
    """Return the bytes that a file of the volume takes at most. A thick volume does not say what was written."""
    size = int(lv.size * (lv.data_percent if lv.is_thin and lv.data_percent is not None else 100.0) / 100)
    return size + size // 1000 + 1024**2  # the tables of qcow2


def _make(
    group: VolumeGroup, lv: LogicalVolume, disk_format: str, target: Target, image_id: str, compress: bool
) -> dict[str, t.Any]:
    part = target.part_of(image_id)
    remove_files(part)  # of a killed run: the ledger gives an image to one run
    try:
        if not lv.is_active:
            lvm.set_active(group.name, [lv.name], True)
        convert(group.path(lv.name), RAW, part, disk_format, compress and disk_format == QCOW2, DIRECT)
        return target.publish(part, image_id, disk_format)
    finally:
        remove_files(part)


def _refuse_gone(volume_id: str) -> None:
    """:raises RemoteError: the run that started this module is gone, and another one may have the volume."""
    if run_is_gone():
        raise RemoteError(reason="volume %s is left as it is: the run that asked for this is gone" % volume_id)
