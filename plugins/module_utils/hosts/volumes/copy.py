# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies data to block devices past the page cache, and reads it back from the device to verify it.

All data is written with O_DIRECT, because an initiator of a target that already exports the volume (LIO's iblock) reads the
device, and would get old blocks while the new ones are only in the page cache of this host.

There are two ways of verification. For a raw image, the sha256 of that range of the
device must equal the sha256 of the fetched file, so one read is sufficient. For other formats, image and device are read
in parallel and compared up to the end of the image: hosts.volumes.verify does this for qcow2, and ``qemu-img compare`` for
data that only QEMU can read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import struct
import typing as t

from ...core.errors import CommandFailed, ImageCopyFailure, MissingLibrary
from ..images.images import QEMU_IMG_PACKAGE
from ..os.command import program
from ..os.files import opened
from .process import OnPercent, run_tied
from .verify import Unplain, first_difference, mapped

BLOCK = 1024**2
#: Seconds for one copy or one comparison; also ends a program that hangs on a dead device.
TIMEOUT = 6 * 3600.0

_BLKDISCARD, _BLKZEROOUT, _BLKFLSBUF = 0x1277, 0x127F, 0x1261
_STEP = 256 * 1024**2


def device_size(path: str) -> int:
    """Return the size of a block device or file in bytes."""
    with opened(path, os.O_RDONLY) as fd:
        return os.lseek(fd, 0, os.SEEK_END)


def reads_direct(path: str) -> bool:
    """Return whether the file can be read past the page cache, which depends on the file system."""
    with contextlib.suppress(OSError), opened(path, os.O_RDONLY | os.O_DIRECT):
        return True
    return False


def convert(
    source: str,
    driver: str,
    target: str,
    on_percent: OnPercent | None = None,
    target_is_zero: bool = False,
    direct: bool = False,
) -> None:
    """Copy the checked image to the device with ``qemu-img convert``; without qemu-img raw images are copied with dd.

    :arg driver: the checked format; qemu-img never guesses.
    :arg target_is_zero: the device reads as zeros, so zeros of the image are not written (stay unallocated).
    :arg direct: read the image past the page cache; see reads_direct().
    :raises ImageCopyFailure: the image could not be written completely.
    """
    try:
        try:
            qemu_img = program("qemu-img", QEMU_IMG_PACKAGE)
        except MissingLibrary:
            if driver != "raw":
                raise
            copy(source, target, os.path.getsize(source), sparse=target_is_zero)
            flush(target)
            return
        argv = [qemu_img, "convert", "-p", "-n", "-f", driver, "-O", "raw", "-t", "none"]
        if direct:
            argv += ["-T", "none"]
        if target_is_zero:
            argv.append("--target-is-zero")
        run_tied(argv + [os.path.abspath(source), target], on_percent, TIMEOUT)
        flush(target)
    except (CommandFailed, OSError) as error:
        raise _failed(error) from None


def copy(source: str, target: str, size: int, sparse: bool) -> None:
    """Copy the first ``size`` bytes in blocks of 1 MiB past the page cache (dd); zeros are skipped if ``sparse``.

    :raises CommandFailed: with the message of dd.
    """
    argv = [program("dd", "coreutils"), "if=" + source, "of=" + target, "bs=%d" % BLOCK, "count=%d" % size]
    flags = ["iflag=count_bytes,fullblock", "conv=" + ",".join(["notrunc", "fsync"] + (["sparse"] if sparse else []))]
    # The end of a file need not be a whole sector, which O_DIRECT requires.
    if size % 4096 == 0:
        flags.append("oflag=direct")
    run_tied(argv + flags + ["status=none"], timeout=TIMEOUT)


def copy_device(source: str, target: str, size: int, sparse: bool) -> None:
    """Copy the data of one volume to another. Raises ImageCopyFailure."""
    try:
        copy(source, target, size, sparse)
        flush(target)
    except (CommandFailed, OSError) as error:
        raise _failed(error) from None


def flush(path: str) -> None:
    """Flush the device, and drop its old blocks from the page cache of this host."""
    with opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)
        try:
            fcntl.ioctl(fd, _BLKFLSBUF, 0)
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EINVAL, errno.EACCES, errno.EPERM):
                raise


#: Called with an end: returns when that many first bytes of the device can be read.
Wait = t.Callable[[int], None]


def range_sha256(path: str, size: int, wait: Wait | None = None) -> str:
    """Return the sha256 of the first ``size`` bytes, read from the device itself (O_DIRECT)."""
    digest = hashlib.sha256()
    # Anonymous memory is page-aligned, as O_DIRECT requires.
    with mmap.mmap(-1, BLOCK) as buffer, opened(path, os.O_RDONLY | os.O_DIRECT) as fd:
        done = 0
        while done < size:
            if wait is not None:
                wait(min(done + BLOCK, size))
            got = os.preadv(fd, [buffer], done)
            if got <= 0:
                break
            with memoryview(buffer) as view:
                digest.update(view[: min(got, size - done)])
            done += got
    return digest.hexdigest()


def verify(
    source: str,
    driver: str,
    sha256: str,
    target: str,
    virtual_size: int,
    direct: bool = False,
    wait: Wait | None = None,
) -> None:
    """Verify that the device begins with the image.

    :arg sha256: of the file ``source``; sufficient for a raw image.
    :arg direct: as for convert().
    :arg wait: follow a writer that is not done.
    :raises ImageCopyFailure: the device differs from the image.
    """
    if driver == "raw":
        digest = range_sha256(target, virtual_size, wait)
        if digest != sha256:
            raise _failed("content of %s has sha256 %s, the image has %s" % (target, digest, sha256))
        return
    if driver == "qcow2" and _is_compared(source, target, virtual_size, direct, wait):
        return
    if wait is not None:
        wait(virtual_size)
    image = "driver=%s,file.driver=file,file.filename=%s" % (driver, _escaped(os.path.abspath(source)))
    device = "driver=raw,size=%d,file.driver=host_device,file.cache.direct=on,file.filename=%s" % (
        -(-virtual_size // 512) * 512,
        _escaped(target),
    )
    try:
        run_tied([program("qemu-img", QEMU_IMG_PACKAGE), "compare", "--image-opts", image, device], timeout=TIMEOUT)
    except CommandFailed as error:
        raise _failed("content of %s differs from the image: %s" % (target, error.message)) from None


def _is_compared(source: str, target: str, virtual_size: int, direct: bool, wait: Wait | None) -> bool:
    """Compare the device with the image. Returns False if only QEMU can read this image."""
    try:
        with mapped(source, "qcow2", virtual_size) as extents:
            at = first_difference(source, extents, target, virtual_size, direct, wait)
    except (Unplain, CommandFailed):
        return False
    except OSError as error:
        raise _failed(error) from None
    if at is not None:
        raise _failed("content of %s differs from the image from byte %d on" % (target, at))
    return True


def _escaped(path: str) -> str:
    return path.replace(",", ",,")


def zero(path: str, size: int, start: int = 0) -> None:
    """Overwrite ``size`` bytes from ``start`` on with zeros through the kernel, in interruptible steps."""
    _in_steps(path, size, _BLKZEROOUT, start)


def discard(path: str) -> None:
    """Discard all blocks. A thin volume reads as zeros afterwards."""
    try:
        _in_steps(path, device_size(path), _BLKDISCARD)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise


def shred(path: str, size: int) -> None:
    """Overwrite three times with random data (shred, as in Cinder)."""
    run_tied([program("shred", "coreutils"), "-n3", "-s", str(size), path], timeout=4 * TIMEOUT)


def _in_steps(path: str, size: int, request: int, start: int = 0) -> None:
    # O_EXCL: a device that a guest, an export or a file system uses is never overwritten
    with opened(path, os.O_WRONLY | os.O_EXCL) as fd:
        for done in range(0, size, _STEP):
            fcntl.ioctl(fd, request, struct.pack("=QQ", start + done, min(_STEP, size - done)))
        os.fsync(fd)


def _failed(reason: t.Any) -> ImageCopyFailure:
    return ImageCopyFailure(
        reason=getattr(reason, "message", None) or str(reason),
        remedy="Check the device and its volume group (dmesg, lvs -a), then rerun the playbook.",
    )
