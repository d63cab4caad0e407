# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the disk that a guest has for a volume is that volume, or an overlay or a copy of it.

A serial stays with a disk whose source another program has replaced. One device has many names, so sources are compared by what they lead to.

source: libvirt's domain format; the kernel's sysfs; udev's links in /dev/disk
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import typing as t

from ...core.guest.domain.disk import USER_ALIAS, identify_disk
from ...core.volumes.names import device_to_come, lun_id, normal_name, volume_id_of
from .files import read_text

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PATH, _DEVICE, _MAP, _TARGET, _VOLUME = "path", "device", "map", "target", "volume"
_NAMED = (_TARGET, _VOLUME)
#: By which guests have volumes as network storage; their sources have names of different forms.
_PROTOCOLS = ("iscsi", "rbd")
_BY_PATH = re.compile(r"/dev/disk/by-path/(?:.+-)?ip-.+?-iscsi-(?P<iqn>.+)-lun-(?P<lun>\d+|0x[0-9a-f]+)\Z")
_QEMU_NAME = re.compile(r"(?P<iqn>[^/]+)/(?P<lun>\d{1,5})\Z")
_BY_ID = "/dev/disk/by-id/dm-uuid-mpath-"
_MULTIPATH = "mpath-"
_SESSION = re.compile(r"/session(\d+)/")
_ADDRESS = re.compile(r"/\d+:\d+:\d+:(\d+)/")
_VOLUME_OF_TARGET = re.compile(r"volume-[0-9a-f-]{36}\Z")
#: Hexadecimal digits of a volume's id in the WWID of its disk. LIO has room for the first 25; tgt writes a 6, for the form of the name, over the first.
_DIGITS_IN_WWID = slice(1, 25)

Identities = t.Set[t.Tuple[str, str]]


def path_of(disk: t.Any) -> str:
    """Return the source of a ``<disk>``, as people know it: a path, or the name of network storage; "" without one."""
    source = disk.find("source")
    return "" if source is None else str(source.get("file") or source.get("dev") or source.get("name") or "a volume")


def is_written(disk: t.Any) -> bool:
    """Return whether a ``<disk>`` may have data of the guest: a CD-ROM and a floppy come and go."""
    return disk.get("device", "disk") in ("disk", "lun") and disk.find("readonly") is None and bool(path_of(disk))


def known_as(disk: t.Any) -> str:
    """Return the id of the volume that a ``<disk>`` stands for to the guest, whatever its source is; of other disks their serial, or ""."""
    alias = disk.find("alias")
    serial = (disk.findtext("serial") or "").strip()
    return identify_disk(None if alias is None else alias.get("name"), serial) or ""


def target_of(disk: t.Any) -> str:
    """Return the name of a ``<disk>`` in its guest, as vdb."""
    target = disk.find("target")
    return "" if target is None else str(target.get("dev"))


def name_swapped(running: t.Any, definition: t.Any) -> list[str]:
    """Give disks of a running guest, in its XML, the ids of the volumes that they are since the guest exchanged its volumes for them: the serial of a
    running disk stays that of the former volume, and the definition of the next start has the new one, with the same source.

    Returns the names of these disks.
    """
    swapped = []
    disks = {target_of(disk): disk for disk in definition.iterfind("devices/disk")}
    for disk in running.iterfind("devices/disk"):
        next_disk = disks.get(target_of(disk))
        if next_disk is None or not path_of(disk) or path_of(disk) != path_of(next_disk):
            continue
        has, gets = known_as(disk), known_as(next_disk)
        serial = disk.find("serial")
        if has != gets and UUID.fullmatch(has) and UUID.fullmatch(gets) and serial is not None:
            swapped.append(target_of(disk))
            serial.text = gets
            alias = disk.find("alias")
            if alias is not None and str(alias.get("name")).startswith(USER_ALIAS):
                alias.set("name", USER_ALIAS + gets)
    return swapped


def sources_in(root: t.Any) -> dict[str, str]:
    """Return id of a volume -> its source, of each volume in a domain's XML; "" for one that is not known yet."""
    path_of_volume = {known_as(disk): path_of(disk) for disk in root.iterfind("devices/disk")}
    return {
        key: "" if path == device_to_come(key) else path for key, path in path_of_volume.items() if UUID.fullmatch(key)
    }


class VolumeSources:
    """The sources of volumes on this host. The arguments are for tests.

    :arg number_of: the device number of a path, as "8:16"; "" if it leads to no block device
    """

    def __init__(self, sys: str = "/sys", number_of: t.Callable[[str], str] | None = None) -> None:
        self.sys = sys
        self.number_of = number_of or device_number

    def is_same(self, disk: t.Any, volume_id: str, source: str) -> bool:
        """Return whether a ``<disk>`` has the volume as its source.

        :arg source: where this host has the volume: the path of its device, IQN/LUN with QEMU's connector, or POOL/IMAGE; "" if it is not known, and only files
            are known to be none
        """
        path = path_of(disk)
        if not source:
            return bool(disk.get("type") != "file")
        if disk.get("type") == "network" and disk.find("source").get("protocol") not in _PROTOCOLS:
            return False
        if path == source:
            return True
        has = self._identities(path, volume_id)
        should = self._identities(source, volume_id) | {(_VOLUME, volume_id), (_MAP, volume_id)}
        common = has & should
        if any(kind in (_PATH, _DEVICE) for kind, _value in common):
            return True
        # Two targets may report one WWID for two volumes, and each has a separate name.
        if any(kind in _NAMED for kind, _value in has):
            return any(kind in _NAMED for kind, _value in common)
        return bool(common)

    def _identities(self, source: str, volume_id: str) -> Identities:
        """Return the identities of a source: its path, its device, and its target, each if it has one."""
        identities: Identities = set()
        named = _BY_PATH.match(source) or _QEMU_NAME.match(source)
        if named:
            lun = named["lun"]
            identities |= _of_target(named["iqn"], lun if lun.startswith("0x") else lun_id(int(lun)))
        if source.startswith(_BY_ID):
            identities |= _of_map(source[len(_BY_ID) :], volume_id)
        if source.startswith("/"):
            identities.add((_PATH, os.path.realpath(source)))
            number = self.number_of(source)
            identities |= self._of_device(number, volume_id) if number else set()
        return identities

    def _of_device(self, number: str, volume_id: str) -> Identities:
        """Return the identities of a block device, and of the disks below a map of multipathd."""
        identities: Identities = {(_DEVICE, number)}
        folder = os.path.realpath(os.path.join(self.sys, "dev/block", number))
        session, address = _SESSION.search(folder), _ADDRESS.search(folder)
        if session and address:
            path = os.path.join(self.sys, "class/iscsi_session/session" + session.group(1), "targetname")
            identities |= _of_target(read_text(path), lun_id(int(address.group(1))))
        uuid = read_text(os.path.join(folder, "dm/uuid"))
        if uuid.startswith(_MULTIPATH):
            identities |= _of_map(uuid[len(_MULTIPATH) :], volume_id)
            with contextlib.suppress(OSError):
                for name in os.listdir(os.path.join(folder, "slaves")):
                    below = read_text(os.path.join(folder, "slaves", name, "dev"))
                    identities |= self._of_device(below, volume_id) if below else set()
        return identities


def device_number(path: str) -> str:
    """Return the number of the block device that ``path`` leads to, as "8:16"; "" if it is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    if not stat.S_ISBLK(status.st_mode):
        return ""
    return "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))


def _of_target(iqn: str, lun: str) -> Identities:
    if not iqn:
        return set()
    name = normal_name(iqn)
    volume = _VOLUME_OF_TARGET.search(name)
    volume_id = volume_id_of(volume.group()) if volume else None
    return {(_TARGET, "%s/%s" % (name, lun))} | ({(_VOLUME, volume_id)} if volume_id else set())


def _of_map(wwid: str, volume_id: str) -> Identities:
    """Return the identities of a map: a target's disk has the id of its volume, which a map keeps in its name where the disk is gone."""
    is_volume = volume_id.replace("-", "")[_DIGITS_IN_WWID] in wwid.lower()
    return {(_MAP, wwid)} | ({(_MAP, volume_id)} if is_volume else set())
