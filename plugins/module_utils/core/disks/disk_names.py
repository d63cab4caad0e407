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
# QEMU's buses of each kind of disk. Nova leaves this to libvirt, which rejects the guest on every host.
DEVICE_BUSES: t.Mapping[str, t.Sequence[str]] = {
    "disk": ("virtio", "scsi", "sata", "ide", "usb"),
    "cdrom": ("scsi", "sata", "ide", "usb"),
    "floppy": ("fdc",),
    "lun": ("scsi", "virtio"),
}
#: Reserved for a config drive (disk, or CD-ROM on IDE, SATA or SCSI).
CONFIG_DRIVE_NAMES = ("vdz", "hda", "sda")

_NAME = re.compile(r"(vd|sd|hd|fd)([a-z]{1,2})\Z")
# These have no IDE, so Nova puts their CD-ROMs on SCSI (riscv64 has none either, but is not in Nova's list).
_SCSI_CDROM_ARCHES = frozenset({"aarch64", "arm64", "ppc", "ppc64", "ppcle", "ppc64le", "s390", "s390x", "riscv64"})


def is_q35(machine: str | None) -> bool:
    """Whether a machine type or alias is of the q35 family: distributions have their own names (ubuntu-q35)."""
    return bool(machine) and "q35" in str(machine)


def check_bus(bus: str, virt_type: str = "kvm", machine: str | None = None) -> str:
    """The bus, if QEMU has it on that machine.

    Nova replaces a requested bus of another hypervisor by the default; here it is an error.

    :raises UnsupportedHardware: unknown bus, or IDE on q35, which has none.
    """
    if bus not in VALID_BUSES or (bus == "ide" and is_q35(machine)):
        raise UnsupportedHardware(
            model=bus, virt=virt_type, remedy="Use one of %s (no ide on q35)." % ", ".join(VALID_BUSES)
        )
    return bus


def check_device(device_type: str, bus: str, virt_type: str = "kvm") -> str:
    """The bus, if a disk, cdrom, floppy or lun can be on it.

    :raises UnsupportedHardware: another bus, or an unknown type.
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

    Disks are virtio; CD-ROMs are on IDE, on SATA with q35, on SCSI if neither exists. A lun is SCSI, which
    pass-through needs; Nova has no default for it, and fails without a disk_bus. libosinfo's data on an image's
    os_distro are not used.

    :raises UnsupportedHardware: the image names a bus that the machine or the type lacks; an unknown type.
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
    """The bus of the config drive: the image's property (hw_cdrom_bus, hw_disk_bus), else as for any CD-ROM.

    One default differs from Nova's: with q35 the drive is on virtio-scsi, not on SATA. Kernels for clouds (such as
    Debian's linux-image-cloud) have virtio-scsi but no AHCI; they would not see the drive and come up without
    hostname, address and keys. Windows images, and images whose own disks are not on virtio or SCSI, keep SATA,
    because they may lack the driver. ``hw_cdrom_bus: sata`` is Nova's behaviour.

    :raises UnsupportedHardware: the machine lacks the bus, or the bus cannot have such a drive.
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

    :raises UnsupportedHardware: unknown bus. :raises InvalidInput: not an index.
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
    """The bus of a device name (without /dev/); ``sd``, which several buses share, counts as scsi.

    A guest gets whole disks: names of partitions (vdb1), which Nova passes to libvirt, are invalid.

    :raises InvalidBDM: not the name of a whole disk.
    """
    match = _NAME.match(name) if isinstance(name, str) else None
    if not match:
        raise InvalidBDM(
            reason="%r is not a device name" % (name,),
            remedy="Use names such as /dev/vdb, /dev/sdb or /dev/hda, or none.",
        )
    return PREFIX_BUS[match.group(1)]


def check_name(name: str, bus: str) -> str:
    """The name, if it is one of that bus.

    :raises InvalidBDM: a name of another bus, not the name of a disk, or beyond the bus's last name.
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


def free_name(bus: str, used_names: t.Collection[str], last: bool = False) -> str:
    """The first name of the bus that is not taken (with ``last``: the last one-letter name, if it is free).

    :raises TooManyDiskDevices: (403) all names are taken. :raises UnsupportedHardware: unknown bus.
    """
    limit = _limit(check_bus(bus))
    order = ([min(limit, 26) - 1] if last else []) + list(range(limit))
    free = (name for name in (disk_name(bus, index) for index in order) if name not in used_names)
    name = next(free, None)
    if name is None:
        raise TooManyDiskDevices(maximum=limit)
    return name


def _limit(bus: str) -> int:
    return BUS_LIMIT.get(bus, 26 * 27)
