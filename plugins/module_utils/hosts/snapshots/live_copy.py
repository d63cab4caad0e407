# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A consistent copy of a disk of a guest that has its QEMU: QEMU copies the disk to a file, follows what the guest writes meanwhile, and ends that at one
moment. The guest keeps its own disk.

The moment is the end of the copy, so that file systems stand still only then. A job of libvirt's backup API would be of its beginning, but a full or slow
target would stop the guest's writes. libvirt lets a confined QEMU open the file.

source: Nova's _live_snapshot
"""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from xml.sax.saxutils import quoteattr

from ...core.disks.local import QCOW2
from ...core.errors import BootflowError, DiskFull, InstanceQuiesceNotSupported, LibvirtError
from ...core.images.quiesce import NO, REQUIRE
from ..images.images import QEMU_IMG_PACKAGE
from ..libvirt.backup_job import refuse_running_backup
from ..libvirt.connection import is_code, libvirt, libvirt_errors
from ..libvirt.password import ANSWER, limited
from ..libvirt.running import refuse_gone
from ..os.command import program, run
from ..os.files import opened
from .block_jobs import is_ready, mirror_of
from .guard import guarded

POLL = 0.25  # seconds
TRIES = 3  # of letting file systems go on
LATE = 120.0  # seconds in which an agent whose time is over may still stop the file systems
ROOM = 16 * 1024**2  # bytes: a copy that ended with less room than this was short of it


def copy_disk(domain: t.Any, uri: str, uuid: str, target: str, path: str, disk_format: str, quiesce: str) -> bool:
    """Copy a disk to the file ``path``, which is made. Returns whether the guest's file systems stood still at the end.

    :arg target: of the disk in the domain, as ``vda``. :arg disk_format: of the file. :arg quiesce: of core.images.quiesce
    :raises LibvirtError, HypervisorUnavailable: libvirt or QEMU refuses, or another job works on the disk. :raises DiskFull: no room for the file.
    :raises InstanceQuiesceNotSupported: the file systems were to stand still, and do not. :raises RemoteError: the run is gone that asked for this.
    :raises BackupRuns: a backup of the guest runs.
    """
    refuse_running_backup(domain)
    end_left_over(domain, target, os.path.dirname(path))
    with libvirt_errors():
        size = int(domain.blockInfo(target, 0)[0])
    with guarded(uri, uuid, target, path, quiesce != NO):
        _make_file(path, disk_format, size)
        flags = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
        with libvirt_errors():
            domain.blockCopy(target, _destination(path, disk_format), {}, flags)
        try:
            _wait_until_ready(domain, uuid, target, path)
            with standing_still(domain, uuid, quiesce) as still:
                with libvirt_errors():
                    domain.blockJobAbort(target, 0)
        except BaseException:
            with contextlib.suppress(libvirt.libvirtError):
                domain.blockJobAbort(target, 0)
            raise
        _refuse_full(path)
    os.chown(path, 0, 0)  # it was QEMU's
    return still


def end_left_over(domain: t.Any, target: str, folder: str) -> None:
    """End the copy to a file of ``folder`` that a killed module has left. :raises LibvirtError: the disk has a job of another program."""
    with libvirt_errors():
        if not domain.blockJobInfo(target, 0):
            return
        mirror = mirror_of(domain, target)
        source = None if mirror is None else mirror.find("source")
        file = "" if source is None else str(source.get("file") or "")
        if os.path.dirname(file) != folder:
            raise LibvirtError(
                reason="disk %s of %s has a job already (virsh blockjob)" % (target, domain.name()),
                remedy="Wait until the backup or copy has ended, or end it: virsh blockjob DOMAIN DISK --abort.",
            )
        domain.blockJobAbort(target, 0)


def _make_file(path: str, disk_format: str, size: int) -> None:
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        if disk_format != QCOW2:
            os.ftruncate(fd, size)
    if disk_format == QCOW2:
        run(
            [program("qemu-img", QEMU_IMG_PACKAGE), "create", "-q", "-f", QCOW2, path, str(size)],
            timeout=60.0,
            path=path,
        )


def _destination(path: str, disk_format: str) -> str:
    return "<disk type='file'><source file=%s/><driver name='qemu' type='%s'/></disk>" % (quoteattr(path), disk_format)


def _wait_until_ready(domain: t.Any, uuid: str, target: str, path: str) -> None:
    """Wait until the file is a copy, and QEMU writes to both."""
    while True:
        refuse_gone(uuid)
        with libvirt_errors():
            job = domain.blockJobInfo(target, 0)
            if not job:
                _refuse_ended(domain.name(), path)
            if is_ready(domain, target, job):
                return
        time.sleep(POLL)


def _refuse_full(path: str) -> None:
    """Refuse a copy that was short of room: libvirt does not tell of a job that it ends whether the last writes failed. :raises DiskFull: it was"""
    status = os.statvfs(os.path.dirname(path))
    if status.f_frsize * status.f_bavail < ROOM:
        raise DiskFull(host=os.uname().nodename, path=path, reason="No space left on device")


def _refuse_ended(name: str, path: str) -> t.NoReturn:
    _refuse_full(path)
    raise LibvirtError(
        reason="QEMU gave up the copy of a disk of guest %s, which may have ended" % name,
        remedy="See /var/log/libvirt/qemu/%s.log on the host." % name,
    )


@contextlib.contextmanager
def standing_still(domain: t.Any, uuid: str, quiesce: str) -> t.Iterator[bool]:
    """Have the guest's file systems stand still in the block, as far as ``quiesce`` wants it. Yields whether they do.

    :raises InstanceQuiesceNotSupported: they were to stand still. :raises LibvirtError: they still do after the block, or may
    """
    if quiesce == NO:
        yield False
        return
    with limited(domain):
        frozen = freeze(domain, uuid, quiesce)
        try:
            yield frozen
        finally:
            if frozen:
                thaw(domain)


def freeze(domain: t.Any, uuid: str, quiesce: str) -> bool:
    """Have the guest's file systems stand still. Returns whether they do. :arg quiesce: of core.images.quiesce

    :raises InstanceQuiesceNotSupported: they were to stand still. :raises LibvirtError: they may, though the agent failed
    """
    begin = time.monotonic()
    try:
        with libvirt_errors():
            domain.fsFreeze(None, 0)
        return True
    except BootflowError as error:
        _thaw_late(domain, LATE if time.monotonic() - begin >= ANSWER - 1.0 else 0.0)
        if quiesce == REQUIRE:
            raise InstanceQuiesceNotSupported(instance_id=uuid, reason=error.message) from None
        return False


def _thaw_late(domain: t.Any, seconds: float) -> None:
    """Let file systems go on that stand still though libvirt says that they do not: the agent first writes what the guest has in memory.

    :arg seconds: how long the agent may take; 0: it has not begun. :raises LibvirtError: it has, and does not answer
    """
    until = time.monotonic() + seconds
    while True:
        try:
            domain.fsThaw(None, 0)
            return
        except libvirt.libvirtError as error:
            if not seconds or not domain.isActive():
                return
            if time.monotonic() >= until:
                raise _still_frozen(domain, "may stand still", error) from None
        time.sleep(POLL)


def thaw(domain: t.Any) -> None:
    """Let the file systems go on. :raises LibvirtError: the agent does not"""
    for tries in range(TRIES, 0, -1):
        try:
            domain.fsThaw(None, 0)
            return
        except libvirt.libvirtError as error:
            if is_code(error, "VIR_ERR_OPERATION_INVALID") and not domain.isActive():
                return
            if tries == 1:
                raise _still_frozen(domain, "stand still", error) from None
        time.sleep(POLL)


def _still_frozen(domain: t.Any, words: str, error: Exception) -> LibvirtError:
    return LibvirtError(
        reason="the file systems of guest %s %s: %s" % (domain.name(), words, error),
        remedy="Let them go on: virsh domfsthaw DOMAIN on its host. If the agent does not answer, reboot the instance hard.",
    )
