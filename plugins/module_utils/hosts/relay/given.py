# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Receive one file from the process of another host that gives it (relay.py), where no host takes part in between: for a store of images.

What arrives is input: each number is checked before it is used, and whoever asks compares the whole with its checksum.
"""

from __future__ import annotations

import os
import time
import typing as t

from ...core.errors import ImageDownloadFailed
from ...core.relay.pieces import PIECE, ZEROS
from ...core.relay.talk import DATA, FRAME, WAITS
from ..copies.server import Place, opened, stop
from ..copies.stream import Garbled, Stream, read_line, send_line
from ..images.fetch import check_size
from ..images.images import ImageSource
from ..os.files import opened as opened_file
from ..os.module_errors import as_bootflow_error

SILENCE = 60.0  # seconds that the other host may say nothing: while it has nothing to send, it says so each second

#: Suboptions of the option ``giver``.
GIVER_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "fingerprint": {"type": "str", "required": True},
    "token": {"type": "str", "required": True, "no_log": True},
    "stop_token": {"type": "str", "required": True, "no_log": True},
}


def receive(giver: t.Mapping[str, t.Any], image: ImageSource, target: str, on_bytes: t.Callable[[bytes], t.Any]) -> int:
    """Write the file that a process of another host gives to the new file ``target`` (mode 0600), and end that process. Returns the bytes.

    :arg giver: see GIVER_ARGUMENTS. :arg image: its limits say how many bytes come. :arg on_bytes: gets all of them, zeros included
    :raises ImageDownloadFailed: the host is not reached, ends, is silent, takes longer than the limits, or sends something else.
    :raises ImageUnacceptable: more than the limits. :raises DiskFull: there is no room for so many bytes, which is looked at before.
    """
    place, folder = Place(giver["address"], giver["port"], giver["fingerprint"]), os.path.dirname(target)
    size = int(image.limits.declared or 0)
    try:
        check_size(image.label, "another host", folder, size, 0, image.limits)
        with opened_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) as fd:
            done = _Arriving(image, fd, size, on_bytes).take(place, giver["token"])
            os.ftruncate(fd, done)
    except OSError as error:
        raise as_bootflow_error(error, folder) from None
    stop(place, giver["stop_token"])
    return done


class _Arriving:
    """A file that arrives. Errors of the connection are ImageDownloadFailed, errors of the file stay what they are."""

    def __init__(self, image: ImageSource, fd: int, size: int, on_bytes: t.Callable[[bytes], t.Any]):
        self._image, self._fd, self._size, self._on_bytes = image, fd, size, on_bytes
        self._until = time.monotonic() + (image.limits.seconds or float("inf"))

    def take(self, place: Place, token: str) -> int:
        """Take the whole file. Returns its bytes."""
        reached = 0
        frames = self._frames(place, token)
        for offset, data in frames:
            self._pass_zeros(reached, offset)
            self._on_bytes(data)
            self._write(data, offset)
            reached = offset + len(data)
        self._pass_zeros(reached, self._size)
        return self._size

    def _frames(self, place: Place, token: str) -> t.Iterator[tuple[int, bytes]]:
        try:
            with opened(place, SILENCE) as secured:
                stream = t.cast(Stream, secured.makefile("rwb", buffering=PIECE))
                send_line(stream, {"token": token, "host": os.uname().nodename, "want": DATA, "from": 0})
                read_line(stream)
                frames = self._checked(stream)
                while (frame := next(frames, None)) is not None:
                    yield frame
        except (_OfTheFile, GeneratorExit):
            raise
        except (OSError, Garbled) as error:
            reason = str(error) or type(error).__name__
            raise ImageDownloadFailed(
                image_id=self._image.label,
                url="the instance's host",
                reason=reason,
                remedy="Hosts must reach each other at bootflow_copy_address and bootflow_copy_ports.",
            ) from None

    def _checked(self, stream: Stream) -> t.Iterator[tuple[int, bytes]]:
        """Yield offset and bytes of each piece that is not zeros. :raises Garbled: it is not this file, or too slow"""
        reached = 0
        while True:
            offset, length = FRAME.unpack(_exactly(stream, FRAME.size))
            if time.monotonic() > self._until:
                raise Garbled("it took longer than bootflow_image_fetch_timeout")
            if offset == WAITS:
                continue
            if length == 0:
                if offset != self._size:
                    raise Garbled("the file has %d bytes, not %d" % (offset, self._size))
                return
            if length > PIECE or offset % PIECE or offset < reached or offset + length > self._size:
                raise Garbled("no piece of the file")
            reached = offset + PIECE
            yield offset, _exactly(stream, length)

    def _pass_zeros(self, begin: int, end: int) -> None:
        """Hash the zeros that are not sent: they become holes."""
        while begin < end:
            step = min(PIECE, end - begin)
            self._on_bytes(ZEROS[:step])
            begin += step

    def _write(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(self._fd, view, offset)
                view, offset = view[done:], offset + done
        except OSError as error:
            raise _OfTheFile(error.errno, error.strerror) from None


class _OfTheFile(OSError):
    """The file could not be written: no other host is to blame."""


def _exactly(stream: Stream, size: int) -> bytes:
    """:raises Garbled: less came"""
    data = stream.read(size)
    if len(data) != size:
        raise Garbled("the connection ended")
    return data
