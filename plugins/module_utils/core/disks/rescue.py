# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of a guest that is rescued: a disk of the rescue image, from which it boots, and behind it all disks of the instance.

source: Nova's libvirt driver (blockinfo.get_disk_mapping with rescue)
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..model import Image
from .block_device_mapping import prepend_dev
from .block_devices import PlannedDisk
from .disk_names import check_bus, check_device, default_bus, free_name, is_q35

#: In the folder of the instance: the disk of the rescue image, the config drive of the rescue, the definition that comes back.
DISK, CONFIG_DRIVE, DEFINITION = "disk.rescue", "disk.config.rescue", "unrescue.xml"
#: Image properties that say on which machine the system of an image boots, and which devices it drives.
HARDWARE = frozenset(
    (
        *("hw_architecture", "architecture", "hw_machine_type", "hw_firmware_type", "os_secure_boot", "os_type"),
        *("hw_disk_bus", "hw_cdrom_bus", "hw_floppy_bus", "hw_scsi_model", "hw_vif_model"),
    )
)


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


def rescue_properties(own: t.Mapping[str, t.Any], image: Image, machine: str | None = None) -> dict[str, t.Any]:
    """Return the image properties of the rescued guest: its own, and from ``image`` the hardware properties that the rescue system needs.

    What ``image`` does not name is the default: its system may boot with no other firmware. Where the guest's own disks keep their names, so do
    its firmware, its machine and its other devices. source: Nova's LibvirtDriver.rescue, which takes all properties of one of the two images

    :arg own: properties of the image that the guest was booted with.
    :arg machine: the machine type that the guest was booted with, where ``image`` is its own.
    """
    if is_stable(image):
        return dict(own)
    properties = {name: value for name, value in own.items() if name not in HARDWARE}
    if machine:
        properties["hw_machine_type"] = machine
    return {**properties, **{name: value for name, value in image.properties.items() if name in HARDWARE}}


def rescue_plan(
    disks: t.Sequence[PlannedDisk], image: Image, machine: str | None = None, arch: str = "x86_64"
) -> list[PlannedDisk]:
    """The disks of the rescued guest; the one of ``image`` has no location yet.

    It takes the first name of its bus, and each other disk, the root disk first, the next that is free. The root disk is on its bus, too: the
    system of the image may have a driver for no other. With hw_rescue_device or hw_rescue_bus of the image it comes last and the others
    keep their names and buses.

    :arg disks: the guest's own, root first. Nova leaves out all but the root disk where names are not kept.
    :arg machine: that of the rescued guest.
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
    used_names = {disk.dev for disk in own} if stable else set()
    name = free_name(bus, used_names)
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
    used_names.add(name)
    renamed = []
    for index, disk in enumerate(own):
        # A CD-ROM or a lun may not exist on that bus.
        own_bus = bus if index == 0 and disk.device_type == "disk" else disk.disk_bus
        if own_bus == "ide" and is_q35(machine):  # which the guest's own machine has
            own_bus = bus if disk.device_type == "disk" else default_bus("cdrom", properties, machine=machine)
        name = free_name(own_bus, used_names)
        used_names.add(name)
        renamed.append(dataclasses.replace(disk, device_name=prepend_dev(name), disk_bus=own_bus))
    return [rescue, *renamed]
