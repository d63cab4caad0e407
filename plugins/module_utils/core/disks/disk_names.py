# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disk buses and the names of disks in the guest. source: Nova's libvirt driver (blockinfo)"""

from __future__ import annotations

import re
import string
import typing as t

from ..errors import InvalidBDM, InvalidInput, TooManyDiskDevices, UnsupportedHardware

BUS_PREFIX: t.Mapping[str, str] = {
    "virtio": "vd",
    "scsi": "sd",
    "sata": "sd",
    "usb": "sd",
    "ide": "hd",
    "fdc": "fd",
}
PREFIX_BUS: t.Mapping[str, str] = {"vd": "virtio", "sd": "scsi", "hd": "ide", "fd": "fdc"}
BUS_LIMIT: t.Mapping[str, int] = {"ide": 4, "fdc": 2}
VALID_BUSES = tuple(BUS_PREFIX)
# What QEMU has of each kind of disk. Nova leaves this to libvirt, which refuses the guest on every host.
DEVICE_BUSES: t.Mapping[str, t.Sequence[str]] = {
    "disk": ("virtio", "scsi", "sata", "ide", "usb"),
    "cdrom": ("scsi", "sata", "ide", "usb"),
    "floppy": ("fdc",),
    "lun": ("scsi", "virtio"),
}

_NAME = re.compile(r"(vd|sd|hd|fd)([a-z]{1,2})\Z")
# No legacy IDE exists on these, so Nova gives their CD-ROMs SCSI (riscv64 is not in its list, and has none either).
_SCSI_CDROM_ARCHES = frozenset({"aarch64", "arm64", "ppc", "ppc64", "ppcle", "ppc64le", "s390", "s390x", "riscv64"})


def is_q35(machine: str | None) -> bool:
    """Whether a machine type, or its alias, is of the q35 family: distributions have names of their own (ubuntu-q35)."""
    return bool(machine) and "q35" in str(machine)


def check_bus(bus: str, virt_type: str = "kvm", machine: str | None = None) -> str:
    """The bus, when QEMU has it on that machine.

    Where a block device asks for a bus of another hypervisor Nova takes the default instead; here it is told.

    :raises UnsupportedHardware: unknown bus, or IDE on q35, which has none.
    """
    if not _known(bus) or (bus == "ide" and is_q35(machine)):
        raise UnsupportedHardware(
            model=bus, virt=virt_type, remedy="Use one of %s (no ide on q35)." % ", ".join(VALID_BUSES)
        )
    return bus


def check_device(device_type: str, bus: str, virt_type: str = "kvm") -> str:
    """The bus, when a disk, cdrom, floppy or lun can be on it.

    :raises UnsupportedHardware: it cannot, or there is no such type.
    """
    buses = DEVICE_BUSES.get(device_type, ()) if isinstance(device_type, str) else ()
    if bus not in buses:
        raise UnsupportedHardware(
            model="%s on %s" % (device_type, bus),
            virt=virt_type,
            remedy="Use one of %s for it." % ", ".join(buses) if buses else "A device is disk, cdrom, floppy or lun.",
        )
    return bus


def default_bus(
    device_type: str,
    properties: t.Mapping[str, t.Any],
    virt_type: str = "kvm",
    machine: str | None = None,
    arch: str = "x86_64",
) -> str:
    """The bus of a disk, cdrom, floppy or lun: the image's ``hw_<type>_bus``, else Nova's default.

    Disks are virtio; CD-ROMs are on IDE, on SATA with q35, on SCSI where neither exists. A lun is SCSI, which
    pass-through needs; Nova has no default for it, and fails without a disk_bus. What libosinfo knows of an image's
    os_distro is not asked.

    :raises UnsupportedHardware: the image names a bus that the machine, or the type, has not; an unknown type.
    """
    asked = properties.get("hw_%s_bus" % device_type) if properties else None
    if asked:
        return check_device(device_type, check_bus(str(asked), virt_type, machine), virt_type)
    if device_type == "cdrom":
        if arch in _SCSI_CDROM_ARCHES:
            return "scsi"
        return "sata" if is_q35(machine) else "ide"
    return check_device(device_type, {"floppy": "fdc", "lun": "scsi"}.get(device_type, "virtio"), virt_type)


def config_drive_bus(
    device_type: str,
    properties: t.Mapping[str, t.Any],
    virt_type: str = "kvm",
    machine: str | None = None,
    arch: str = "x86_64",
) -> str:
    """The bus of the config drive: the image's property (hw_cdrom_bus, hw_disk_bus), else as any CD-ROM.

    One default differs from Nova's: with q35 the drive sits on virtio-scsi and not on SATA. Kernels made for clouds
    (Debian's linux-image-cloud, for one) have virtio-scsi but no AHCI, would not see the drive and come up without
    hostname, address and keys. Windows images, and images that are not themselves on virtio or SCSI, keep SATA:
    nothing says that they have the driver. ``hw_cdrom_bus: sata`` is Nova's behaviour.

    :raises UnsupportedHardware: the bus does not exist on the machine, or does not carry such a drive.
    """
    properties = properties or {}
    if properties.get("hw_%s_bus" % device_type):
        return default_bus(device_type, properties, virt_type, machine, arch)
    if device_type == "cdrom" and is_q35(machine) and str(properties.get("os_type", "")).lower() != "windows":
        disk_bus = str(properties.get("hw_disk_bus") or "virtio")
        if disk_bus in ("virtio", "scsi"):
            return "scsi"
    return default_bus(device_type, properties, virt_type, machine, arch)


def disk_name(bus: str, index: int) -> str:
    """``vda``, ``vdb`` ... ``vdz``, ``vdaa`` for index 0, 1 ... 25, 26 on that bus.

    :raises UnsupportedHardware: unknown bus. :raises InvalidInput: no index.
    """
    prefix = BUS_PREFIX[check_bus(bus)]
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise InvalidInput(reason="%r is not the number of a disk" % (index,))
    letters = ""
    while index >= 0:
        letters = string.ascii_lowercase[index % 26] + letters
        index = index // 26 - 1
    return prefix + letters


def bus_of_name(name: str) -> str:
    """The bus that a device name (without /dev/) speaks of; ``sd`` may be several and is taken for scsi.

    A guest gets whole disks: names of partitions (vdb1), which Nova hands to libvirt, are none here.

    :raises InvalidBDM: no name of a whole disk.
    """
    match = _NAME.match(name) if isinstance(name, str) else None
    if not match:
        raise InvalidBDM(
            reason="%r is not a device name" % (name,),
            remedy="Use names such as /dev/vdb, /dev/sdb or /dev/hda, or none.",
        )
    return PREFIX_BUS[match.group(1)]


def check_name(name: str, bus: str) -> str:
    """The name, when it is one of that bus.

    :raises InvalidBDM: a name of another bus, no name of a disk, or beyond what the bus carries.
    :raises UnsupportedHardware: unknown bus.
    """
    bus_of_name(name)
    prefix = BUS_PREFIX[check_bus(bus)]
    if not name.startswith(prefix):
        raise InvalidBDM(
            reason="the device name /dev/%s does not fit the disk bus %s" % (name, bus),
            remedy="Names on %s begin with %s; or leave the name out." % (bus, prefix),
        )
    if name not in (disk_name(bus, index) for index in range(_limit(bus))):
        raise InvalidBDM(reason="the disk bus %s has no place for /dev/%s" % (bus, name))
    return name


def free_name(bus: str, taken: t.Collection[str], last: bool = False) -> str:
    """The first name of the bus that is not taken (with ``last``: the last one-letter name, if it is free).

    :raises TooManyDiskDevices: (403) all names are taken. :raises UnsupportedHardware: unknown bus.
    """
    limit = _limit(check_bus(bus))
    if last:
        name = disk_name(bus, min(limit, 26) - 1)
        if name not in taken:
            return name
    for index in range(limit):
        name = disk_name(bus, index)
        if name not in taken:
            return name
    raise TooManyDiskDevices(maximum=limit)


def _known(bus: t.Any) -> bool:
    return isinstance(bus, str) and bus in VALID_BUSES


def _limit(bus: str) -> int:
    return BUS_LIMIT.get(bus, 26 * 27)
