# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exchanges the volume of a running guest's disk for another one: QEMU copies it, follows what the guest writes meanwhile, and switches to the copy.

A module that is killed leaves QEMU's job, which goes on, and never switches by itself. The next call for the same two volumes finds it.
The running disk keeps the serial of the former volume until the guest is started again, see volume_sources.name_swapped().

source: Nova's libvirt driver (swap_volume)
"""

from __future__ import annotations

import copy
import os
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import (
    BootflowError,
    DiskJobRunning,
    GuestDisksDiffer,
    InstanceNotFound,
    InvalidInput,
    LibvirtError,
    WaitTimeout,
)
from ...core.guest.domain.element import parse, to_text
from ..libvirt.connection import libvirt, libvirt_errors
from ..libvirt.domain_disks import SETTLED, DomainDisk, desired_disk
from ..libvirt.hot_plug import ATTACHED, CONFIG, DETACHED, LIVE, devices_of, flag_of, parts_of, refuse_rescue
from ..libvirt.running import find_domain, refuse_gone
from ..os.batch import progress
from ..os.volume_sources import VolumeSources, known_as, path_of, target_of
from .block_jobs import is_ready, mirror_of

POLL = 0.5  # seconds
MIB = 1024**2


@dataclass(frozen=True)
class DiskSwap(DomainDisk):
    """An exchange. ``key`` and ``source``: the former volume, and where this host has it. ``xml``: the disk with the new one.

    ``size``: bytes of the new volume. ``bandwidth``: of the copy, MiB a second; 0: without a limit. ``seconds``: for the copy.
    ``settles``: end what another run left, and copy nothing.
    """

    bandwidth: int = 0
    seconds: float = 0.0
    settles: bool = False

    @property
    def wanted(self) -> t.Any:
        return parse(self.xml)

    @property
    def new_key(self) -> str:
        return known_as(self.wanted)

    def is_old(self, disk: t.Any) -> bool:
        return VolumeSources().is_same(disk, self.key, self.source)

    def is_new(self, disk: t.Any) -> bool:
        return VolumeSources().is_same(disk, self.new_key, path_of(self.wanted))


def desired_swap(args: t.Mapping[str, t.Any]) -> DiskSwap:
    """The desired exchange in an element of the option ``disks``.

    :raises InvalidInput: see desired_disk(); or it needs the places of two volumes, which are devices of this host.
    """
    old = desired_disk({**args, "state": DETACHED})
    new = desired_disk({**args, "state": ATTACHED, "serial": known_as(parse(str(args.get("xml") or "")))})
    bandwidth, seconds = int(args.get("bandwidth") or 0), float(args.get("copy_timeout") or 0)
    swap = DiskSwap(
        old.uuid,
        old.key,
        str(args["state"]),
        new.xml,
        old.size,
        old.source,
        bandwidth,
        seconds,
        args["state"] == SETTLED,
    )
    if not swap.source or swap.new_key == swap.key:
        raise InvalidInput(reason="disk %s is to be exchanged for itself, or its source is missing" % swap.key)
    if swap.wanted.get("type") != "block":
        raise InvalidInput(reason="disk %s can only be exchanged for a device of this host" % swap.key)
    if swap.size < 0 or swap.bandwidth < 0:
        raise InvalidInput(reason="size and bandwidth of disk %s must not be negative" % swap.key)
    return swap


def swap_disk(connection: t.Any, swap: DiskSwap, check_mode: bool = False) -> dict[str, t.Any]:
    """Have the guest switch to the new volume, and its definition too; or with ``settles`` find out whether it has.

    Returns {changed, swapped, target, live, config, size, before, after}. ``swapped``: whether the guest has the new volume.

    :raises InstanceNotFound: no such domain, or it lacks the disk. :raises GuestDisksDiffer: it has neither of the two volumes.
    :raises DiskJobRunning: another job works on the disk. :raises WaitTimeout: the copy took too long, and was aborted.
    :raises LibvirtError: the guest is off, or QEMU fails. :raises RemoteError: the run that asked for this is gone.
    """
    domain = find_domain(connection, swap.uuid)
    if domain is None:
        raise InstanceNotFound(message="domain %s does not exist on this host" % swap.uuid)
    refuse_rescue(domain, swap.uuid)
    before = _disk_of(domain, swap)
    target = target_of(before)
    changed = False
    if swap.settles:
        changed = _end_job(domain, swap, target, check_mode)
    elif not swap.is_new(before):
        _check_copy(domain, swap, before, target)
        if check_mode:
            return _result(swap, True, True, before, swap.wanted, parts_of(domain))
        _copy(domain, swap, target)
        changed = True
    now = before if check_mode else _disk_of(domain, swap)
    has_new = swap.is_new(now)
    if not has_new and not swap.is_old(now):
        raise GuestDisksDiffer(**_place(domain, swap, now))
    if has_new:
        changed = _redefine(domain, swap, target, check_mode) or changed
    return _result(swap, changed, has_new, before, now, parts_of(domain))


def _result(
    swap: DiskSwap, changed: bool, has_new: bool, before: t.Any, after: t.Any, parts: t.Collection[str]
) -> dict[str, t.Any]:
    return {**swap.result(changed, before, after, parts), "swapped": has_new}


def _place(domain: t.Any, swap: DiskSwap, disk: t.Any) -> dict[str, str]:
    with libvirt_errors():
        name = domain.name()
    return {
        "instance_uuid": swap.uuid,
        "host": os.uname().nodename,
        "domain": name,
        "target": target_of(disk),
        "path": path_of(disk),
    }


def _disk_of(domain: t.Any, swap: DiskSwap) -> t.Any:
    """Return the disk as the guest has it, or would have it at its next start."""
    part = LIVE if LIVE in parts_of(domain) else CONFIG
    for disk in devices_of(domain, part, swap.TAG):
        if known_as(disk) in (swap.key, swap.new_key):
            return disk
    raise InstanceNotFound(message="guest %s has neither disk %s nor disk %s" % (swap.uuid, swap.key, swap.new_key))


# --- the copy -----------------------------------------------------------------------------------------------------------


def _check_copy(domain: t.Any, swap: DiskSwap, disk: t.Any, target: str) -> None:
    """Check whether the copy may begin, or go on."""
    if not swap.is_old(disk):
        raise GuestDisksDiffer(**_place(domain, swap, disk))
    if LIVE not in parts_of(domain):
        raise LibvirtError(
            reason="guest %s is off" % swap.uuid,
            remedy="Start the instance: a volume is exchanged while its guest runs.",
        )
    if not _is_own_job(domain, swap, target):
        _refuse_jobs(domain, swap, target)


def _is_own_job(domain: t.Any, swap: DiskSwap, target: str) -> bool:
    """Return whether QEMU copies the disk to the new volume."""
    mirror = mirror_of(domain, target)
    if mirror is None or mirror.find("source") is None:
        return False
    # As a <disk>, which has its type itself.
    disk = copy.deepcopy(mirror)
    disk.set("type", str(mirror.get("type")))
    return swap.is_new(disk)


def _refuse_jobs(domain: t.Any, swap: DiskSwap, target: str) -> None:
    """:raises DiskJobRunning: another job works on the disk, or a backup on the guest."""
    with libvirt_errors():
        busy = bool(domain.blockJobInfo(target, 0)) or domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE
    if busy or mirror_of(domain, target) is not None:
        raise DiskJobRunning(disk=target, instance_uuid=swap.uuid)


def _copy(domain: t.Any, swap: DiskSwap, target: str) -> None:
    progress.mark_changed()
    deadline = time.monotonic() + swap.seconds
    if not _is_own_job(domain, swap, target):
        flags = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
        destination = _destination(domain, swap, target)
        limit = {"bandwidth": swap.bandwidth * MIB} if swap.bandwidth else {}
        with libvirt_errors():
            domain.blockCopy(target, destination, limit, flags)
    try:
        _wait_until_ready(domain, swap, target, deadline)
        refuse_gone(swap.uuid)
        with libvirt_errors():
            domain.blockJobAbort(target, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)
    except BaseException:
        _end_job(domain, swap, target, False)
        raise


def _destination(domain: t.Any, swap: DiskSwap, target: str) -> str:
    """Return the ``<disk>`` that QEMU copies to. It copies only to disks of the same size (since 5.1): of a larger volume it gets a slice, which is what
    the guest has of the volume until its next start.
    """
    disk = parse("<disk type='block'><driver name='qemu' type='raw'/></disk>")
    disk.append(copy.deepcopy(swap.wanted.find("source")))
    with libvirt_errors():
        size = int(domain.blockInfo(target, 0)[0])
    if swap.size > size:
        slices = parse("<slices><slice type='storage' offset='0' size='%d'/></slices>" % size)
        disk.find("source").append(slices)
    driver = swap.wanted.find("driver")
    for name in ("cache", "io", "discard"):
        if driver is not None and driver.get(name):
            disk.find("driver").set(name, driver.get(name))
    return to_text(disk)


def _wait_until_ready(domain: t.Any, swap: DiskSwap, target: str, deadline: float) -> None:
    """Wait until the new volume is a copy, and QEMU writes to both."""
    while True:
        refuse_gone(swap.uuid)
        with libvirt_errors():
            job = domain.blockJobInfo(target, 0)
        if not job:
            raise LibvirtError(
                reason="QEMU gave up the copy of disk %s of guest %s, which may have ended" % (target, swap.uuid),
                remedy="See the guest's log in /var/log/libvirt/qemu on the host.",
            )
        if is_ready(domain, target, job):
            return
        if swap.seconds and time.monotonic() >= deadline:
            done = "%d of %d MiB" % (job["cur"] // MIB, job["end"] // MIB)
            raise WaitTimeout(
                what="the copy of disk %s of guest %s (%s)" % (target, swap.uuid, done),
                seconds=int(swap.seconds),
                host=os.uname().nodename,
            )
        time.sleep(POLL)


def _end_job(domain: t.Any, swap: DiskSwap, target: str, check_mode: bool) -> bool:
    """End a copy to the new volume that has not switched. Returns whether there was one."""
    try:
        if LIVE not in parts_of(domain) or not _is_own_job(domain, swap, target):
            return False
        if not check_mode:
            with libvirt_errors():
                domain.blockJobAbort(target, 0)
        return True
    except BootflowError:
        # It has ended, or switched, in between: what the guest has then is looked at next.
        if LIVE in parts_of(domain) and _is_own_job(domain, swap, target):
            raise
        return False


# --- afterwards ---------------------------------------------------------------------------------------------------------


def _redefine(domain: t.Any, swap: DiskSwap, target: str, check_mode: bool) -> bool:
    """Have the next start of the guest know the disk as the new volume. Returns whether that changes its definition."""
    if CONFIG not in parts_of(domain):
        return False
    disks = [d for d in devices_of(domain, CONFIG, swap.TAG) if target_of(d) == target]
    wanted = swap.wanted
    wanted.find("target").set("dev", target)
    for disk in disks:
        if known_as(disk) == swap.new_key and path_of(disk) == path_of(wanted):
            return False
        for tag in ("address", "boot"):
            part = disk.find(tag)
            if part is not None and wanted.find(tag) is None:
                wanted.append(copy.deepcopy(part))
    if not disks:
        raise InstanceNotFound(message="the definition of guest %s has no disk %s" % (swap.uuid, target))
    if not check_mode:
        progress.mark_changed()
        with libvirt_errors():
            domain.updateDeviceFlags(to_text(wanted), flag_of([CONFIG]))
    return True
