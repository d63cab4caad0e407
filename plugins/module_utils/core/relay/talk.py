# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The messages between hosts while an image goes from one to the next, and from the controller to the first one."""

from __future__ import annotations

import json
import posixpath
import struct
import typing as t

FRAME = struct.Struct(">QI")  # offset and bytes that follow; no bytes: the file ends there
WAITS = (
    2**64 - 1
)  # instead of an offset: nothing to send yet. The second number: how many hosts it is away from where the image comes from
NOWHERE = 4096  # so many: it comes from nowhere
UNCERTAIN = 2048  # so many: the controller has not said yet from where it comes
DIGESTS, DATA = "digests", "data"  # what a host asks for

RECEIVES, PUBLISHES, DONE, FAILED = "receives", "publishes", "done", "failed"
ENDED = (DONE, FAILED)


def relay_folder(base: str, image_id: str) -> str:
    """See hosts.relay.desk. :arg base: the folder of images"""
    return posixpath.join(base, "%s.relay" % image_id)


def feed_head(begin: int, size: int, digests: bytes) -> bytes:
    """Return the head of a feed, before the bytes of an image from ``begin`` on. :arg digests: of all its pieces"""
    return json.dumps({"begin": begin, "size": size, "digests": len(digests)}).encode() + b"\n" + digests


def read_feed_head(read_line: t.Callable[[int], bytes], read: t.Callable[[int], bytes]) -> tuple[int, int, bytes]:
    """(begin, size, digests) of feed_head(). :raises ValueError: it is none"""
    line = read_line(4096)
    head = json.loads(line) if line.endswith(b"\n") else None
    if not isinstance(head, dict):
        raise ValueError("no head")
    numbers = [head.get(name) for name in ("begin", "size", "digests")]
    if not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise ValueError("no numbers")
    begin, size, length = t.cast("list[int]", numbers)
    digests = read(length)
    if len(digests) != length:
        raise ValueError("the digests end early")
    return begin, size, digests
