# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of instances: the root disk of a guest becomes a file without a base image. A guest that runs goes on meanwhile.

source: Nova's libvirt driver (snapshot, _live_snapshot, snapshot_extract)
"""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ...core.disks.local import QCOW2, RAW
from ...core.errors import InstanceNotFound, LibvirtError
from ...core.images.quiesce import NO
from ..images.nvram import packed_nvram
from ..libvirt.domains import definitions_of
from ..libvirt.running import find_domain, is_active, power_state, refuse_gone
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import remove_files
from ..os.locks import at_work
from ..os.paths import checked_id, checked_uuid, instance_dir, make_dirs, snapshots_dir
from ..os.room import check_room
from .files import Target, convert, target_by
from .live_copy import copy_disk
from .publish import file_of
from .root_disk import RootDisk, root_disk, target_of


@dataclass(frozen=True)
class SnapshotSpec:
    """The image to make of an instance. ``quiesce``: of core.images.quiesce"""

    uuid: str
    image_id: str
    quiesce: str = NO


@dataclass(frozen=True)
class Place:
    """Where images of this host are made, and where their files belong. ``image_format``: "": that of the disk"""

    instances_path: str
    uri: str
    target: Target
    image_format: str = ""
    compress: bool = False


def place_of(options: t.Mapping[str, t.Any]) -> Place:
    """Return the place by the options of the module. :raises BootflowError: see target_by()"""
    return Place(
        options["instances_path"],
        options["libvirt_uri"],
        target_by(options, snapshots_dir(options["instances_path"])),
        options["image_format"] or "",
        options["compress"],
    )


def take(connection: t.Any, spec: SnapshotSpec, place: Place, check_mode: bool = False) -> dict[str, t.Any]:
    """Make an image of the root disk. Returns {changed, power_state, disk_format, live, quiesced, seconds, path, size, checksum, nvram}.

    ``nvram`` has the UEFI variables of the guest, see core.guest.nvram.pack().

    :raises InstanceNotFound: the host has no domain of the instance. :raises InvalidDiskInfo: the root disk is missing or has no record.
    :raises GuestDisksDiffer: the guest has another disk in its place. :raises DiskFull: there is no room, which is looked at before.
    :raises InstanceQuiesceNotSupported, LibvirtError, HypervisorUnavailable, CommandFailed, ImageUnacceptable: as named.
    """
    begin = time.monotonic()
    uuid, image_id = checked_uuid(spec.uuid), checked_id(spec.image_id, "image id")
    domain = find_domain(connection, uuid)
    if domain is None:
        raise InstanceNotFound(
            instance_id=spec.uuid,
            remedy="The domain is gone from the host: reboot the instance with bootflow_reboot_type: HARD, which defines it again.",
        )
    live = is_active(domain)
    disk = root_disk(
        place.instances_path, instance_dir(place.instances_path, uuid), readable=not live and not check_mode
    )
    target = target_of(definitions_of(domain)[0], disk, uuid, domain.name())
    disk_format = place.image_format or disk.format
    outcome = {"changed": True, "live": live, "disk_format": disk_format, "quiesced": False}
    if not check_mode:
        refuse_gone(uuid)
        with at_work([uuid]):
            progress.mark_changed()
            outcome.update(_make(domain, spec, place, disk, target, disk_format, live, image_id))
    else:
        outcome["power_state"] = power_state(domain)
    return {**outcome, "seconds": round(time.monotonic() - begin, 3)}


def _make(
    domain: t.Any,
    spec: SnapshotSpec,
    place: Place,
    disk: RootDisk,
    target: str,
    disk_format: str,
    live: bool,
    image_id: str,
) -> dict[str, t.Any]:
    own, folder = place.target.own, place.target.folder
    make_dirs(own)  # QEMU can pass it
    part = place.target.part_of(image_id)
    # virt-aa-helper reads disks by their endings.
    copy = "%s.%s" % (file_of(own, image_id), disk_format)
    compress = place.compress and disk_format == QCOW2
    # QEMU copies the zeros of a raw disk, too.
    again = live and disk_format == QCOW2 and (compress or disk.format == RAW)
    still = False
    remove_files(part, copy)  # of a killed run: the ledger gives an image to one run
    try:
        if live:
            check_room(own, disk.room(disk_format, live))
            still = copy_disk(domain, place.uri, spec.uuid, target, copy, disk_format, spec.quiesce)
            if disk_format == RAW:
                dig_holes(copy)
        if again or not live:
            check_room(folder, disk.room(disk_format, False))
            source = (copy, disk_format) if live else (disk.path, disk.format)
            convert(*source, part, disk_format, compress)
        if not live and is_active(domain):
            raise LibvirtError(
                reason="guest %s was started while its disk was copied" % spec.uuid, remedy="Make the snapshot again."
            )
        made = part if again or not live else copy
        nvram = packed_nvram(instance_dir(place.instances_path, spec.uuid))
        state = power_state(domain)  # before the file has its name: a failure leaves none
        done = place.target.publish(made, image_id, disk_format)
        return {**done, "quiesced": still, "power_state": state, "nvram": nvram}
    finally:
        remove_files(part, copy)


def dig_holes(path: str) -> None:
    """Free the blocks of zeros in a file. Where the file system cannot, they stay."""
    run([program("fallocate", "util-linux"), "--dig-holes", path], check=False, outlives=False)
