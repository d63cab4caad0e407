# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of a guest that is rescued: one of the rescue image, from which it boots, and behind it all of its own.

source: Nova's libvirt driver (blockinfo.get_disk_mapping with rescue)
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..model import Image
from .block_device_mapping import prepend_dev
from .block_devices import PlannedDisk
from .disk_names import check_bus, check_device, default_bus, free_name

#: In the folder of the instance: the disk of the rescue image, the config drive of the rescue, the definition that comes back.
DISK, CONFIG_DRIVE, DEFINITION = "disk.rescue", "disk.config.rescue", "unrescue.xml"


def is_rescue(xml: t.Any, uuid: str) -> bool:
    """Whether a domain's XML has the disk of a rescue."""
    return any(
        source.get("file", "").endswith("/%s/%s" % (uuid, DISK))
        for source in xml.iterfind("devices/disk/source[@file]")
    )


def is_stable(image: Image) -> bool:
    """Whether the guest's own disks keep their names. source: Nova's check_hw_rescue_props

    An ISO image is a CD-ROM, which takes no name from a disk.
    """
    asked = any(image.properties.get(name) for name in ("hw_rescue_device", "hw_rescue_bus"))
    return asked or image.disk_format == "iso"


def rescue_plan(
    disks: t.Sequence[PlannedDisk], image: Image, machine: str | None = None, arch: str = "x86_64"
) -> list[PlannedDisk]:
    """The disks of the rescued guest; the one of ``image`` has no location yet.

    It takes the first name of its bus, and each other disk, the root disk first, the next that is free. With hw_rescue_device or
    hw_rescue_bus of the image it comes last and the others keep their names.

    :arg disks: the guest's own, root first. Nova leaves out all but the root disk where names are not kept.
    :raises UnsupportedHardware: a bus that the machine lacks, or that does not have such a device.
    :raises TooManyDiskDevices: (403) the bus is full.
    """
    properties = image.properties
    device = str(properties.get("hw_rescue_device") or ("cdrom" if image.disk_format == "iso" else "disk"))
    asked = properties.get("hw_rescue_bus")
    bus = (
        check_device(device, check_bus(str(asked), machine=machine))
        if asked
        else default_bus(device, properties, machine=machine, arch=arch)
    )
    own = [dataclasses.replace(disk, boot_index=None) for disk in disks]
    stable = is_stable(image)
    taken = {disk.dev for disk in own} if stable else set()
    name = free_name(bus, taken)
    rescue = PlannedDisk(
        name=DISK,
        kind="image",
        device_name=prepend_dev(name),
        disk_bus=bus,
        device_type=device,
        boot_index=0,
        readonly=device == "cdrom",
    )
    if stable:
        return [*own, rescue]
    taken.add(name)
    renamed = []
    for disk in own:
        name = free_name(disk.disk_bus, taken)
        taken.add(name)
        renamed.append(dataclasses.replace(disk, device_name=prepend_dev(name)))
    return [rescue, *renamed]
