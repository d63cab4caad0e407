# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes an image to a device and compares it meanwhile: the comparison follows the writer at a distance.

``qemu-img convert`` writes in the order of the disk and reports how much of the image's data it has started to write.
``qemu-img map`` returns where that is on the disk. With two CPUs, reading back costs little additional time.
"""

from __future__ import annotations

import concurrent.futures
import threading
import typing as t
from array import array

from ...core.errors import CommandFailed, MissingLibrary
from . import copy
from .process import OnPercent
from .verify import Extent, Unplain, mapped

PIECE = 4 * 1024**2
#: Of the reported data, at most 16 buffers of 2 MiB are not written yet (qemu-img has 8 coroutines, -m).
BEHIND = 32 * 1024**2
#: Bytes of data; with less data the two steps run one after the other.
WORTHWHILE = 4 * BEHIND


class Abandoned(Exception):
    """The writer failed, so there is nothing to follow."""


class Follower:
    """Lets a reader wait for a writer. :arg data: bytes of data in the disk up to the end of each PIECE."""

    def __init__(self, data: t.Sequence[int]):
        self._data = data
        self._changed = threading.Condition()
        self._begun = 0.0
        self._is_over = self._is_abandoned = False

    def percent(self, percent: float) -> None:
        with self._changed:
            self._begun = self._data[-1] * min(percent, 100.0) / 100
            self._changed.notify_all()

    def finish(self) -> None:
        """Note that all data is written."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def abandon(self) -> None:
        with self._changed:
            self._is_abandoned = True
            self._changed.notify_all()

    def until(self, end: int) -> None:
        """Wait until the first ``end`` bytes of the disk are written.

        :raises Abandoned: the writer failed.
        """
        wanted = self._data[min(-(-end // PIECE), len(self._data)) - 1] + BEHIND
        with self._changed:
            while not self._is_over and not self._is_abandoned and self._begun < wanted:
                self._changed.wait()
            if self._is_abandoned:
                raise Abandoned


def data_by_piece(extents: t.Iterable[Extent], size: int) -> array[int]:
    """Return the bytes of data up to the end of each PIECE of a disk of ``size`` bytes."""
    sums = array("Q", bytes(8 * -(-size // PIECE)))
    for extent in extents:
        at, end = extent.start, min(extent.start + extent.length, size)
        while extent.offset is not None and at < end:
            piece = at // PIECE
            length = min(end, (piece + 1) * PIECE) - at
            sums[piece] += length
            at += length
    total = 0
    for piece, length in enumerate(sums):
        total += length
        sums[piece] = total
    return sums


def convert_and_verify(
    source: str,
    driver: str,
    sha256: str,
    target: str,
    virtual_size: int,
    on_step: t.Callable[[str, float], None],
    target_is_zero: bool = False,
    direct: bool = False,
) -> None:
    """Call copy.convert() and copy.verify(), in parallel if that is worthwhile, with their arguments and errors.

    :arg on_step: called with ``converting`` or ``verifying``, and the percentage.
    """

    def verify(wait: t.Callable[[int], None] | None = None) -> None:
        copy.verify(source, driver, sha256, target, virtual_size, direct, wait)

    def convert(on_percent: OnPercent) -> None:
        copy.convert(source, driver, target, on_percent, target_is_zero, direct)

    data = _data_of(source, driver, virtual_size)
    if data is None or data[-1] < WORTHWHILE:
        convert(lambda percent: on_step("converting", percent))
        on_step("verifying", 0.0)
        verify()
        return
    follower = Follower(data)

    def on_percent(percent: float) -> None:
        follower.percent(percent)
        on_step("converting", percent)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        verified = pool.submit(verify, follower.until)
        try:
            convert(on_percent)
        except BaseException:
            follower.abandon()
            raise
        follower.finish()
        on_step("verifying", 0.0)
        verified.result()


def _data_of(source: str, driver: str, size: int) -> t.Sequence[int] | None:
    """Map the data of an image. None: the image cannot be followed, or is too small."""
    if driver not in ("raw", "qcow2") or size < WORTHWHILE:
        return None
    try:
        with mapped(source, driver, size) as extents:
            return data_by_piece(extents, size)
    except (Unplain, CommandFailed, MissingLibrary):
        return None
