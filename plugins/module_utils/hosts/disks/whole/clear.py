# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clears whole disks before another guest gets them: every byte is overwritten with zeros.

The kernel zeroes the disk (devices with support for it do so themselves, as with ``blkdiscard --zeroout``); if it
cannot, zeros are written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import typing as t

from ....core.errors import CommandFailed, InvalidInput
from ...os.batch import progress
from .devices import block_device

# linux/fs.h. BLKDISCARD is not sufficient: many devices return the old data afterwards.
_BLKZEROOUT, _BLKRRPART = 0x127F, 0x125F
#: Bytes of one request: small enough that a process can be ended in time.
_STEP = 256 * 1024**2
_BLOCK = 1024**2
_WILL_NOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EREMOTEIO)


def checked_disks(disks: t.Iterable[t.Any]) -> list[dict[str, str]]:
    """The option of a module, paths or {path, serial}, as {path, serial}.

    :raises InvalidInput: a path is not absolute or contains "..".
    """
    checked = []
    for disk in disks:
        given = disk if isinstance(disk, dict) else {"path": disk}
        path = given.get("path")
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise InvalidInput(reason="disks must be absolute paths, got %r" % (path,))
        checked.append({"path": path, "serial": str(given.get("serial") or "")})
    return checked


def clear_disk(
    disk: t.Mapping[str, str],
    used_by: t.Mapping[str, t.Mapping[str, t.Any]],
    describe: t.Callable[[str], t.Mapping[str, t.Any]] | None = None,
    check_mode: bool = False,
) -> str:
    """Overwrite a whole disk with zeros; returns its path. A disk in use by the kernel or another guest is not touched.

    :arg used_by: real path of a disk -> the other domain that uses it (name).
    :raises CommandFailed: the path does not exist, is not a block device, is in use, has another serial than the disk
        of the guest, or writing failed.
    """
    path = disk["path"]
    real = os.path.realpath(path)
    if real in used_by:
        raise _refusal(path, "domain %s uses the disk" % used_by[real]["name"])
    try:
        # With O_EXCL opening a block device fails if a file system, LVM, RAID, swap or another exclusive opener has it.
        fd = os.open(real, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        busy = error.errno == errno.EBUSY
        raise _refusal(path, "the disk is in use by the kernel" if busy else str(error.strerror)) from error
    try:
        if not stat.S_ISBLK(os.fstat(fd).st_mode):
            raise _refusal(path, "the path is not a block device")
        if disk.get("serial"):
            _check_serial(path, disk["serial"], (describe or block_device)(real))
        if not check_mode:
            progress.mark_changed()
            try:
                _zero(fd, os.lseek(fd, 0, os.SEEK_END))
            except OSError as error:
                raise _refusal(path, "writing zeros: %s" % error.strerror) from error
            with contextlib.suppress(OSError):  # fails for a loop device without partitions
                fcntl.ioctl(fd, _BLKRRPART)  # remove the partitions of the guest
    finally:
        os.close(fd)
    return path


def _check_serial(path: str, claimed: str, node: t.Mapping[str, t.Any]) -> None:
    serial = str(node.get("serial") or "")
    if serial != claimed:
        raise _refusal(
            path, "the guest had the disk with serial %s, the disk at this path has serial %s" % (claimed, serial)
        )


def _zero(fd: int, size: int) -> None:
    start = 0
    while start < size:
        length = min(_STEP, size - start)
        try:
            fcntl.ioctl(fd, _BLKZEROOUT, struct.pack("=QQ", start, length))
        except OSError as error:
            if error.errno not in _WILL_NOT:
                raise
            _write_zeros(fd, start, length)
        start += length
    os.fsync(fd)


def _write_zeros(fd: int, start: int, length: int) -> None:
    zeros = memoryview(bytes(_BLOCK))
    end = start + length
    while start < end:
        start += os.pwrite(fd, zeros[: end - start], start)


def _refusal(path: str, reason: str) -> CommandFailed:
    return CommandFailed(
        message="the disk %s could not be cleared: %s" % (path, reason),
        remedy="The disk stays with its instance until it is cleared. Release or repair the disk and delete the instance again;"
        " or set bootflow_whole_disk_clear: none, and the next guest can read the old data.",
    )
