# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disk buses and the names of disks in the guest. source: Nova's libvirt driver, 001 section 8.5.15."""

from __future__ import annotations

import re
import string
import typing as t

from .errors import InvalidBDM, UnsupportedHardware

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

_NAME = re.compile(r"^(vd|sd|hd|fd)([a-z]{1,2})$")
# No legacy IDE exists on these, so Nova gives their CD-ROMs SCSI.
_SCSI_CDROM_ARCHES = frozenset({"aarch64", "ppc", "ppc64", "ppcle", "ppc64le", "s390", "s390x", "riscv64"})


def is_q35(machine: str | None) -> bool:
    """Whether a machine type, or its alias, is of the q35 family."""
    return bool(machine) and (machine == "q35" or str(machine).startswith("pc-q35"))


def check_bus(bus: str, virt_type: str = "kvm", machine: str | None = None) -> str:
    """The bus, when QEMU has it on that machine.

    :raises UnsupportedHardware: unknown bus, or IDE on q35, which has none.
    """
    if bus not in VALID_BUSES or (bus == "ide" and is_q35(machine)):
        raise UnsupportedHardware(
            model=bus, virt=virt_type, remedy="Use one of %s (no ide on q35)." % ", ".join(VALID_BUSES)
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

    Disks are virtio (a lun is SCSI, which pass-through needs); CD-ROMs are on IDE, on SATA with q35, on SCSI where
    neither exists.

    :raises UnsupportedHardware: the image names a bus that the machine has not.
    """
    asked = properties.get("hw_%s_bus" % device_type)
    if asked:
        return check_bus(str(asked), virt_type, machine)
    if device_type == "cdrom":
        if arch in _SCSI_CDROM_ARCHES:
            return "scsi"
        return "sata" if is_q35(machine) else "ide"
    if device_type == "floppy":
        return "fdc"
    if device_type == "lun":
        return "scsi"
    return "virtio"


def config_drive_bus(
    device_type: str,
    properties: t.Mapping[str, t.Any],
    virt_type: str = "kvm",
    machine: str | None = None,
    arch: str = "x86_64",
    setting: str | None = None,
) -> str:
    """The bus of the config drive: the image's property, else the setting ``config_drive_bus``, else as any CD-ROM.

    One default differs from Nova's: with q35 the drive sits on virtio-scsi and not on SATA. Kernels made for clouds
    (Debian's linux-image-cloud, for one) have virtio-scsi but no AHCI, would not see the drive and come up without
    hostname, address and keys. Windows images, and images that are not themselves on virtio or SCSI, keep SATA:
    nothing says that they have the driver. ``config_drive_bus: sata`` is Nova's behaviour for all.

    :raises UnsupportedHardware: the bus does not exist on the machine.
    """
    if properties.get("hw_%s_bus" % device_type):
        return default_bus(device_type, properties, virt_type, machine, arch)
    if setting:
        return check_bus(setting, virt_type, machine)
    if device_type == "cdrom" and is_q35(machine) and str(properties.get("os_type", "")).lower() != "windows":
        disk_bus = str(properties.get("hw_disk_bus") or "virtio")
        if disk_bus in ("virtio", "scsi"):
            return "scsi"
    return default_bus(device_type, properties, virt_type, machine, arch)


def disk_name(bus: str, index: int) -> str:
    """``vda``, ``vdb`` ... ``vdz``, ``vdaa`` for index 0, 1 ... 25, 26 on that bus."""
    letters = string.ascii_lowercase[index % 26]
    if index >= 26:
        letters = string.ascii_lowercase[index // 26 - 1] + letters
    return BUS_PREFIX[bus] + letters


def bus_of_name(name: str) -> str:
    """The bus that a device name (without /dev/) speaks of; ``sd`` may be several and is taken for scsi.

    :raises InvalidBDM: no name of a whole disk.
    """
    match = _NAME.match(name)
    if not match:
        raise InvalidBDM(
            reason="%r is no device name" % name, remedy="Use names such as /dev/vdb, /dev/sdb or /dev/hda, or none."
        )
    return PREFIX_BUS[match.group(1)]


def check_name(name: str, bus: str) -> str:
    """The name, when it is one of that bus.

    :raises InvalidBDM: a name of another bus, no name of a disk, or beyond what the bus carries.
    """
    bus_of_name(name)
    if not name.startswith(BUS_PREFIX[bus]):
        raise InvalidBDM(
            reason="the device name /dev/%s does not fit the disk bus %s" % (name, bus),
            remedy="Names on %s begin with %s; or leave the name out." % (bus, BUS_PREFIX[bus]),
        )
    if name not in (disk_name(bus, index) for index in range(_limit(bus))):
        raise InvalidBDM(reason="the disk bus %s has no place for /dev/%s" % (bus, name))
    return name


def free_name(bus: str, taken: t.Collection[str], last: bool = False) -> str:
    """The first name of the bus that is not taken (with ``last``: the last one-letter name, if it is free).

    :raises InvalidBDM: all names are taken.
    """
    if last:
        name = disk_name(bus, min(_limit(bus), 26) - 1)
        if name not in taken:
            return name
    for index in range(_limit(bus)):
        name = disk_name(bus, index)
        if name not in taken:
            return name
    raise InvalidBDM(reason="No free disk device names for prefix '%s'" % BUS_PREFIX[bus])


def _limit(bus: str) -> int:
    return BUS_LIMIT.get(bus, 26 * 27)
