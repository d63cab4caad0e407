# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attaches, detaches and resizes disks of existing guests. Disks are identified by their serial, which for volumes is the UUID (see
core.guest.domain.disk.identify_disk()).

source: Nova's libvirt driver (attach_volume, detach_device_with_retry, extend_volume)
"""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass

from ...core.errors import DevicePathInUse, GuestDisksDiffer, InvalidInput
from ...core.guest.domain.element import parse
from ..os.batch import progress
from ..os.paths import checked_uuid
from ..os.volume_sources import VolumeSources, is_written, known_as, path_of
from .backup_job import refuse_running_backup
from .connection import libvirt, libvirt_errors
from .hot_plug import (
    ATTACHED,
    CONFIG,
    DETACHED,
    LIVE,
    TRIES,
    Device,
    domain_of,
    ensure_device,
    find_device,
    parts_of,
    refuse_rescue,
)

RESIZED, SWAPPED, SETTLED = "resized", "swapped", "settled"
STATES = (ATTACHED, DETACHED, RESIZED, SWAPPED, SETTLED)
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]{1,128}\Z")


@dataclass(frozen=True)
class DomainDisk(Device):
    """A disk, by its serial. ``size`` (bytes) with RESIZED, ``source`` with DETACHED.

    ``source``: where this host has the volume, see VolumeSources.is_same(); "": the guest loses the disk, whatever it is.
    """

    TAG = "disk"
    #: From the definition first, so that a guest that keeps the disk now loses it at its next start.
    DETACH_ORDER = (CONFIG, LIVE)
    LOOKS = 0
    NO_DOMAIN_REMEDY = "Start the instance, or detach the volume."

    size: int = 0
    source: str = ""

    def key_of(self, element: t.Any) -> str:
        return known_as(element)

    def name_of(self, element: t.Any) -> str:
        return "/dev/" + _target(element)

    def adapt(self, domain: t.Any, wanted: t.Any, before: t.Any, others: t.Iterable[t.Any]) -> None:
        """:raises DevicePathInUse: the guest has another disk with that name."""
        if any(_target(disk) == _target(wanted) for disk in others):
            raise DevicePathInUse(path=self.name_of(wanted), remedy="Request another device name, or none.")
        refuse_rescue(domain, self.uuid)
        if before is not None:
            # One of the two already has the disk, at an address that the other must use as well.
            wanted.find("target").set("dev", _target(before))

    def check_detach(self, domain: t.Any, elements: t.Sequence[t.Any]) -> None:
        """:raises GuestDisksDiffer: a disk has another source than the volume, which lacks what the guest wrote since."""
        refuse_rescue(
            domain, self.uuid
        )  # a disk that came back with the guest's own definition would be another volume's by then
        sources = VolumeSources()
        for disk in elements if self.source else ():
            if is_written(disk) and not sources.is_same(disk, self.key, self.source):
                with libvirt_errors():
                    where = {"host": os.uname().nodename, "domain": domain.name()}
                raise GuestDisksDiffer(instance_uuid=self.uuid, target=_target(disk), path=path_of(disk), **where)

    def details(self, element: t.Any) -> dict[str, t.Any]:
        return {"target": None if element is None else _target(element), "size": None, "swapped": None}


def desired_disk(args: t.Mapping[str, t.Any]) -> DomainDisk:
    """The desired disk in an element of the option ``disks``.

    :raises InvalidInput: a UUID, serial, state or size is not valid, or the XML is not a disk with this serial.
    """
    state = args.get("state") or ATTACHED
    serial = str(args.get("serial") or "")
    size = args.get("size") or 0
    if not _SERIAL.match(serial):
        raise InvalidInput(reason="%r is not a valid disk serial" % serial[:200])
    if state == RESIZED and (isinstance(size, bool) or not isinstance(size, int) or size <= 0 or size % 512):
        raise InvalidInput(reason="size of disk %s must be a multiple of 512 bytes, got %r" % (serial, size))
    texts = [str(args.get(name) or "") for name in ("xml", "source")]
    desired = DomainDisk(checked_uuid(args.get("uuid") or ""), serial, state, texts[0], size, texts[1])
    if state == ATTACHED:
        _check_xml(desired)
    return desired


def _check_xml(desired: DomainDisk) -> None:
    disk = parse(desired.xml)
    if disk.tag != "disk":
        raise InvalidInput(reason="the XML of disk %s must be a disk, got %s" % (desired.key, disk.tag))
    if known_as(disk) != desired.key:
        raise InvalidInput(reason="the XML of disk %s has another serial, %r" % (desired.key, known_as(disk) or None))
    target, driver = disk.find("target"), disk.find("driver")
    if target is None or not target.get("dev"):
        raise InvalidInput(reason="the XML of disk %s has no target" % desired.key)
    if driver is None or not driver.get("type"):
        # libvirt would probe the disk, whose content the guest controls (CVE-2015-7548).
        raise InvalidInput(reason="the XML of disk %s has no driver type" % desired.key)


def _target(disk: t.Any) -> str:
    return str(disk.find("target").get("dev"))


def ensure_disk(
    connection: t.Any,
    desired: DomainDisk,
    check_mode: bool = False,
    tries: int = TRIES,
    wait: float = 2.0,
) -> dict[str, t.Any]:
    """Attach, detach or resize a disk where needed, in the running guest and in its definition.

    Returns {changed, target, live, config, size, before, after}.

    :raises InvalidInput: the guest does not have the disk to resize, or has it larger.
    :raises BootflowError: see ensure_device() and DomainDisk.
    """
    if desired.state == RESIZED:
        return _resize(domain_of(connection, desired), desired, check_mode)
    return ensure_device(connection, desired, check_mode, tries, wait)


def _resize(domain: t.Any, desired: DomainDisk, check_mode: bool) -> dict[str, t.Any]:
    """Update the size of the disk in the guest. A stopped guest sees the new size when it starts."""
    if LIVE not in parts_of(domain):
        disk = find_device(domain, CONFIG, desired)
        return dict(desired.result(False, disk, disk, [CONFIG]), size=desired.size)
    disk = find_device(domain, LIVE, desired)
    if disk is None:
        raise InvalidInput(reason="guest %s has no disk %s" % (desired.uuid, desired.key))
    with libvirt_errors():
        before = int(domain.blockInfo(_target(disk))[0])
        if desired.size < before:
            raise InvalidInput(
                reason="disk %s has %d bytes and cannot shrink to %d" % (desired.key, before, desired.size)
            )
        if not check_mode:
            # Also if QEMU already knows the size of the host's device, because this notifies the guest.
            if desired.size != before:
                refuse_running_backup(domain)
                progress.mark_changed()
            domain.blockResize(_target(disk), desired.size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    result = desired.result(desired.size != before, disk, disk, [LIVE])
    result.update(size=desired.size, before="%d bytes\n" % before, after="%d bytes\n" % desired.size)
    return result
