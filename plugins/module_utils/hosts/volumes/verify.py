# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares a device with a qcow2 image byte by byte, read from the device itself (O_DIRECT).

``qemu-img map`` returns where in the file each range of the disk is, or that it reads as zeros. File and device are then
read in parallel in large pieces and compared a word at a time. Only QEMU can read data that is not stored plainly, such as
compressed clusters: Unplain is raised, and the slower ``qemu-img compare`` is used.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import functools
import json
import os
import typing as t
from array import array
from dataclasses import dataclass

from ..images.images import QEMU_IMG_PACKAGE
from ..os.command import program
from ..os.files import opened
from .process import tied_lines

CHUNK = 4 * 1024**2
_PAGE = 4096
READING = os.O_RDONLY | os.O_DIRECT  # past the page cache


class Unplain(Exception):
    """A part of the disk is not stored plainly in the file."""


@dataclass(frozen=True)
class Extent:
    """A range of the disk and its offset in the file, in bytes; ``offset`` None: all zeros."""

    start: int
    length: int
    offset: int | None


class _Chunk(t.NamedTuple):
    start: int
    length: int
    extents: list[Extent]  # empty: only zeros


class _Memory:
    """The bytes of a chunk; the view is page-aligned, as O_DIRECT requires."""

    def __init__(self) -> None:
        # Words: arrays of them are compared a word at a time, in C.
        self.words = array("Q", bytes(CHUNK + _PAGE))
        self.skew = -self.words.buffer_info()[0] % _PAGE
        self.view = memoryview(self.words).cast("B")[self.skew : self.skew + CHUNK]

    def begins_as(self, other: _Memory, length: int) -> bool:
        if length == CHUNK and self.skew == other.skew:
            return self.words == other.words
        return bytearray(self.view[:length]) == other.view[:length]


def extents(lines: t.Iterable[bytes], size: int) -> t.Iterator[Extent]:
    """Yield the extents in the output of ``qemu-img map --output=json``, one per line, for a disk of ``size`` bytes.

    :raises Unplain: a range cannot be read directly from the file, or the output has an unknown format.
    """
    position = 0
    for line in lines:
        text = line.strip().strip(b"[],").strip()
        if not text:
            continue
        try:
            row = json.loads(text)
            start, length, zero = int(row["start"]), int(row["length"]), row["zero"] is True
            offset = None if zero else int(row["offset"])
        except (ValueError, KeyError, TypeError):
            raise Unplain from None
        if start != position or length <= 0 or row.get("depth") != 0 or row.get("compressed") is True:
            raise Unplain
        if offset is not None and (offset < 0 or row.get("data") is not True):
            raise Unplain
        position += length
        yield Extent(start, length, offset)
    if position < size:
        raise Unplain


@contextlib.contextmanager
def mapped(source: str, driver: str, size: int) -> t.Iterator[t.Iterator[Extent]]:
    """Yield the extents of an image according to ``qemu-img map``. Raises the errors of extents(), and CommandFailed."""
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "map", "-f", driver, "--output=json", os.path.abspath(source)]
    with tied_lines(argv) as lines:
        yield extents(lines, size)


def _chunks(image_extents: t.Iterable[Extent], size: int) -> t.Iterator[_Chunk]:
    """Yield the disk in pieces of CHUNK bytes, each with its ranges of the file."""
    start = 0
    parts: list[Extent] = []
    for extent in image_extents:
        at, end = extent.start, min(extent.start + extent.length, size)
        while at < end:
            length = min(end, start + CHUNK) - at
            offset = None if extent.offset is None else extent.offset + at - extent.start
            parts.append(Extent(at, length, offset))
            at += length
            if at == start + CHUNK or at == size:
                yield _Chunk(start, at - start, parts if any(p.offset is not None for p in parts) else [])
                start, parts = at, []


def first_difference(
    source: str,
    image_extents: t.Iterable[Extent],
    target: str,
    size: int,
    direct: bool,
    wait: t.Callable[[int], None] | None = None,
) -> int | None:
    """Return the first chunk where the first ``size`` bytes of the device differ from the image; None: no difference.

    :arg direct: read the file past the page cache as well.
    :arg wait: called with an end; returns when the device can be read up to there.
    """
    cached = 0 if direct else os.O_DIRECT
    with opened(source, READING & ~cached) as file, opened(target, READING) as device:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            pairs = [(_Memory(), _Memory()), (_Memory(), _Memory())]
            zeros = _Memory()
            waiting: t.Callable[[], bool] | None = None
            before = 0
            for number, chunk in enumerate(_chunks(image_extents, size)):
                if wait is not None:
                    wait(chunk.start + chunk.length)
                wanted, device_memory = pairs[number % 2]
                reads = [pool.submit(_read_device, device, device_memory, chunk)]
                if chunk.extents:
                    reads.append(pool.submit(_read_file, file, wanted, zeros, chunk))
                # The previous chunk is compared while this one is read.
                if waiting is not None and not waiting():
                    return before
                expected = wanted if chunk.extents else zeros
                waiting = functools.partial(_is_same, reads, expected, device_memory, chunk.length)
                before = chunk.start
            return before if waiting is not None and not waiting() else None


def _is_same(
    reads: list[concurrent.futures.Future[bool]], wanted: _Memory, device_memory: _Memory, length: int
) -> bool:
    return all(read.result() for read in reads) and device_memory.begins_as(wanted, length)


def _read_device(fd: int, memory: _Memory, chunk: _Chunk) -> bool:
    """Read a chunk. Returns False if the device is shorter."""
    whole = min(-(-chunk.length // _PAGE) * _PAGE, CHUNK)
    done = 0
    while done < chunk.length:
        got = os.preadv(fd, [memory.view[done:whole]], chunk.start + done)
        if got <= 0:
            return False
        done += got
    return True


def _read_file(fd: int, memory: _Memory, zeros: _Memory, chunk: _Chunk) -> bool:
    for extent in chunk.extents:
        begin = extent.start - chunk.start
        view = memory.view[begin : begin + extent.length]
        done = 0
        while extent.offset is not None and done < extent.length:
            try:
                got = os.preadv(fd, [view[done:]], extent.offset + done)
            except OSError as error:
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                if error.errno != errno.EINVAL or not flags & os.O_DIRECT:
                    raise
                # Clusters need not be aligned to the sectors of this file system.
                fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
                continue
            if got <= 0:
                break  # data beyond the end of the file reads as zeros
            done += got
        view[done:] = zeros.view[: extent.length - done]
    return True
