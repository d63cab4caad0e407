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

from ...core.errors import DevicePathInUse, GuestDisksDiffer, InstanceNotFound, InvalidInput
from ...core.guest.domain.element import parse, to_text
from ..os.batch import progress
from ..os.paths import checked_uuid
from ..os.volume_sources import VolumeSources, is_written, known_as, path_of
from .connection import libvirt, libvirt_errors
from .domain_devices import (
    CONFIG,
    LIVE,
    TRIES,
    devices_of,
    flag_of,
    forget_memory,
    let_go,
    parts_of,
    refuse_rescue,
    started_since,
)
from .running import find_domain

ATTACHED, DETACHED, RESIZED = "attached", "detached", "resized"
STATES = (ATTACHED, DETACHED, RESIZED)
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]{1,128}\Z")


@dataclass(frozen=True)
class DomainDisk:
    """A disk of the domain ``uuid``. ``xml`` with ATTACHED, ``size`` (bytes) with RESIZED, ``source`` with DETACHED.

    ``source``: where this host has the volume, see VolumeSources.is_same(); "": the guest loses the disk, whatever it is.
    """

    uuid: str
    serial: str
    state: str = ATTACHED
    xml: str = ""
    size: int = 0
    source: str = ""


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
        _checked_xml(desired)
    return desired


def _checked_xml(desired: DomainDisk) -> t.Any:
    disk = parse(desired.xml)
    if disk.tag != "disk":
        raise InvalidInput(reason="the XML of disk %s must be a disk, got %s" % (desired.serial, disk.tag))
    if known_as(disk) != desired.serial:
        raise InvalidInput(
            reason="the XML of disk %s has another serial, %r" % (desired.serial, known_as(disk) or None)
        )
    target, driver = disk.find("target"), disk.find("driver")
    if target is None or not target.get("dev"):
        raise InvalidInput(reason="the XML of disk %s has no target" % desired.serial)
    if driver is None or not driver.get("type"):
        # libvirt would probe the disk, whose content the guest controls (CVE-2015-7548).
        raise InvalidInput(reason="the XML of disk %s has no driver type" % desired.serial)
    return disk


# ---- looking --------------------------------------------------------------------------------------------------------


def _disks(domain: t.Any, part: str) -> list[t.Any]:
    return devices_of(domain, part, "disk")


def _find(disks: t.Iterable[t.Any], serial: str) -> t.Any:
    return next((d for d in disks if known_as(d) == serial), None)


def _shown(disk: t.Any) -> str:
    """A disk for a diff. It contains no secrets, because XML refers to secrets by their UUID."""
    return "" if disk is None else to_text(disk)


def _target(disk: t.Any) -> str:
    return str(disk.find("target").get("dev"))


# ---- change ---------------------------------------------------------------------------------------------------------


def ensure_disk(
    connection: t.Any,
    desired: DomainDisk,
    check_mode: bool = False,
    tries: int = TRIES,
    wait: float = 2.0,
) -> dict[str, t.Any]:
    """Attach, detach or resize a disk where needed, in the running guest and in its definition.

    Returns {changed, target, live, config, size, before, after}.

    :arg tries: how often a guest is asked to release a disk, with ``wait``, 2 * ``wait``... seconds in between.
    :raises InstanceNotFound: the domain of a disk to attach or resize does not exist.
    :raises DevicePathInUse: the guest has another disk with that name.
    :raises DeviceDetachFailed: the guest does not release the disk. :raises Conflict: the domain is that of a rescue.
    :raises GuestDisksDiffer: the disk to detach has another source: an overlay on the volume, or a copy.
    :raises LibvirtError, HypervisorUnavailable: libvirt fails or is not running.
    """
    domain = find_domain(connection, desired.uuid)
    if domain is None:
        if desired.state == DETACHED:
            return _result(False, None, None, [])
        raise InstanceNotFound(
            message="domain %s does not exist on this host" % desired.uuid,
            remedy="Start the instance, or detach the volume.",
        )
    if desired.state == ATTACHED:
        return _attach(domain, desired, check_mode)
    if desired.state == DETACHED:
        return _detach(domain, desired, check_mode, tries, wait)
    return _resize(domain, desired, check_mode)


def _result(changed: bool, before: t.Any, after: t.Any, parts: t.Collection[str]) -> dict[str, t.Any]:
    disk = before if after is None else after
    return {
        "changed": changed,
        "target": None if disk is None else _target(disk),
        "live": LIVE in parts,
        "config": CONFIG in parts,
        "size": None,
        "before": _shown(before),
        "after": _shown(after),
    }


def _attach(domain: t.Any, desired: DomainDisk, check_mode: bool) -> dict[str, t.Any]:
    wanted = _checked_xml(desired)
    missing, before = [], None
    parts = parts_of(domain)
    for part in parts:
        disks = _disks(domain, part)
        there = _find(disks, desired.serial)
        if there is not None:
            before = there
            continue
        if any(_target(disk) == _target(wanted) for disk in disks):
            raise DevicePathInUse(path="/dev/" + _target(wanted), remedy="Request another device name, or none.")
        missing.append(part)
    if missing:
        refuse_rescue(domain, desired.uuid)
    if missing and before is not None:
        # One of the two already has the disk, at an address that the other must use as well.
        wanted.find("target").set("dev", _target(before))
    if missing and not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            domain.attachDeviceFlags(_shown(wanted), flag_of(missing))
        forget_memory(domain, parts)
        if started_since(domain, parts):
            return {**_attach(domain, desired, check_mode), "changed": True}
        before_text, wanted = _shown(before), _find(_disks(domain, parts[0]), desired.serial)
        return dict(_result(True, None, wanted, parts), before=before_text)
    return _result(bool(missing), before, wanted if missing else before, parts)


def _detach(domain: t.Any, desired: DomainDisk, check_mode: bool, tries: int, wait: float) -> dict[str, t.Any]:
    parts = parts_of(domain)
    found = {part: _find(_disks(domain, part), desired.serial) for part in parts}
    there = [part for part in found if found[part] is not None]
    before = next((found[part] for part in there), None)
    if there:  # a disk that came back with the guest's own definition would be another volume's by then
        refuse_rescue(domain, desired.uuid)
        _refuse_other(domain, desired, [found[part] for part in there])
    if check_mode or not there:
        return _result(bool(there), before, None, [])
    progress.mark_changed()
    if CONFIG in there:
        # From the definition first, so that a guest that keeps the disk now loses it at its next start.
        with libvirt_errors():
            domain.detachDeviceFlags(_shown(found[CONFIG]), flag_of([CONFIG]))
        forget_memory(domain, parts)
    if LIVE in there:
        disk = found[LIVE]

        def is_there() -> bool:
            return _find(_disks(domain, LIVE), desired.serial) is not None

        let_go(domain, _shown(disk), "/dev/" + _target(disk), is_there, tries, wait)
    return _result(True, before, None, [])


def _refuse_other(domain: t.Any, desired: DomainDisk, disks: t.Iterable[t.Any]) -> None:
    """:raises GuestDisksDiffer: one of these disks has another source than the volume, which lacks what the guest wrote since."""
    sources = VolumeSources()
    for disk in disks if desired.source else ():
        if is_written(disk) and not sources.is_same(disk, desired.serial, desired.source):
            with libvirt_errors():
                where = {"host": os.uname().nodename, "domain": domain.name()}
            raise GuestDisksDiffer(instance_uuid=desired.uuid, target=_target(disk), path=path_of(disk), **where)


def _resize(domain: t.Any, desired: DomainDisk, check_mode: bool) -> dict[str, t.Any]:
    """Update the size of the disk in the guest. A stopped guest sees the new size when it starts."""
    if LIVE not in parts_of(domain):
        disk = _find(_disks(domain, CONFIG), desired.serial)
        return dict(_result(False, disk, disk, [CONFIG]), size=desired.size)
    disk = _find(_disks(domain, LIVE), desired.serial)
    if disk is None:
        raise InvalidInput(reason="guest %s has no disk %s" % (desired.uuid, desired.serial))
    with libvirt_errors():
        before = int(domain.blockInfo(_target(disk))[0])
        if desired.size < before:
            raise InvalidInput(
                reason="disk %s has %d bytes and cannot shrink to %d" % (desired.serial, before, desired.size)
            )
        if not check_mode:
            # Also if QEMU already knows the size of the host's device, because this notifies the guest.
            if desired.size != before:
                progress.mark_changed()
            domain.blockResize(_target(disk), desired.size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
    result = _result(desired.size != before, disk, disk, [LIVE])
    result.update(size=desired.size, before="%d bytes\n" % before, after="%d bytes\n" % desired.size)
    return result
